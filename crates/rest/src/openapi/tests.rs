//! Tests of the document's parts. A snapshot of the integration tests covers a whole document.

use serde_json::{Value, json};

use super::document::{DocumentSource, document};
use super::privileges::VisibleObjects;
use crate::schema::SchemaCache;
use crate::schema::testing::cinema;

fn of(visible: &VisibleObjects) -> Value {
    document(&DocumentSource {
        cache: &cinema(),
        schema: "public",
        comment: Some("The cinema\n\nFilms, people\nand orders"),
        visible,
        security: false,
        address: "https://example.com/rest/v1",
        version: "14.12",
    })
}

#[test]
fn the_document_has_name_address_and_version() {
    let document = of(&VisibleObjects::Everything);
    assert_eq!(document["swagger"], "2.0");
    assert_eq!(
        document["info"],
        json!({ "title": "The cinema", "description": "Films, people\nand orders", "version": "14.12" })
    );
    assert_eq!((&document["host"], &document["basePath"]), (&json!("example.com:443"), &json!("/rest/v1")));
    assert_eq!(document["schemes"], json!(["https"]));
    assert!(document.get("security").is_none() && document.get("securityDefinitions").is_none());
}

#[test]
fn keys_are_noted_for_tools() {
    let films = &of(&VisibleObjects::Everything)["definitions"]["films"];
    assert_eq!(
        films["properties"]["id"],
        json!({ "description": "Note:\nThis is a Primary Key.<pk/>", "type": "integer", "format": "int32" })
    );
    assert_eq!(
        films["properties"]["director_id"]["description"],
        "Note:\nThis is a Foreign Key to `directors.id`.<fk table='directors' column='id'/>"
    );
    assert_eq!(
        films["properties"]["tags"],
        json!({ "type": "array", "items": { "type": "string" }, "format": "text[]", "default": [] })
    );
    assert_eq!(films["properties"]["mood"]["enum"], json!(["sad", "calm", "happy"]));
    assert_eq!(films["properties"]["meta"], json!({ "format": "jsonb" }));
    assert_eq!(films["properties"]["language"]["maxLength"], 12);
    assert_eq!(films["properties"]["language"]["default"], "english");
    assert_eq!(films["required"], json!(["id", "title", "tags"]));
}

#[test]
fn only_writable_relations_have_paths_for_writes() {
    let document = of(&VisibleObjects::Everything);
    let methods = |path: &str| document["paths"][path].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(methods("/films"), ["get", "post", "delete", "patch"]);
    assert_eq!(methods("/anybody"), ["get"]);
    assert_eq!(methods("/film_stats"), ["get"]);
    assert_eq!(methods("/"), ["get"]);
}

#[test]
fn references_have_targets() {
    let document = of(&VisibleObjects::Everything);
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = percent_encoding::percent_decode_str(reference.trim_start_matches('#')).decode_utf8().unwrap();
        assert!(document.pointer(&pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            references.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|value| collect(value, references));
        }
        Value::Array(array) => array.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}

#[test]
fn objects_that_the_role_may_not_use_are_hidden() {
    let cache = cinema();
    let welcome = cache.routines_named("public", "welcome")[0].oid;
    let visible =
        VisibleObjects::Only { relations: ["films".to_owned(), "else".to_owned()].into(), functions: [welcome].into() };
    let document = of(&visible);
    let names = |key: &str| document[key].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names("paths"), ["/", "/films", "/rpc/welcome"]);
    assert_eq!(names("definitions"), ["films"]);
    assert!(!names("parameters").iter().any(|name| name.starts_with("rowFilter.actors")));
}

#[test]
fn arguments_are_shown_for_both_methods() {
    let document = of(&VisibleObjects::Everything);
    let sum = &document["paths"]["/rpc/sum_of"];
    assert_eq!(sum["get"]["parameters"][0]["collectionFormat"], "multi");
    assert_eq!(sum["get"]["parameters"][0]["items"], json!({ "type": "integer", "format": "int32" }));
    let body = &sum["post"]["parameters"][0];
    assert_eq!((&body["name"], &body["in"]), (&json!("args"), &json!("body")));
    assert_eq!(sum["post"]["parameters"][1], json!({ "$ref": "#/parameters/preferParams" }));
    assert_eq!(sum["get"]["tags"], json!(["(rpc) sum_of"]));
    assert!(document["paths"]["/rpc/book_guest"].get("get").is_none(), "it writes");
}

#[test]
fn security_is_described_if_enabled() {
    let document = document(&DocumentSource {
        cache: &SchemaCache::default(),
        schema: "public",
        comment: None,
        visible: &VisibleObjects::Everything,
        security: true,
        address: "http://127.0.0.1:54321",
        version: "14.12",
    });
    assert_eq!(document["security"], json!([{ "JWT": [] }]));
    assert_eq!(document["securityDefinitions"]["JWT"]["type"], "apiKey");
    assert_eq!(document["info"]["title"], "PostgREST API");
    assert_eq!(document["info"]["description"], "This is a dynamic API generated by PostgREST");
    assert_eq!(document["basePath"], "/");
}
