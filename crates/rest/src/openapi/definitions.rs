//! The definitions: one object schema per relation.

use serde_json::{Map, Value, json};

use super::{defaults, types};
use crate::schema::{Column, Relation, RelationshipKind, SchemaCache};

/// Returns `definitions`.
pub(super) fn definitions(cache: &SchemaCache, relations: &[&Relation]) -> Value {
    relations.iter().map(|relation| (relation.name.name.clone(), definition(cache, relation))).collect()
}

fn definition(cache: &SchemaCache, relation: &Relation) -> Value {
    let mut definition = Map::new();
    if let Some(comment) = &relation.comment {
        definition.insert("description".into(), comment.clone().into());
    }
    let required: Vec<_> =
        relation.columns.values().filter(|column| !column.nullable).map(|column| column.name.clone()).collect();
    if !required.is_empty() {
        definition.insert("required".into(), required.into());
    }
    let properties = relation.columns.values().map(|column| (column.name.clone(), property(cache, relation, column)));
    definition.insert("properties".into(), properties.collect());
    definition.insert("type".into(), "object".into());
    Value::Object(definition)
}

fn property(cache: &SchemaCache, relation: &Relation, column: &Column) -> Value {
    let mut property = Map::new();
    if let Some(description) = description(cache, relation, column) {
        property.insert("description".into(), description.into());
    }
    types::put(&mut property, &column.base_type);
    if let Some(most) = column.max_length {
        property.insert("maxLength".into(), most.into());
    }
    if !column.enum_labels.is_empty() {
        property.insert("enum".into(), json!(column.enum_labels));
    }
    if let Some(default) = column.default.as_deref().and_then(|default| defaults::value(default, &column.base_type)) {
        property.insert("default".into(), default);
    }
    Value::Object(property)
}

/// Returns the comment, followed by notes on keys in the notation that tools parse.
fn description(cache: &SchemaCache, relation: &Relation, column: &Column) -> Option<String> {
    let mut notes = Vec::new();
    if relation.primary_key.contains(&column.name) {
        notes.push("This is a Primary Key.<pk/>".to_owned());
    }
    if let Some((table, key)) = foreign_key(cache, relation, &column.name) {
        notes.push(format!("This is a Foreign Key to `{table}.{key}`.<fk table='{table}' column='{key}'/>"));
    }
    let note = (!notes.is_empty()).then(|| format!("Note:\n{}", notes.join("\n")));
    match (&column.comment, note) {
        (Some(comment), Some(note)) => Some(format!("{comment}\n\n{note}")),
        (comment, note) => note.or_else(|| comment.clone()),
    }
}

/// Returns table and column that a foreign key of this single column refers to; a view of it only
/// if the table is not exposed.
fn foreign_key<'a>(cache: &'a SchemaCache, relation: &Relation, column: &str) -> Option<(&'a str, &'a str)> {
    let of_column = cache.relationships_of(&relation.name.schema, &relation.name.name).iter().filter_map(|known| {
        let columns = match &known.kind {
            RelationshipKind::ManyToOne { columns, .. }
            | RelationshipKind::OneToOne { columns, is_parent: false, .. } => columns,
            _ => return None,
        };
        match columns.as_slice() {
            [(own, key)] if own == column => Some((known, key)),
            _ => None,
        }
    });
    of_column
        .min_by_key(|(known, _)| known.target_is_view)
        .map(|(known, key)| (known.target.name.as_str(), key.as_str()))
}
