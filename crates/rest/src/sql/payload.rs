//! The body of a request as rows: one parameter, parsed by PostgreSQL's JSON functions.

use super::Sql;
use crate::plan::{AssignedColumn, JsonBody};

/// The name of the body's rows.
pub(super) const BODY: &str = "pgrst_body";

/// The number of pairs per `jsonb_build_object`. Functions have at most 100 arguments.
const PAIRS_AT_ONCE: usize = 50;

/// Appends the FROM item `pgrst_body`, with one row for each object of the body and one column for
/// each of `columns`, of the declared type. Columns whose domain has a conversion function are JSON
/// ([`value`] calls the function).
///
/// With `defaults`, missing keys of each object get the columns' defaults.
///
/// At least one column is required: PostgreSQL has no record without columns.
pub(super) fn from_item(sql: &mut Sql, body: &JsonBody, columns: &[AssignedColumn], defaults: bool) {
    let kept: Vec<_> = columns.iter().filter_map(|column| Some((column, column.default.as_deref()?))).collect();
    if !defaults || kept.is_empty() {
        sql.raw(if body.is_object { "json_to_record(" } else { "json_to_recordset(" });
        sql.body(&body.json).raw("::json)");
    } else {
        if body.is_object {
            sql.raw("(SELECT ").body(&body.json).raw("::jsonb AS val)");
        } else {
            sql.raw("jsonb_array_elements(").body(&body.json).raw("::jsonb)");
        }
        sql.raw(" AS pgrst_json_defs(val), LATERAL jsonb_to_record(");
        for pairs in kept.chunks(PAIRS_AT_ONCE) {
            sql.raw("jsonb_build_object(");
            sql.list(", ", pairs, |sql, (column, default)| {
                // Trusted: `pg_get_expr` wrote the expression
                sql.value(column.name.as_str()).raw("::text, ").raw(default);
            });
            sql.raw(") || ");
        }
        sql.raw("pgrst_json_defs.val)");
    }
    sql.raw(" AS pgrst_body(");
    sql.list(", ", columns, |sql, column| {
        sql.name(&column.name).raw(" ").raw(if column.from_json.is_some() { "json" } else { &column.sql_type });
    });
    sql.raw(")");
}

/// Appends the value of a column in the current row of the body.
pub(super) fn value(sql: &mut Sql, column: &AssignedColumn) {
    match &column.from_json {
        Some(function) => {
            sql.qualified(&function.schema, &function.name).raw("(").qualified(BODY, &column.name).raw(")");
        }
        None => {
            sql.qualified(BODY, &column.name);
        }
    }
}
