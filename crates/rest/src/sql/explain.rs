//! `EXPLAIN` statements: of the main statement for a client that requests its execution plan, and
//! of the counted rows for a client that accepts an estimate.

use super::Sql;
use crate::request::media::{ExplainFormat, ExplainRequest};

/// Writes the `EXPLAIN` of a statement that a client requested.
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

/// Writes the `EXPLAIN` of the statement whose rows are counted.
pub(crate) fn of_count(matching: Sql) -> Sql {
    matching.after("EXPLAIN (FORMAT JSON) ")
}
