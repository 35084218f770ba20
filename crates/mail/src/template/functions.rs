//! The functions that templates can call.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::Value;

use super::{escape, printf, value};

/// A function of Go's template language. Its method and function calls have no counterpart:
/// variables are data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    And,
    Or,
    Not,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Len,
    Index,
    Slice,
    Print,
    Println,
    Printf,
    Html,
    Js,
    UrlQuery,
}

const NAMES: [(&str, Function); 18] = [
    ("and", Function::And),
    ("or", Function::Or),
    ("not", Function::Not),
    ("eq", Function::Eq),
    ("ne", Function::Ne),
    ("lt", Function::Lt),
    ("le", Function::Le),
    ("gt", Function::Gt),
    ("ge", Function::Ge),
    ("len", Function::Len),
    ("index", Function::Index),
    ("slice", Function::Slice),
    ("print", Function::Print),
    ("println", Function::Println),
    ("printf", Function::Printf),
    ("html", Function::Html),
    ("js", Function::Js),
    ("urlquery", Function::UrlQuery),
];

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| name)
    }

    /// Applies the function. `and` and `or`, which evaluate no more than they need, are the
    /// runner's matter; here they choose among values that exist already.
    ///
    /// # Errors
    ///
    /// A text that says what the function cannot take.
    pub(super) fn apply(self, arguments: &[Cow<'_, Value>], limit: usize) -> Result<Value, String> {
        let first = || arguments.first().ok_or_else(|| "too few arguments".to_owned());
        let pair = || match arguments {
            [left, right] => Ok((left.as_ref(), right.as_ref())),
            _ => Err("two arguments are needed".to_owned()),
        };
        let ordered = |accept: fn(Ordering) -> bool| {
            let (left, right) = pair()?;
            match value::order(left, right) {
                Some(order) => Ok(Value::Bool(accept(order))),
                None => Err("only two numbers or two texts can be compared".to_owned()),
            }
        };
        let joined = |out: &mut String| {
            let mut text = String::new();
            print(arguments, &mut text, limit);
            std::mem::swap(out, &mut text);
        };
        let mut text = String::new();
        match self {
            Self::And => Ok(first()
                .map(|_| arguments.iter().find(|item| !value::is_true(item)).or(arguments.last()))?
                .map_or(Value::Null, |item| item.as_ref().clone())),
            Self::Or => Ok(first()
                .map(|_| arguments.iter().find(|item| value::is_true(item)).or(arguments.last()))?
                .map_or(Value::Null, |item| item.as_ref().clone())),
            Self::Not => Ok(Value::Bool(!value::is_true(first()?))),
            Self::Eq => {
                let left = first()?;
                if arguments.len() < 2 {
                    return Err("two arguments are needed".to_owned());
                }
                Ok(Value::Bool(arguments[1..].iter().any(|right| value::equal(left, right))))
            }
            Self::Ne => pair().map(|(left, right)| Value::Bool(!value::equal(left, right))),
            Self::Lt => ordered(Ordering::is_lt),
            Self::Le => ordered(Ordering::is_le),
            Self::Gt => ordered(Ordering::is_gt),
            Self::Ge => ordered(Ordering::is_ge),
            Self::Len => length(first()?),
            Self::Index => Ok(index(first()?, &arguments[1..])),
            Self::Slice => slice(first()?, &arguments[1..]),
            Self::Print => {
                joined(&mut text);
                Ok(Value::String(text))
            }
            Self::Println => {
                for (position, argument) in arguments.iter().enumerate() {
                    if position > 0 {
                        text.push(' ');
                    }
                    value::print(argument, &mut text, limit);
                }
                text.push('\n');
                Ok(Value::String(text))
            }
            Self::Printf => match first()?.as_ref() {
                Value::String(format) => Ok(Value::String(printf::printf(format, &arguments[1..], limit))),
                _ => Err("the format must be a text".to_owned()),
            },
            Self::Html => {
                joined(&mut text);
                Ok(Value::String(escape::html(&text)))
            }
            Self::Js => {
                joined(&mut text);
                Ok(Value::String(escape::js_string(&text)))
            }
            Self::UrlQuery => {
                joined(&mut text);
                Ok(Value::String(escape::url_query(&text)))
            }
        }
    }
}

/// Prints arguments as Go's `fmt.Sprint`: a space between two that are both no text.
fn print(arguments: &[Cow<'_, Value>], out: &mut String, limit: usize) {
    for (position, argument) in arguments.iter().enumerate() {
        if position > 0 && !argument.is_string() && !arguments[position - 1].is_string() {
            out.push(' ');
        }
        value::print(argument, out, limit);
    }
}

fn length(of: &Value) -> Result<Value, String> {
    Ok(Value::from(match of {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) => return Err("a number has no length".to_owned()),
    }))
}

fn index(of: &Value, path: &[Cow<'_, Value>]) -> Value {
    let mut current = of;
    for step in path {
        let next = match (current, step.as_ref()) {
            (Value::Object(fields), Value::String(name)) => fields.get(name),
            (Value::Array(items), Value::Number(position)) => {
                position.as_u64().and_then(|position| items.get(usize::try_from(position).ok()?))
            }
            _ => None,
        };
        match next {
            Some(next) => current = next,
            None => return Value::Null,
        }
    }
    current.clone()
}

fn slice(of: &Value, bounds: &[Cow<'_, Value>]) -> Result<Value, String> {
    let bound = |position: usize, otherwise: usize| match bounds.get(position) {
        None => Ok(otherwise),
        Some(bound) => bound
            .as_u64()
            .and_then(|bound| usize::try_from(bound).ok())
            .ok_or_else(|| "a bound must be a number".to_owned()),
    };
    let outside = || "a bound lies outside".to_owned();
    match of {
        Value::String(text) => {
            let (from, to) = (bound(0, 0)?, bound(1, text.len())?);
            text.get(from..to).map(|part| Value::String(part.to_owned())).ok_or_else(outside)
        }
        Value::Array(items) => {
            let (from, to) = (bound(0, 0)?, bound(1, items.len())?);
            items.get(from..to).map(|part| Value::Array(part.to_vec())).ok_or_else(outside)
        }
        _ => Err("only a text or a list can be cut".to_owned()),
    }
}
