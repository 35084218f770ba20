//! Main statements without an envelope: PostgreSQL makes neither one text of all rows nor the columns beside it.
//!
//! They are for answers without a count. A statement behind the main one reads what SQL says of the answer
//! (`response.headers`).

use portico_database::wire::RowSeparators;

use super::{Sql, StatementOutput, read};
use crate::plan::{BodyFormat, ReadPlan, ResultShape, WritePlan, WriteReturn};

/// What `json_agg` makes of rows, and what is left of it without nulls.
const LIST: RowSeparators = RowSeparators { open: "[", between: ", \n ", close: "]" };
const STRIPPED_LIST: RowSeparators = RowSeparators { open: "[", between: ",", close: "]" };
/// One row, or the answer is another.
const ROW: RowSeparators = RowSeparators { open: "", between: ",", close: "" };

/// The statement of a read, if its body is JSON.
pub fn read(plan: &ReadPlan, body_format: &BodyFormat) -> Option<(Sql, StatementOutput)> {
    let mut sql = Sql::new();
    let joining = rows(&mut sql, body_format, &|sql| read::rows(sql, plan, None))?;
    Some((sql, StatementOutput::Rows(joining)))
}

/// The statement of a write, if its answer is JSON or no more than a status.
pub fn write(plan: &WritePlan, body_format: &BodyFormat) -> Option<(Sql, StatementOutput)> {
    if plan.counts_inserted() || plan.tells_location() {
        return None;
    }
    let mut sql = Sql::new();
    match &plan.answer {
        WriteReturn::Rows(answer) => {
            sql.raw("WITH pgrst_source AS (");
            super::write::source(&mut sql, plan);
            sql.raw(") ");
            let joining = rows(&mut sql, body_format, &|sql| read::rows(sql, answer, None))?;
            Some((sql, StatementOutput::Rows(joining)))
        }
        WriteReturn::Count => {
            super::write::change(&mut sql, plan);
            Some((sql, StatementOutput::Count))
        }
        WriteReturn::Location(_) => None,
    }
}

/// Appends the SELECT of the rows' JSON; what joins them.
fn rows(sql: &mut Sql, body_format: &BodyFormat, rows: &dyn Fn(&mut Sql)) -> Option<RowSeparators> {
    let (strip_nulls, joining) = match body_format {
        BodyFormat::Json { shape: ResultShape::Set, strip_nulls: true } => (true, STRIPPED_LIST),
        BodyFormat::Json { shape: ResultShape::Set, strip_nulls: false } => (false, LIST),
        BodyFormat::Object { shape: ResultShape::Set, strip_nulls } => (*strip_nulls, ROW),
        _ => return None,
    };
    let (open, close) = if strip_nulls { ("json_strip_nulls(", ")") } else { ("", "") };
    sql.raw("SELECT ").raw(open).raw("to_json(_postgrest_t)").raw(close).raw(" FROM (");
    rows(sql);
    sql.raw(") AS _postgrest_t");
    Some(joining)
}
