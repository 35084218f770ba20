//! `EXPLAIN`: of the main statement for who asks for plans, of the count for who is content with an estimate (contract 9.3, 10.4).

use portico_database::wire::Row;
use serde_json::Value;

use crate::request::media::{ExplainFormat, ExplainRequest};
use crate::statement_builder::Sql;

/// `EXPLAIN` of a statement as a client asked for it.
pub(crate) fn of_main(main: Sql, wanted: &ExplainRequest) -> Sql {
    let mut options = String::from(match wanted.format {
        ExplainFormat::Json => "EXPLAIN (FORMAT JSON",
        ExplainFormat::Text => "EXPLAIN (FORMAT TEXT",
    });
    for option in &wanted.options {
        options.push_str(", ");
        options.push_str(option.text());
    }
    options.push_str(") ");
    main.after(&options)
}

/// `EXPLAIN` of the statement whose rows are counted.
pub(crate) fn of_count(matching: Sql) -> Sql {
    matching.after("EXPLAIN (FORMAT JSON) ")
}

/// What PostgreSQL expects: `Plan Rows` of the top node.
pub(crate) fn estimate(rows: &[Row]) -> Option<u64> {
    let plan: Value = serde_json::from_slice(rows.first()?.bytes(0)?).ok()?;
    let rows = plan.pointer("/0/Plan/Plan Rows")?;
    rows.as_u64().or_else(|| rows.as_f64().map(|rows| rows as u64))
}

/// The lines of a plan as one body.
pub(crate) fn body(rows: &[Row]) -> Vec<u8> {
    let mut body = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            body.push(b'\n');
        }
        body.extend_from_slice(row.bytes(0).unwrap_or_default());
    }
    body
}
