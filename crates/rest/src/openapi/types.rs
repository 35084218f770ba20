//! Types of PostgreSQL in the document's terms.

use serde_json::{Map, Value};

/// `type`; none for JSON, which may be anything.
pub(super) fn kind(base: &str) -> Option<&'static str> {
    match base {
        "boolean" => Some("boolean"),
        "smallint" | "integer" | "bigint" => Some("integer"),
        "numeric" | "real" | "double precision" => Some("number"),
        "json" | "jsonb" => None,
        array if array.ends_with("[]") => Some("array"),
        _ => Some("string"),
    }
}

/// `format`: how wide an integer is, else the type's own name.
pub(super) fn format(base: &str) -> &str {
    match base {
        "smallint" | "integer" => "int32",
        "bigint" => "int64",
        other => other,
    }
}

/// Puts `type`, `items` and `format` of a value into a schema.
pub(super) fn put(schema: &mut Map<String, Value>, base: &str) {
    if let Some(kind) = kind(base) {
        schema.insert("type".into(), kind.into());
    }
    if let Some(element) = base.strip_suffix("[]") {
        schema.insert("items".into(), items(element));
    }
    schema.insert("format".into(), format(base).into());
}

/// The schema of an array's elements: only their type.
pub(super) fn items(element: &str) -> Value {
    let mut items = Map::new();
    if let Some(kind) = kind(element) {
        items.insert("type".into(), kind.into());
    }
    Value::Object(items)
}
