//! The statements of writes.
//!
//! The write itself is the CTE `pgrst_source`. Its rows are the written ones: their columns, or
//! only `1` if no column is returned, so that a caller without the privilege to read can write.

use super::{Envelope, RowCount, Sql, TotalSource, conditions, envelope, payload, read};
use crate::plan::{
    AssignedColumn, BodyFormat, ConflictClause, JsonBody, KeyValue, ReturnedColumns, RowCondition, WriteChange,
    WritePlan, WriteReturn,
};
use crate::schema::Relation;

/// Writes the main statement of a write. `body_format` applies where rows are returned; otherwise
/// there is no body.
///
/// A count is that of the written rows, even if an inner embed removes some of them from the body.
pub fn write(plan: &WritePlan, count: RowCount, body_format: &BodyFormat) -> Sql {
    let mut sql = Sql::new();
    let source = |sql: &mut Sql| source(sql, plan);
    let written = |sql: &mut Sql| {
        sql.raw("SELECT count(*) FROM pgrst_source");
    };
    let rows = |sql: &mut Sql| match &plan.returning {
        WriteReturn::Rows(read) => read::rows(sql, read, None),
        WriteReturn::Count | WriteReturn::Location(_) => {
            sql.raw("SELECT 1 FROM pgrst_source");
        }
    };
    let (total, body_format) = match (&plan.returning, count) {
        (WriteReturn::Rows(_), RowCount::None) => (TotalSource::None, body_format),
        (WriteReturn::Rows(_), _) => (TotalSource::Query(&written), body_format),
        (_, RowCount::None) => (TotalSource::None, &BodyFormat::Nothing),
        (..) => (TotalSource::Rows, &BodyFormat::Nothing),
    };
    let inserted = |sql: &mut Sql| inserted(sql, plan);
    let location = |sql: &mut Sql| location(sql, plan);
    let parts = Envelope {
        source: Some(&source),
        total,
        rows: &rows,
        body_format,
        inserted: plan.counts_inserted().then_some(&inserted),
        location: plan.returns_location().then_some(&location),
    };
    envelope(&mut sql, &parts);
    sql
}

/// Appends the statement of `pgrst_source`.
pub(super) fn source(sql: &mut Sql, plan: &WritePlan) {
    change(sql, plan);
    if !matches!(plan.change, WriteChange::Nothing) {
        returning(sql, plan);
    }
}

/// Appends the change without RETURNING.
pub(super) fn change(sql: &mut Sql, plan: &WritePlan) {
    let relation = &plan.relation;
    match &plan.change {
        WriteChange::Insert { body, columns, defaults, conflict, only } => {
            sql.raw("INSERT INTO ").qualified(&relation.name.schema, &relation.name.name);
            insert_rows(sql, body, columns, *defaults, only);
            if let Some(conflict) = conflict {
                on_conflict(sql, conflict, columns);
            }
        }
        WriteChange::Update { body, columns, defaults, conditions } => {
            sql.raw("UPDATE ").qualified(&relation.name.schema, &relation.name.name).raw(" SET ");
            sql.list(", ", columns, |sql, column| {
                sql.name(&column.name).raw(" = ");
                payload::value(sql, column);
            });
            sql.raw(" FROM ");
            payload::from_item(sql, body, columns, *defaults);
            where_clause(sql, relation, conditions);
        }
        WriteChange::Delete { conditions } => {
            sql.raw("DELETE FROM ").qualified(&relation.name.schema, &relation.name.name);
            where_clause(sql, relation, conditions);
        }
        WriteChange::Nothing => {
            sql.raw("SELECT ");
            returned_columns(sql, plan);
            // Without rows to return, nothing is read and no privilege to read is needed
            if !matches!(plan.returning, WriteReturn::Count) {
                sql.raw(" FROM ").qualified(&relation.name.schema, &relation.name.name);
            }
            sql.raw(" WHERE false");
        }
    }
}

/// Appends `(columns) SELECT …`: the rows of an INSERT.
fn insert_rows(sql: &mut Sql, body: &JsonBody, columns: &[AssignedColumn], defaults: bool, only: &[KeyValue]) {
    if !only.is_empty() {
        return put_row(sql, body, columns, only);
    }
    if columns.is_empty() {
        // Rows of defaults: one for `{}`, one for each element of `[{},{}]`
        if body.is_object {
            sql.raw(" DEFAULT VALUES");
        } else {
            sql.raw(" SELECT FROM json_array_elements(").body(&body.json).raw("::json)");
        }
        return;
    }
    sql.raw("(").list(", ", columns, |sql, column| {
        sql.name(&column.name);
    });
    sql.raw(") SELECT ").list(", ", columns, payload::value);
    sql.raw(" FROM ");
    payload::from_item(sql, body, columns, defaults);
}

/// Appends the rows of a PUT: those of the body that have the key of the URL. PostgreSQL itself
/// rejects two.
fn put_row(sql: &mut Sql, body: &JsonBody, columns: &[AssignedColumn], only: &[KeyValue]) {
    if !columns.is_empty() {
        sql.raw("(").list(", ", columns, |sql, column| {
            sql.name(&column.name);
        });
        sql.raw(")");
    }
    sql.raw(" SELECT ").list(", ", columns, payload::value);
    sql.raw(" FROM ");
    let mut read = columns.to_vec();
    read.extend(only.iter().map(|key| &key.column).filter(|key| !columns.contains(key)).cloned());
    payload::from_item(sql, body, &read, false);
    sql.raw(" WHERE ").list(" AND ", only, |sql, key| {
        payload::value(sql, &key.column);
        sql.raw(" = ");
        match &key.from_text {
            Some(function) => {
                sql.qualified(&function.schema, &function.name).raw("(").value(key.value.as_str()).raw(")");
            }
            None => {
                sql.value(key.value.as_str());
            }
        }
    });
}

/// The number of rows that an upsert updated. A setting counts them, since `xmax` does not tell for
/// views, foreign and partitioned tables.
const UPDATED: &str = "coalesce(nullif(current_setting('pgrst.updated', true), ''), '0')::bigint";

fn on_conflict(sql: &mut Sql, conflict: &ConflictClause, columns: &[AssignedColumn]) {
    sql.raw(" ON CONFLICT (").list(", ", &conflict.columns, |sql, column| {
        sql.name(column);
    });
    sql.raw(")");
    if conflict.merge && !columns.is_empty() {
        sql.raw(" DO UPDATE SET ").list(", ", columns, |sql, column| {
            sql.name(&column.name).raw(" = EXCLUDED.").name(&column.name);
        });
        // Always true; it counts
        sql.raw(" WHERE set_config('pgrst.updated', (").raw(UPDATED).raw(" + 1)::text, true) IS NOT NULL");
    } else {
        sql.raw(" DO NOTHING");
    }
}

/// Appends the number of rows that a merge upsert inserted: the rows of the body without the
/// updated ones. Triggers may have suppressed rows, so the number is limited by that of the written
/// rows.
fn inserted(sql: &mut Sql, plan: &WritePlan) {
    let WriteChange::Insert { body, columns, only, .. } = &plan.change else { return };
    if columns.is_empty() {
        // Nothing can be updated, so all written rows are new
        sql.raw("(SELECT count(*) FROM pgrst_source)");
        return;
    }
    sql.raw("least((SELECT count(*) FROM pgrst_source), ");
    // A PUT writes at most the row of the URL
    if body.is_object || !only.is_empty() {
        sql.raw("1");
    } else {
        sql.raw("json_array_length(").body(&body.json).raw("::json)");
    }
    sql.raw(" - ").raw(UPDATED).raw(")");
}

/// Appends the primary key of the only row that was written, as a JSON array of names and texts.
/// The values read like those in bodies, in the order of the returned columns.
fn location(sql: &mut Sql, plan: &WritePlan) {
    let WriteReturn::Location(returned) = &plan.returning else { return };
    let key = &plan.relation.primary_key;
    let columns: Vec<_> = if returned.all {
        plan.relation.columns.keys().filter(|column| key.contains(column)).collect()
    } else {
        key.iter().collect()
    };
    sql.raw("(SELECT json_agg(json_build_array(pgrst_pair.key, pgrst_pair.value))::text FROM (SELECT ");
    sql.list(", ", columns, |sql, column| {
        sql.qualified("pgrst_source", column);
    });
    sql.raw(
        " FROM pgrst_source) AS pgrst_key, LATERAL json_each_text(row_to_json(pgrst_key)) AS pgrst_pair \
         WHERE (SELECT count(*) FROM pgrst_source) = 1)",
    );
}

fn where_clause(sql: &mut Sql, relation: &Relation, all: &[RowCondition]) {
    if !all.is_empty() {
        sql.raw(" WHERE ");
        // A write has no embeds, so no condition is about one
        conditions(sql, &relation.name.name, all, &|_, _| {});
    }
}

fn returning(sql: &mut Sql, plan: &WritePlan) {
    sql.raw(" RETURNING ");
    returned_columns(sql, plan);
}

fn returned_columns(sql: &mut Sql, plan: &WritePlan) {
    match &plan.returning {
        WriteReturn::Count => {
            sql.raw("1");
        }
        WriteReturn::Location(returned) => columns_of(sql, &plan.relation, returned),
        WriteReturn::Rows(read) => columns_of(sql, &plan.relation, &read.returned_columns()),
    }
}

/// Writes the returned columns. They are qualified, since an UPDATE would also return the columns
/// of the body.
fn columns_of(sql: &mut Sql, relation: &Relation, returned: &ReturnedColumns) {
    if returned.all {
        sql.name(&relation.name.name).raw(".*");
    }
    if !returned.all && returned.columns.is_empty() {
        sql.raw("1");
        return;
    }
    sql.raw(if returned.all && !returned.columns.is_empty() { ", " } else { "" });
    sql.list(", ", &returned.columns, |sql, column| {
        sql.qualified(&relation.name.name, column);
    });
}

#[cfg(test)]
mod tests;
