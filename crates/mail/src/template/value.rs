//! The semantics of values in a template: truth, fields, order and printed form.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Returns true if a value counts as true: it is not null, zero or empty.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Follows a path of fields. A field that is missing, or of something without fields, is nothing:
/// what a person's metadata holds is not for the template's author to know.
pub(super) fn field<'v>(value: &'v Value, path: &[String]) -> &'v Value {
    path.iter().fold(value, |value, name| value.get(name.as_str()).unwrap_or(&Value::Null))
}

pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => numbers(left, right) == Some(Ordering::Equal),
        _ => left == right,
    }
}

/// Returns the order of two numbers or two texts; `None` for anything else.
pub(super) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => numbers(left, right),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn numbers(left: &Number, right: &Number) -> Option<Ordering> {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// Appends a value as Go prints it: `map[a:1 b:2]`, `[1 2]`, texts as they are. Stops after `limit`
/// bytes.
pub(super) fn print(value: &Value, out: &mut String, limit: usize) {
    if out.len() > limit {
        return;
    }
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                print(item, out, limit);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                print(value, out, limit);
            }
            out.push(']');
        }
    }
}

/// Returns a number as a person writes it: whole ones without a fraction or an exponent.
pub(super) fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if !number.is_i64() && !number.is_u64() && float.fract() == 0.0 && float.abs() < 1e21 => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}
