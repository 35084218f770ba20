//! PostgreSQL's types as types of the document.

use serde_json::{Map, Value};

/// Returns `type`; `None` for JSON, which may have any type.
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

/// Returns `format`: the width of an integer, otherwise the name of the type.
pub(super) fn format(base: &str) -> &str {
    match base {
        "smallint" | "integer" => "int32",
        "bigint" => "int64",
        other => other,
    }
}

/// Adds `type`, `items` and `format` of a value to a schema.
pub(super) fn put(schema: &mut Map<String, Value>, base: &str) {
    if let Some(kind) = kind(base) {
        schema.insert("type".into(), kind.into());
    }
    if let Some(element) = base.strip_suffix("[]") {
        schema.insert("items".into(), items(element));
    }
    schema.insert("format".into(), format(base).into());
}

/// Returns the schema of an array's elements, which is only their type.
pub(super) fn items(element: &str) -> Value {
    let mut items = Map::new();
    if let Some(kind) = kind(element) {
        items.insert("type".into(), kind.into());
    }
    Value::Object(items)
}
