//! Parameters that operations share.

use serde_json::{Map, Value, json};

use super::fragments::reference;
use crate::schema::{Column, Relation};

/// Returns `parameters`.
pub(super) fn parameters(relations: &[&Relation]) -> Value {
    let mut parameters = Map::new();
    let returns = ["return=representation", "return=minimal", "return=none"];
    let resolutions = ["resolution=ignore-duplicates", "resolution=merge-duplicates"];
    let mut prefer = |name: &str, values: &[&str]| {
        let mut parameter = json!({
            "name": "Prefer",
            "description": "Preference",
            "required": false,
            "in": "header",
            "type": "string",
        });
        if !values.is_empty() {
            parameter["enum"] = json!(values);
        }
        parameters.insert(name.to_owned(), parameter);
    };
    prefer("preferParams", &[]);
    prefer("preferReturn", &returns);
    prefer("preferCount", &["count=none"]);
    prefer("preferPost", &[returns.as_slice(), resolutions.as_slice()].concat());
    for (name, own, description, location) in [
        ("select", "select", "Filtering Columns", "query"),
        ("on_conflict", "on_conflict", "On Conflict", "query"),
        ("order", "order", "Ordering", "query"),
        ("range", "Range", "Limiting and Pagination", "header"),
        ("rangeUnit", "Range-Unit", "Limiting and Pagination", "header"),
        ("offset", "offset", "Limiting and Pagination", "query"),
        ("limit", "limit", "Limiting and Pagination", "query"),
    ] {
        let mut parameter =
            json!({ "name": own, "description": description, "required": false, "in": location, "type": "string" });
        if name == "rangeUnit" {
            parameter["default"] = "items".into();
        }
        parameters.insert(name.to_owned(), parameter);
    }
    for relation in relations {
        let name = &relation.name.name;
        let body = json!({
            "name": name,
            "description": name,
            "required": false,
            "in": "body",
            "schema": reference("definitions", name),
        });
        parameters.insert(format!("body.{name}"), body);
        for column in relation.columns.values() {
            parameters.insert(row_filter_name(relation, column), row_filter(column));
        }
    }
    Value::Object(parameters)
}

/// Returns the name of the parameter that filters rows by a column.
pub(super) fn row_filter_name(relation: &Relation, column: &Column) -> String {
    format!("rowFilter.{}.{}", relation.name.name, column.name)
}

/// Makes the filter parameter of a column. Its value is an operator and a value, so it is always a
/// text.
fn row_filter(column: &Column) -> Value {
    let mut parameter = Map::new();
    parameter.insert("name".into(), column.name.clone().into());
    if let Some(comment) = &column.comment {
        parameter.insert("description".into(), comment.clone().into());
    }
    parameter.insert("required".into(), false.into());
    parameter.insert("format".into(), column.base_type.clone().into());
    parameter.insert("in".into(), "query".into());
    parameter.insert("type".into(), "string".into());
    Value::Object(parameter)
}
