//! Values of default expressions.

use serde_json::{Value, json};

use super::types::kind;

/// Returns the value of a constant default expression. For a computed text, returns the expression
/// itself.
pub(super) fn value(expression: &str, base_type: &str) -> Option<Value> {
    let literal = literal(expression);
    match kind(base_type) {
        Some("string") => Some(literal.unwrap_or_else(|| without_cast(expression).to_owned()).into()),
        Some("array") => {
            let is_empty = literal.is_some_and(|text| text == "{}") || without_cast(expression) == "ARRAY[]";
            is_empty.then(|| json!([]))
        }
        kind => {
            let text = literal.unwrap_or_else(|| without_cast(expression).trim_matches(['(', ')']).to_owned());
            let value: Value = serde_json::from_str(&text).ok()?;
            let fits = match kind {
                Some("boolean") => value.is_boolean(),
                Some("integer") => value.is_i64() || value.is_u64(),
                Some("number") => value.is_number(),
                _ => true,
            };
            fits.then_some(value)
        }
    }
}

/// Returns the text of a quoted literal that is followed by casts only.
fn literal(expression: &str) -> Option<String> {
    let (text, escapes) = match expression.strip_prefix('E') {
        Some(text) => (text, true),
        None => (expression, false),
    };
    let inside = text.strip_prefix('\'')?;
    let mut literal = String::with_capacity(inside.len());
    let mut chars = inside.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_some() => literal.push('\''),
            '\'' => return is_cast(inside.get(at + 1..)?).then_some(literal),
            // The catalog writes such literals only for a backslash
            '\\' if escapes => literal.extend(chars.next().map(|(_, escaped)| escaped)),
            c => literal.push(c),
        }
    }
    None
}

/// Returns true for nothing, or `::character varying(12)`.
fn is_cast(text: &str) -> bool {
    let is_of_type = |c: char| c.is_alphanumeric() || " _.\",()[]:".contains(c);
    text.is_empty() || (text.starts_with("::") && text.chars().all(is_of_type))
}

/// Returns the expression without its last cast.
fn without_cast(expression: &str) -> &str {
    match expression.rfind("::") {
        Some(at) if expression.get(at..).is_some_and(is_cast) && !expression.ends_with(')') => {
            expression.get(..at).unwrap_or(expression)
        }
        _ => expression,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_defaults_are_values() {
        for (expression, base, expected) in [
            ("'english'::character varying", "character varying", Some(json!("english"))),
            ("'it''s; a::b'::text", "text", Some(json!("it's; a::b"))),
            (r"E'a\\b'::text", "text", Some(json!(r"a\b"))),
            ("now()", "timestamp with time zone", Some(json!("now()"))),
            ("('a'::text || 'b'::text)", "text", Some(json!("('a'::text || 'b'::text)"))),
            ("'2024-01-01'::date", "date", Some(json!("2024-01-01"))),
            ("nextval('public.a_seq'::regclass)", "integer", None),
            ("42", "integer", Some(json!(42))),
            ("'-1'::integer", "integer", Some(json!(-1))),
            ("(-1)", "integer", Some(json!(-1))),
            ("1.5", "integer", None),
            ("9.99", "numeric", Some(json!(9.99))),
            ("'9.5'::double precision", "double precision", Some(json!(9.5))),
            ("'NaN'::numeric", "numeric", None),
            ("true", "boolean", Some(json!(true))),
            ("'{\"a\": 1}'::jsonb", "jsonb", Some(json!({ "a": 1 }))),
            ("'{}'::text[]", "text[]", Some(json!([]))),
            ("ARRAY[]::text[]", "text[]", Some(json!([]))),
            ("'{a,b}'::text[]", "text[]", None),
            ("'never ended", "text", Some(json!("'never ended"))),
        ] {
            assert_eq!(value(expression, base), expected, "{expression}");
        }
    }
}
