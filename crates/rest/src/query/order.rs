//! Sort terms, and lists of names.

use indexmap::IndexSet;

use super::cursor::{Cursor, Parsed};
use super::name::{field, json_path, name};
use super::types::{Direction, Field, Nulls, OrderTerm};

/// Parses an `order-value`, which must end the text.
pub(super) fn order(cursor: &mut Cursor<'_>) -> Parsed<Vec<OrderTerm>> {
    let terms = cursor.list(term)?;
    cursor.expect_end()?;
    Ok(terms)
}

/// Parses `columns` and `on_conflict`. Text after the last name is ignored; repeated names are
/// dropped.
pub(super) fn names(cursor: &mut Cursor<'_>) -> Parsed<Vec<String>> {
    let names: IndexSet<String> = cursor.list(name)?.into_iter().collect();
    Ok(names.into_iter().collect())
}

fn term(cursor: &mut Cursor<'_>) -> Parsed<OrderTerm> {
    let first = name(cursor)?;
    let (relation, field) = if cursor.take("(") {
        let field = field(cursor)?;
        cursor.expect(")", "\")\"")?;
        (Some(first), field)
    } else {
        (None, Field { name: first, json_path: json_path(cursor)? })
    };
    cursor.spaces();
    let direction = cursor.take_one_of(&[(".asc", Direction::Ascending), (".desc", Direction::Descending)]);
    let nulls = cursor.take_one_of(&[(".nullsfirst", Nulls::First), (".nullslast", Nulls::Last)]);
    Ok(OrderTerm { relation, field, direction, nulls })
}
