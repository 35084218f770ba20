//! Conditions: `col=op.value`, and the parts that they share with logic trees.

use super::cursor::{Cursor, Parsed, count_scanned};
use super::name::{field, ident, name, scan_quoted};
use super::types::{
    AtLevel, EmbedPath, Field, FilterOperation, Fts, IsValue, QuantOperator, Quantifier, SimpleOperator,
};

const OPERATOR: &str = "operator (eq, gt, ...)";
const DELIMITER: &str = "delimiter (.)";

/// The position of a condition, which decides how its value is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueContext {
    /// In a parameter of its own: the value is the rest of the text.
    RoutineParameter,
    /// In a logic tree: the value ends at the next `,` or `)`, or is quoted.
    Logic,
}

/// Parses a `filter-key`. Text after it is ignored.
pub(super) fn key(cursor: &mut Cursor<'_>) -> Parsed<AtLevel<Field>> {
    let mut path = EmbedPath::new();
    loop {
        cursor.count()?;
        let field = field(cursor)?;
        if !field.json_path.is_empty() || !cursor.take(".") {
            return Ok(AtLevel { path, value: field });
        }
        path.push(field.name);
    }
}

/// Parses the names before the last one, which is the parameter's own: `order`, `limit`, ….
pub(super) fn embed_path(cursor: &mut Cursor<'_>) -> Parsed<EmbedPath> {
    let mut path = EmbedPath::new();
    loop {
        cursor.count()?;
        path.push(name(cursor)?);
        if !cursor.take(".") {
            cursor.expect_end()?;
            path.pop();
            return Ok(path);
        }
    }
}

/// Parses `[not.]operation`.
pub(super) fn condition(cursor: &mut Cursor<'_>, context: ValueContext) -> Parsed<(bool, FilterOperation)> {
    let negated = cursor.take("not.");
    if !negated {
        cursor.note("\"not\"");
    }
    Ok((negated, operation(cursor, context)?))
}

fn operation(cursor: &mut Cursor<'_>, context: ValueContext) -> Parsed<FilterOperation> {
    let start = cursor.position();
    let operator = cursor.take_while(|c| c.is_ascii_lowercase());
    match operator {
        "in" => {
            delimiter(cursor)?;
            list(cursor).map(FilterOperation::In)
        }
        "is" => {
            delimiter(cursor)?;
            is_value(cursor).map(FilterOperation::Is)
        }
        "isdistinct" => {
            delimiter(cursor)?;
            value(cursor, context).map(FilterOperation::IsDistinct)
        }
        _ => {
            if let Some(function) = fts(operator) {
                let config = if cursor.take("(") {
                    let config = ident(cursor, "identifier")?;
                    cursor.expect(")", "\")\"")?;
                    Some(config)
                } else {
                    None
                };
                delimiter(cursor)?;
                Ok(FilterOperation::Fts { function, config, value: value(cursor, context)? })
            } else if let Some(operator) = simple(operator) {
                delimiter(cursor)?;
                Ok(FilterOperation::Simple(operator, value(cursor, context)?))
            } else if let Some(operator) = quant(operator) {
                let quantifier = cursor.take_one_of(&[("(any)", Quantifier::Any), ("(all)", Quantifier::All)]);
                delimiter(cursor)?;
                Ok(FilterOperation::Quantified(operator, quantifier, value(cursor, context)?))
            } else {
                cursor.go_back(start);
                cursor.fail(OPERATOR)
            }
        }
    }
}

fn delimiter(cursor: &mut Cursor<'_>) -> Parsed<()> {
    cursor.expect(".", DELIMITER)
}

/// Parses a `list`. Spaces around the parentheses are not part of an element; spaces around commas
/// are.
fn list(cursor: &mut Cursor<'_>) -> Parsed<Vec<String>> {
    cursor.expect_between_spaces("(", "\"(\"")?;
    let mut elements = Vec::new();
    loop {
        let element = match quoted_before_separator(cursor) {
            Some(text) => text,
            None => cursor.take_while(|c| c != ',' && c != ')').to_owned(),
        };
        elements.push(element);
        if !cursor.take(",") {
            break;
        }
    }
    cursor.note("\",\"");
    cursor.expect(")", "\")\"")?;
    // `in.()` and `in.("")` are the empty set
    if matches!(elements.as_slice(), [only] if only.is_empty()) {
        elements.clear();
    }
    Ok(elements)
}

fn value(cursor: &mut Cursor<'_>, context: ValueContext) -> Parsed<String> {
    if context == ValueContext::RoutineParameter {
        return Ok(cursor.take_while(|_| true).to_owned());
    }
    if let Some(text) = quoted_before_separator(cursor) {
        return Ok(text);
    }
    if let Some(inside) = cursor.rest().strip_prefix('{') {
        let end = inside.find(['{', '}']);
        count_scanned(end.unwrap_or(inside.len()));
        let end = end.filter(|&end| inside[end..].starts_with('}'));
        if let Some(end) = end {
            let text = &cursor.rest()[..end + 2];
            cursor.skip(text.len());
            return Ok(text.to_owned());
        }
    }
    Ok(cursor.take_while(|c| c != ',' && c != ')').to_owned())
}

/// Parses a quoted text that is followed by `,` or `)`. Any other quote is an ordinary character.
fn quoted_before_separator(cursor: &mut Cursor<'_>) -> Option<String> {
    let rest = cursor.rest();
    if !rest.starts_with('"') {
        return None;
    }
    let (text, length) = scan_quoted(rest)?;
    if !rest[length..].starts_with([',', ')']) {
        return None;
    }
    cursor.skip(length);
    Some(text)
}

fn is_value(cursor: &mut Cursor<'_>) -> Parsed<IsValue> {
    let values = [
        ("null", IsValue::Null),
        ("not_null", IsValue::NotNull),
        ("true", IsValue::True),
        ("false", IsValue::False),
        ("unknown", IsValue::Unknown),
    ];
    let rest = cursor.rest().as_bytes();
    for (text, value) in values {
        if rest.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes())) {
            cursor.skip(text.len());
            return Ok(value);
        }
    }
    cursor.fail("isVal: (null, not_null, true, false, unknown)")
}

fn fts(text: &str) -> Option<Fts> {
    Some(match text {
        "fts" => Fts::Query,
        "plfts" => Fts::Plain,
        "phfts" => Fts::Phrase,
        "wfts" => Fts::Web,
        _ => return None,
    })
}

fn simple(text: &str) -> Option<SimpleOperator> {
    Some(match text {
        "neq" => SimpleOperator::NotEqual,
        "cs" => SimpleOperator::Contains,
        "cd" => SimpleOperator::ContainedBy,
        "ov" => SimpleOperator::Overlaps,
        "sl" => SimpleOperator::StrictlyLeft,
        "sr" => SimpleOperator::StrictlyRight,
        "nxr" => SimpleOperator::NotExtendsRight,
        "nxl" => SimpleOperator::NotExtendsLeft,
        "adj" => SimpleOperator::Adjacent,
        _ => return None,
    })
}

fn quant(text: &str) -> Option<QuantOperator> {
    Some(match text {
        "eq" => QuantOperator::Equal,
        "gte" => QuantOperator::GreaterOrEqual,
        "gt" => QuantOperator::Greater,
        "lte" => QuantOperator::LessOrEqual,
        "lt" => QuantOperator::Less,
        "like" => QuantOperator::Like,
        "ilike" => QuantOperator::ILike,
        "match" => QuantOperator::Match,
        "imatch" => QuantOperator::IMatch,
        _ => return None,
    })
}
