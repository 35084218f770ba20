//! Renders values as JSON, from PostgreSQL's text form.

use std::borrow::Cow;

use super::array::{ArrayToken, read_array};
use super::document::write_document;
use super::error::ValueRenderError;
use super::json_string::write_string;
use super::number::{is_not_a_number, write_number};
use super::row::read_row;
use super::shape::{Attribute, Shape, key_order};

/// The maximum nesting of composite values and arrays in each other.
const MAX_DEPTH: usize = 64;

/// Writes the value of a column, as `to_jsonb` renders it with two exceptions: `bytea` is in
/// hexadecimal without a prefix, and a number that JSON does not have is null.
///
/// # Errors
/// [`ValueRenderError`]; nothing useful is written then.
pub(crate) fn write_column(out: &mut Vec<u8>, shape: &Shape, text: &str) -> Result<(), ValueRenderError> {
    match shape {
        Shape::Bytes => {
            write_string(out, text.strip_prefix("\\x").unwrap_or(text));
            Ok(())
        }
        Shape::Number | Shape::Float if is_not_a_number(text) => {
            out.extend_from_slice(b"null");
            Ok(())
        }
        _ => write_value(out, shape, text, 0),
    }
}

/// Writes a value inside of another as `to_jsonb` renders it.
fn write_value(out: &mut Vec<u8>, shape: &Shape, text: &str, depth: usize) -> Result<(), ValueRenderError> {
    if depth > MAX_DEPTH {
        return Err(ValueRenderError::TooDeep);
    }
    match shape {
        Shape::Boolean => match text {
            "t" => out.extend_from_slice(b"true"),
            "f" => out.extend_from_slice(b"false"),
            _ => return Err(ValueRenderError::Malformed("boolean")),
        },
        Shape::Number | Shape::Float if is_not_a_number(text) => write_string(out, text),
        Shape::Number | Shape::Float => write_number(out, text)?,
        Shape::Text | Shape::Bytes => write_string(out, text),
        // A space in a date, `infinity` and the suffix `BC` are not between a date and a time
        Shape::Timestamp => write_string(out, &with_letter(text)),
        Shape::TimestampWithZone => write_string(out, &with_minutes(&with_letter(text))),
        Shape::Json => write_document(out, text),
        Shape::Jsonb => out.extend_from_slice(text.as_bytes()),
        Shape::Array { element, delimiter } => write_array(out, element, *delimiter, text, depth)?,
        Shape::Vector(element) => {
            out.push(b'[');
            for (at, text) in text.split_ascii_whitespace().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_value(out, element, text, depth + 1)?;
            }
            out.push(b']');
        }
        Shape::Composite(attributes) => write_object(out, attributes, text, depth)?,
        Shape::Cast => return Err(ValueRenderError::NeedsCast),
    }
    Ok(())
}

fn write_array(
    out: &mut Vec<u8>,
    element: &Shape,
    delimiter: u8,
    text: &str,
    depth: usize,
) -> Result<(), ValueRenderError> {
    let mut needs_comma = false;
    read_array(text, delimiter, |token| {
        if needs_comma && token != ArrayToken::Close {
            out.push(b',');
        }
        needs_comma = token != ArrayToken::Open;
        match token {
            ArrayToken::Open => out.push(b'['),
            ArrayToken::Close => out.push(b']'),
            ArrayToken::Null => out.extend_from_slice(b"null"),
            ArrayToken::Element(text) => write_value(out, element, &text, depth + 1)?,
        }
        Ok(())
    })
}

fn write_object(out: &mut Vec<u8>, attributes: &[Attribute], text: &str, depth: usize) -> Result<(), ValueRenderError> {
    let values = read_row(text)?;
    // The text of a row without attributes is that of one null
    if values.len() != attributes.len().max(1) {
        return Err(ValueRenderError::AttributeCount);
    }
    let mut entries: Vec<_> = attributes.iter().zip(&values).collect();
    entries.sort_by(|(left, _), (right, _)| key_order(&left.name, &right.name));
    out.push(b'{');
    for (at, (attribute, value)) in entries.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, &attribute.name);
        out.push(b':');
        match value {
            Some(text) => write_value(out, &attribute.shape, text, depth + 1)?,
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
    Ok(())
}

/// Puts the letter T between a date and a time.
fn with_letter(text: &str) -> Cow<'_, str> {
    // `infinity` has no space, and the suffix `BC` comes behind the time
    match text.split_once(' ') {
        Some((date, time)) => Cow::Owned(format!("{date}T{time}")),
        None => Cow::Borrowed(text),
    }
}

/// Adds the minutes to an offset that has only hours: `+00` becomes `+00:00`.
fn with_minutes(text: &str) -> Cow<'_, str> {
    let (time, era) = match text.split_once(' ') {
        Some((time, era)) => (time, Some(era)),
        None => (text, None),
    };
    let hours = time.split_once('T').and_then(|(_, time)| time.rsplit_once(['+', '-'])).map(|(_, hours)| hours);
    match (hours, era) {
        (Some(hours), era) if !hours.contains(':') => {
            let era = era.map(|era| format!(" {era}")).unwrap_or_default();
            Cow::Owned(format!("{time}:00{era}"))
        }
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use proptest::prelude::*;

    fn render(shape: &Shape, text: &str) -> Result<String, ValueRenderError> {
        let mut out = Vec::new();
        write_column(&mut out, shape, text)?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn array(element: Shape) -> Shape {
        Shape::Array { element: Arc::new(element), delimiter: b',' }
    }

    fn pair() -> Shape {
        let attribute = |name: &str, shape| Attribute { name: name.into(), shape: Arc::new(shape) };
        Shape::Composite([attribute("yy", array(Shape::Float)), attribute("x", Shape::Timestamp)].into())
    }

    #[test]
    fn values_are_rendered_by_their_shape() {
        for (shape, text, json) in [
            (Shape::Boolean, "t", "true"),
            (Shape::Number, "9223372036854775807", "9223372036854775807"),
            (Shape::Number, "NaN", "null"),
            (Shape::Float, "-Infinity", "null"),
            (Shape::Float, "1e+20", "100000000000000000000"),
            (Shape::Text, "a\"b\\\n\u{1}é", r#""a\"b\\\n\u0001é""#),
            (Shape::Bytes, "\\xdeadbeef", r#""deadbeef""#),
            (Shape::Timestamp, "2024-02-29 13:14:15.123456", r#""2024-02-29T13:14:15.123456""#),
            (Shape::Timestamp, "infinity", r#""infinity""#),
            (Shape::Timestamp, "0044-03-15 00:00:00 BC", r#""0044-03-15T00:00:00 BC""#),
            (Shape::TimestampWithZone, "2024-02-29 11:14:15+00", r#""2024-02-29T11:14:15+00:00""#),
            (Shape::TimestampWithZone, "2024-02-29 11:14:15-03:30", r#""2024-02-29T11:14:15-03:30""#),
            (Shape::TimestampWithZone, "0044-03-15 00:00:00+00 BC", r#""0044-03-15T00:00:00+00:00 BC""#),
            (Shape::TimestampWithZone, "-infinity", r#""-infinity""#),
            (Shape::Jsonb, r#"{"a": 1}"#, r#"{"a": 1}"#),
            (Shape::Json, r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (Shape::Vector(Arc::new(Shape::Number)), "1 2", "[1,2]"),
            (array(Shape::Number), "{{1,NULL},{NaN,4}}", r#"[[1,null],["NaN",4]]"#),
            (array(Shape::Bytes), r#"{"\\x00"}"#, r#"["\\x00"]"#),
            (array(Shape::Number), "{}", "[]"),
            (pair(), r#"("{1.5,NULL}","2024-02-29 13:14:15")"#, r#"{"x":"2024-02-29T13:14:15","yy":[1.5,null]}"#),
            (array(pair()), r#"{"(,)",NULL}"#, r#"[{"x":null,"yy":null},null]"#),
            (Shape::Composite([].into()), "()", "{}"),
        ] {
            assert_eq!(render(&shape, text).as_deref(), Ok(json), "{shape:?} {text}");
        }
        assert_eq!(render(&pair(), "(,,)"), Err(ValueRenderError::AttributeCount));
        assert_eq!(render(&array(Shape::Cast), "{a}"), Err(ValueRenderError::NeedsCast));
    }

    proptest! {
        #[test]
        fn rendered_numbers_are_json(text in r"-?[01.]{0,6}(e[+-]?[0-9]{1,3})?") {
            if let Ok(json) = render(&Shape::Number, &text) {
                let parsed: Result<serde_json::Value, _> = serde_json::from_str(&json);
                prop_assert!(parsed.is_ok() || json.len() > 300, "{text}: {json}");
            }
        }

        #[test]
        fn rendered_text_of_any_shape_is_json(text in r#"[\[{(]?[{}(),"\\ a01eEé=.:+\-TN;xt]{0,40}"#) {
            let shapes = [
                Shape::Boolean, Shape::Number, Shape::Float, Shape::Text, Shape::Bytes, Shape::Timestamp,
                Shape::TimestampWithZone, array(Shape::Float), array(pair()), pair(),
                Shape::Vector(Arc::new(Shape::Number)),
            ];
            for shape in shapes {
                if let Ok(json) = render(&shape, &text) {
                    let parsed: Result<serde_json::Value, _> = serde_json::from_str(&json);
                    prop_assert!(parsed.is_ok(), "{shape:?} {text}: {json}");
                }
            }
        }
    }
}
