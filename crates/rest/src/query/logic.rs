//! Logic trees: `and=(…)`, `or=(…)`.

use super::cursor::{Cursor, Mismatch, Parsed};
use super::filter::{ValueContext, condition};
use super::name::field;
use super::types::{Filter, Logic, LogicTree};

/// Parses `[not.]and(…)` or `[not.]or(…)`: the operator, which comes from the key, and the value.
/// Text after it is ignored.
pub(super) fn logic(cursor: &mut Cursor<'_>) -> Parsed<LogicTree> {
    group(cursor)
}

/// Parses a `tree`: a condition if possible, otherwise a group.
fn tree(cursor: &mut Cursor<'_>) -> Parsed<LogicTree> {
    cursor.count()?;
    cursor.spaces();
    let start = cursor.position();
    let tree = match filter(cursor) {
        Ok(filter) => LogicTree::Filter(filter),
        Err(Mismatch) if cursor.exceeded_limit() => return Err(Mismatch),
        Err(Mismatch) => {
            cursor.go_back(start);
            group(cursor)?
        }
    };
    cursor.spaces();
    Ok(tree)
}

fn filter(cursor: &mut Cursor<'_>) -> Parsed<Filter> {
    let field = field(cursor)?;
    cursor.expect(".", "delimiter (.)")?;
    let (negated, operation) = condition(cursor, ValueContext::Logic)?;
    Ok(Filter { field, negated, operation })
}

fn group(cursor: &mut Cursor<'_>) -> Parsed<LogicTree> {
    let negated = cursor.take("not.");
    if !negated {
        cursor.note("negation operator (not)");
    }
    let logic = if cursor.take("and") {
        Logic::And
    } else if cursor.take("or") {
        Logic::Or
    } else {
        return cursor.fail("logic operator (and, or)");
    };
    cursor.expect_between_spaces("(", "\"(\"")?;
    let parts = cursor.nest(|cursor| {
        let mut parts = vec![tree(cursor)?];
        while cursor.take(",") {
            parts.push(tree(cursor)?);
        }
        cursor.note("\",\"");
        Ok(parts)
    })?;
    cursor.expect(")", "\")\"")?;
    Ok(LogicTree::Group { negated, logic, parts })
}
