//! The paths and their operations.

use serde_json::{Map, Value, json};

use super::fragments::{describe, reference};
use super::parameters::row_filter_name;
use super::types;
use crate::schema::{Relation, Routine, RoutineParameter, Volatility};

/// Returns `paths`.
pub(super) fn paths(relations: &[&Relation], routines: &[&Routine]) -> Value {
    let mut paths = Map::new();
    paths.insert("/".into(), json!({ "get": root() }));
    for relation in relations {
        paths.insert(format!("/{}", relation.name.name), of_relation(relation));
    }
    for routine in routines {
        paths.insert(format!("/rpc/{}", routine.name.name), of_routine(routine));
    }
    Value::Object(paths)
}

fn root() -> Value {
    json!({
        "tags": ["Introspection"],
        "summary": "OpenAPI description (this document)",
        "produces": ["application/openapi+json", "application/json"],
        "responses": { "200": { "description": "OK" } },
    })
}

fn of_relation(relation: &Relation) -> Value {
    let name = &relation.name.name;
    let filters: Vec<Value> =
        relation.columns.values().map(|column| reference("parameters", &row_filter_name(relation, column))).collect();
    let shared = |names: &[&str]| -> Vec<Value> { names.iter().map(|name| reference("parameters", name)).collect() };
    let body = || vec![reference("parameters", &format!("body.{name}"))];
    let operation = |parameters: Vec<Vec<Value>>, responses: Value| {
        let mut operation = Map::new();
        operation.insert("tags".into(), json!([name]));
        describe(&mut operation, relation.comment.as_deref());
        operation.insert("parameters".into(), parameters.concat().into());
        operation.insert("responses".into(), responses);
        Value::Object(operation)
    };

    let mut path = Map::new();
    let rows = json!({ "type": "array", "items": reference("definitions", name) });
    path.insert(
        "get".into(),
        operation(
            vec![filters.clone(), shared(&["select", "order", "range", "rangeUnit", "offset", "limit", "preferCount"])],
            json!({ "200": { "description": "OK", "schema": rows }, "206": { "description": "Partial Content" } }),
        ),
    );
    if relation.insertable || relation.updatable || relation.deletable {
        let created = json!({ "201": { "description": "Created" } });
        path.insert("post".into(), operation(vec![body(), shared(&["select", "preferPost"])], created));
        let done = json!({ "204": { "description": "No Content" } });
        path.insert("delete".into(), operation(vec![filters.clone(), shared(&["preferReturn"])], done.clone()));
        path.insert("patch".into(), operation(vec![filters, body(), shared(&["preferReturn"])], done));
    }
    Value::Object(path)
}

fn of_routine(routine: &Routine) -> Value {
    let mut path = Map::new();
    if routine.volatility != Volatility::Volatile {
        let parameters = named(routine).map(query_parameter).collect();
        path.insert("get".into(), call(routine, parameters));
    }
    path.insert("post".into(), call(routine, vec![arguments(routine), reference("parameters", "preferParams")]));
    Value::Object(path)
}

fn call(routine: &Routine, parameters: Vec<Value>) -> Value {
    let mut operation = Map::new();
    operation.insert("tags".into(), json!([format!("(rpc) {}", routine.name.name)]));
    describe(&mut operation, routine.comment.as_deref());
    operation.insert(
        "produces".into(),
        json!([
            "application/json",
            "application/vnd.pgrst.object+json;nulls=stripped",
            "application/vnd.pgrst.object+json",
        ]),
    );
    operation.insert("parameters".into(), parameters.into());
    operation.insert("responses".into(), json!({ "200": { "description": "OK" } }));
    Value::Object(operation)
}

/// Returns the parameters that can be passed by name. An unnamed one takes the whole body.
fn named(routine: &Routine) -> impl Iterator<Item = &RoutineParameter> {
    routine.parameters.iter().filter(|parameter| !parameter.name.is_empty())
}

fn query_parameter(parameter: &RoutineParameter) -> Value {
    let mut shown = Map::new();
    shown.insert("name".into(), parameter.name.clone().into());
    shown.insert("in".into(), "query".into());
    shown.insert("required".into(), parameter.required.into());
    match parameter.sql_type.strip_suffix("[]").filter(|_| parameter.variadic) {
        Some(element) => {
            // The value of each repetition is one element
            shown.insert("type".into(), "array".into());
            shown.insert("items".into(), json!({ "type": scalar(element), "format": types::format(element) }));
            shown.insert("collectionFormat".into(), "multi".into());
        }
        None => {
            shown.insert("type".into(), scalar(&parameter.sql_type).into());
            shown.insert("format".into(), types::format(&parameter.sql_type).into());
        }
    }
    Value::Object(shown)
}

/// Returns the type in a query string, where arrays and JSON are texts.
fn scalar(sql_type: &str) -> &'static str {
    types::kind(sql_type).filter(|kind| *kind != "array").unwrap_or("string")
}

fn arguments(routine: &Routine) -> Value {
    let mut schema = Map::new();
    if let Some(comment) = &routine.comment {
        schema.insert("description".into(), comment.clone().into());
    }
    let required: Vec<_> =
        named(routine).filter(|parameter| parameter.required).map(|parameter| parameter.name.clone()).collect();
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    let properties = named(routine).map(|parameter| {
        let mut property = Map::new();
        types::put(&mut property, &parameter.sql_type);
        (parameter.name.clone(), Value::Object(property))
    });
    schema.insert("properties".into(), properties.collect());
    schema.insert("type".into(), "object".into());
    json!({ "name": "args", "in": "body", "required": true, "schema": schema })
}
