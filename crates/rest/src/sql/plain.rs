//! Main statements without an envelope, for responses without a count. PostgreSQL makes neither one
//! text of all rows nor the columns beside it.
//!
//! Another statement reads the headers and the status that SQL has set (`response.headers`).

use portico_database::wire::RowSeparators;

use super::{Sql, StatementOutput, read};
use crate::plan::{BodyFormat, ReadPlan, ResultShape, WritePlan, WriteReturn};

/// The separators of `json_agg`, and those that are left without null values.
const LIST: RowSeparators = RowSeparators { open: "[", between: ", \n ", close: "]" };
const STRIPPED_LIST: RowSeparators = RowSeparators { open: "[", between: ",", close: "]" };
/// For a single row; the server checks the number of rows.
const ROW: RowSeparators = RowSeparators { open: "", between: ",", close: "" };

/// Writes the statement of a read whose body is JSON.
pub fn read(plan: &ReadPlan, body_format: &BodyFormat) -> Option<(Sql, StatementOutput)> {
    let mut sql = Sql::new();
    let separators = rows(&mut sql, body_format, &|sql| read::rows(sql, plan, None))?;
    Some((sql, StatementOutput::Rows(separators)))
}

/// Writes the statement of a write whose response is JSON or has no body.
pub fn write(plan: &WritePlan, body_format: &BodyFormat) -> Option<(Sql, StatementOutput)> {
    if plan.counts_inserted() || plan.returns_location() {
        return None;
    }
    let mut sql = Sql::new();
    match &plan.returning {
        WriteReturn::Rows(answer) => {
            sql.raw("WITH pgrst_source AS (");
            super::write::source(&mut sql, plan);
            sql.raw(") ");
            let separators = rows(&mut sql, body_format, &|sql| read::rows(sql, answer, None))?;
            Some((sql, StatementOutput::Rows(separators)))
        }
        WriteReturn::Count => {
            super::write::change(&mut sql, plan);
            Some((sql, StatementOutput::Count))
        }
        WriteReturn::Location(_) => None,
    }
}

/// Appends the SELECT of the rows' JSON, and returns their separators.
fn rows(sql: &mut Sql, body_format: &BodyFormat, rows: &dyn Fn(&mut Sql)) -> Option<RowSeparators> {
    let (strip_nulls, separators) = match body_format {
        BodyFormat::Json { shape: ResultShape::Set, strip_nulls: true } => (true, STRIPPED_LIST),
        BodyFormat::Json { shape: ResultShape::Set, strip_nulls: false } => (false, LIST),
        BodyFormat::Object { shape: ResultShape::Set, strip_nulls } => (*strip_nulls, ROW),
        _ => return None,
    };
    let (open, close) = if strip_nulls { ("json_strip_nulls(", ")") } else { ("", "") };
    sql.raw("SELECT ").raw(open).raw("to_json(_postgrest_t)").raw(close).raw(" FROM (");
    rows(sql);
    sql.raw(") AS _postgrest_t");
    Some(separators)
}
