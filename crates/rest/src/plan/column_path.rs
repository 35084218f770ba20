//! Columns with a path into their JSON.

use crate::query::{Field, JsonStep};
use crate::schema::Relation;

/// A column of a level's rows, or a value inside its JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnPath {
    /// The name of the column.
    pub name: String,
    /// The path into its JSON; empty for the whole value.
    pub json_path: Vec<JsonStep>,
    /// The column is not JSON and is converted before the path is followed.
    pub to_json: bool,
}

/// Returns the column of a field. The relation tells whether it is JSON.
pub(super) fn column_of(relation: Option<&Relation>, field: &Field) -> ColumnPath {
    let known = relation.and_then(|relation| relation.columns.get(&field.name));
    let is_json = known.is_some_and(|column| matches!(column.base_type.as_str(), "json" | "jsonb"));
    ColumnPath {
        name: field.name.clone(),
        json_path: field.json_path.clone(),
        to_json: !field.json_path.is_empty() && !is_json,
    }
}
