//! Main statements without an envelope: PostgreSQL makes neither one text of all rows nor the columns beside it.
//!
//! They are for answers without a count. A statement behind the main one reads what SQL says of the answer
//! (`response.headers`).

use portico_database::wire::Joining;

use super::{Sql, Yields, read};
use crate::plan::{Answer, Producer, ReadPlan, Rows, WritePlan};

/// What `json_agg` makes of rows, and what is left of it without nulls.
const LIST: Joining = Joining { open: "[", between: ", \n ", close: "]" };
const STRIPPED_LIST: Joining = Joining { open: "[", between: ",", close: "]" };
/// One row, or the answer is another.
const ROW: Joining = Joining { open: "", between: ",", close: "" };

/// The statement of a read, if its body is JSON.
pub fn read(plan: &ReadPlan, producer: &Producer) -> Option<(Sql, Yields)> {
    let mut sql = Sql::new();
    let joining = rows(&mut sql, producer, &|sql| read::rows(sql, plan, None))?;
    Some((sql, Yields::Rows(joining)))
}

/// The statement of a write, if its answer is JSON or no more than a status.
pub fn write(plan: &WritePlan, producer: &Producer) -> Option<(Sql, Yields)> {
    if plan.counts_inserted() || plan.tells_location() {
        return None;
    }
    let mut sql = Sql::new();
    match &plan.answer {
        Answer::Rows(answer) => {
            sql.raw("WITH pgrst_source AS (");
            super::write::source(&mut sql, plan);
            sql.raw(") ");
            let joining = rows(&mut sql, producer, &|sql| read::rows(sql, answer, None))?;
            Some((sql, Yields::Rows(joining)))
        }
        Answer::Count => {
            super::write::change(&mut sql, plan);
            Some((sql, Yields::Count))
        }
        Answer::Location(_) => None,
    }
}

/// Appends the SELECT of the rows' JSON; what joins them.
fn rows(sql: &mut Sql, producer: &Producer, rows: &dyn Fn(&mut Sql)) -> Option<Joining> {
    let (strip_nulls, joining) = match producer {
        Producer::Json { of: Rows::Set, strip_nulls: true } => (true, STRIPPED_LIST),
        Producer::Json { of: Rows::Set, strip_nulls: false } => (false, LIST),
        Producer::Object { of: Rows::Set, strip_nulls } => (*strip_nulls, ROW),
        _ => return None,
    };
    let (open, close) = if strip_nulls { ("json_strip_nulls(", ")") } else { ("", "") };
    sql.raw("SELECT ").raw(open).raw("to_json(_postgrest_t)").raw(close).raw(" FROM (");
    rows(sql);
    sql.raw(") AS _postgrest_t");
    Some(joining)
}
