//! The OpenAPI document.

use std::fmt::Write as _;

use ::http::Method;
use portico_rest::config::OpenApiMode;
use portico_rest::schema::QualifiedName;
use serde_json::{Value, json};

use crate::http::CinemaServer;

#[tokio::test]
async fn the_secret_key_reads_the_whole_document() {
    let server = CinemaServer::open().await;
    let response = server.secret("/").send().await.expect(200);
    assert_eq!(response.header("content-type"), Some("application/openapi+json; charset=utf-8"));
    assert_eq!(response.header("content-profile"), Some("public"));
    assert_eq!(response.header("server"), Some("postgrest/14.12"));
    insta::assert_snapshot!(shown(&response.json()));
}

/// Prints the document, one line for each object in it, with references and the common part of
/// functions abbreviated.
fn shown(document: &Value) -> String {
    let references = regex::Regex::new(r##"\{"\$ref":"#/(?:parameters/)?([^"]*)"\}"##).unwrap();
    let produces = r#""produces":["application/json","application/vnd.pgrst.object+json;nulls=stripped","application/vnd.pgrst.object+json"]"#;
    references.replace_all(&lines(document), "<$1>").replace(produces, "<produces>")
}

fn lines(document: &Value) -> String {
    let mut text = String::new();
    for (section, value) in document.as_object().unwrap() {
        match (section.as_str(), value) {
            ("paths" | "parameters" | "definitions", Value::Object(entries)) => {
                let _ = writeln!(text, "{section}:");
                entries.iter().for_each(|(name, entry)| show_entry(&mut text, section, name, entry));
            }
            _ => {
                let _ = writeln!(text, "{section}: {value}");
            }
        }
    }
    text
}

fn show_entry(text: &mut String, section: &str, name: &str, entry: &Value) {
    if section == "parameters" {
        let _ = writeln!(text, "  {name}: {entry}");
        return;
    }
    let _ = writeln!(text, "  {name}:");
    for (key, value) in entry.as_object().unwrap() {
        match value {
            Value::Object(inner) if key == "properties" => {
                inner.iter().for_each(|(column, property)| writeln!(text, "    .{column}: {property}").unwrap());
            }
            _ => {
                let _ = writeln!(text, "    {key}: {value}");
            }
        }
    }
}

#[tokio::test]
async fn type_generators_find_what_they_need() {
    let server = CinemaServer::open().await;
    let document = server.secret("/").header("accept", "application/openapi+json").send().await.expect(200).json();
    let version = document["info"]["version"].as_str().unwrap();
    assert!(version.starts_with("14."), "clients lose features with {version}");
    let roles = &document["definitions"]["roles"]["properties"];
    assert_eq!(
        roles["film_id"]["description"],
        "Note:\nThis is a Primary Key.<pk/>\nThis is a Foreign Key to `films.id`.<fk table='films' column='id'/>"
    );
    assert_eq!(document["definitions"]["films"]["properties"]["title"]["description"], "As on the poster");
    // A view shows the keys of the table below it
    let view = &document["definitions"]["film_list"]["properties"];
    assert_eq!(view["id"]["description"], "Note:\nThis is a Primary Key.<pk/>");
    assert!(view["director_id"]["description"].as_str().unwrap().contains("<fk table='directors' column='id'/>"));
}

#[tokio::test]
async fn other_callers_are_rejected_if_only_the_secret_key_may_read_the_document() {
    let server = CinemaServer::open().await;
    let expected = json!({
        "message": "Access to schema is forbidden",
        "hint": "Accessing the schema via the Data API is only allowed using a secret API key.",
    });
    assert_eq!(server.public("/").send().await.expect(401).json(), expected);
    let ann = server.member("ann@example.com").await;
    assert_eq!(ann.sends(server.public("/")).send().await.expect(401).json(), expected);
    ann.sends(server.secret("/")).send().await.expect(200);
    // Paths below the root stay open
    server.public("/films?limit=1").send().await.expect(200);
    let options = server.request(Method::OPTIONS, "/rest/v1/").key(server.api_keys().publishable());
    assert_eq!(options.send().await.expect(200).header("allow"), Some("OPTIONS,GET,HEAD"));
}

#[tokio::test]
async fn the_document_shows_the_objects_that_the_role_may_use() {
    let server = CinemaServer::with(|config| config.openapi_secret_key_only = false).await;
    let has = |document: &Value, path: &str| document["paths"].get(path).is_some();
    let anonymous = server.public("/").send().await.expect(200).json();
    assert!(has(&anonymous, "/films") && has(&anonymous, "/rpc/hello"));
    assert!(has(&anonymous, "/partly_secret"), "a privilege on a column is enough");
    for hidden in ["/secrets", "/notes", "/rpc/forbidden"] {
        assert!(!has(&anonymous, hidden), "{hidden}");
    }
    assert!(anonymous["definitions"].get("secrets").is_none());
    assert!(!anonymous["parameters"].as_object().unwrap().keys().any(|name| name.contains("secrets.")));

    let ann = server.member("ann@example.com").await;
    let signed_in = ann.sends(server.public("/")).send().await.expect(200).json();
    assert!(has(&signed_in, "/notes") && !has(&signed_in, "/secrets"));

    // A grant is effective at once, without a reload
    server
        .execute("grant select on public.secrets to anon; revoke execute on function public.hello() from public, anon")
        .await;
    let anonymous = server.public("/").send().await.expect(200).json();
    assert!(has(&anonymous, "/secrets") && !has(&anonymous, "/rpc/hello"));
}

#[tokio::test]
async fn privileges_can_be_ignored() {
    let server = CinemaServer::with(|config| {
        config.openapi_secret_key_only = false;
        config.openapi_mode = OpenApiMode::IgnorePrivileges;
    })
    .await;
    let document = server.public("/").send().await.expect(200).json();
    assert!(document["paths"].get("/secrets").is_some() && document["paths"].get("/rpc/forbidden").is_some());
    assert_eq!(document["info"]["title"], "The cinema");
}

#[tokio::test]
async fn the_profile_selects_the_schema_of_the_document() {
    let server = CinemaServer::open().await;
    let response = server.secret("/").header("accept-profile", "archive").send().await.expect(200);
    assert_eq!(response.header("content-profile"), Some("archive"));
    let document = response.json();
    assert!(document["paths"].get("/boxes").is_some() && document["paths"].get("/directors").is_none());
    assert_eq!(document["info"]["title"], "PostgREST API");
    assert_eq!(document["info"]["description"], "This is a dynamic API generated by PostgREST");
    let refused = server.secret("/").header("accept-profile", "private").send().await;
    assert_eq!(refused.rejection(), (406, "PGRST106".into()));
}

#[tokio::test]
async fn the_document_has_one_media_type_and_two_methods() {
    let server = CinemaServer::open().await;
    for accepted in ["application/openapi+json", "application/json", "*/*", "text/csv, */*;q=0.1"] {
        let response = server.secret("/").header("accept", accepted).send().await.expect(200);
        assert_eq!(response.header("content-type"), Some("application/openapi+json; charset=utf-8"), "{accepted}");
    }
    let refused = server.secret("/").header("accept", "text/csv,image/png").send().await;
    assert_eq!(refused.json()["message"], "None of these media types are available: text/csv, image/png");
    assert_eq!(refused.rejection(), (406, "PGRST107".into()));
    let refused = server.secret("/films").header("accept", "application/openapi+json").send().await;
    assert_eq!(refused.rejection(), (406, "PGRST107".into()));

    let head = server.request(Method::HEAD, "/rest/v1/").key(server.api_keys().secret()).send().await.expect(200);
    assert_eq!(head.header("content-type"), Some("application/openapi+json; charset=utf-8"));
    assert!(head.body.is_empty());
    for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
        let refused = server.request(method.clone(), "/rest/v1/").key(server.api_keys().secret()).send().await;
        assert_eq!(refused.json()["message"], format!("Unsupported HTTP method: {method}"));
        assert_eq!(refused.rejection(), (405, "PGRST117".into()));
    }
}

#[tokio::test]
async fn the_document_can_be_disabled() {
    let server = CinemaServer::with(|config| config.openapi_mode = OpenApiMode::Disabled).await;
    for method in [Method::GET, Method::POST] {
        let refused = server.request(method, "/rest/v1/").key(server.api_keys().secret()).send().await;
        assert_eq!(refused.json()["message"], "Root endpoint metadata is disabled");
        assert_eq!(refused.rejection(), (404, "PGRST126".into()));
    }
}

#[tokio::test]
async fn a_function_can_replace_the_document() {
    let server = CinemaServer::with(|config| {
        config.root_spec = Some(QualifiedName { schema: "public".into(), name: "films_since".into() });
    })
    .await;
    let response = server.secret("/?since=2021&select=title").send().await.expect(200);
    assert_eq!(response.json(), json!([{ "title": "100% \"Real\"" }]));
    assert_eq!(server.secret("/").send().await.rejection(), (404, "PGRST202".into()));
    let wanted = server.secret("/?since=2021&select=id").header("accept", "application/openapi+json");
    assert_eq!(wanted.send().await.expect(200).json(), json!([{ "id": 5 }]));
    server.public("/").send().await.expect(401);
    // Methods have the meaning that they have for functions
    let request = |method| server.request(method, "/rest/v1/?select=id").key(server.api_keys().secret());
    let called = request(Method::POST).json(&json!({ "since": 2021 })).send().await.expect(200);
    assert_eq!(called.json(), json!([{ "id": 5 }]));
    assert_eq!(request(Method::PATCH).send().await.rejection(), (405, "PGRST101".into()));
    let options = server.request(Method::OPTIONS, "/rest/v1/?since=2021").key(server.api_keys().secret());
    assert_eq!(options.send().await.expect(200).header("allow"), Some("OPTIONS,GET,HEAD,POST"));
}

#[tokio::test]
async fn the_document_has_its_address_and_describes_authentication() {
    let server = CinemaServer::with(|config| {
        config.openapi_security = true;
        config.openapi_proxy_uri = Some("https://data.example.com/v1".into());
    })
    .await;
    let document = server.secret("/").send().await.expect(200).json();
    assert_eq!(document["host"], "data.example.com:443");
    assert_eq!(document["basePath"], "/v1");
    assert_eq!(document["schemes"], json!(["https"]));
    assert_eq!(document["securityDefinitions"]["JWT"]["name"], "Authorization");
}

#[tokio::test]
async fn the_document_has_names_that_need_quotes() {
    let server = CinemaServer::open().await;
    let document = server.secret("/").header("accept-profile", "Qu%22oted").send().await.rejection();
    assert_eq!(document, (406, "PGRST106".into()));
    let document = server.secret("/").send().await.expect(200).json();
    let filter = document["parameters"]["rowFilter.Odd Table.quo\"ted"]["name"].as_str();
    assert_eq!(filter, Some("quo\"ted"));
    let reference = &document["paths"]["/Odd Table"]["get"]["responses"]["200"]["schema"]["items"]["$ref"];
    assert_eq!(reference, "#/definitions/Odd%20Table");
}
