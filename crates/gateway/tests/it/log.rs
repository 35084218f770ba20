//! Log lines, and the secrets that they never contain.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use axum::{Extension, Router};
use http::StatusCode;
use portico_base::{LoggedErrorCode, LoggedRoute};
use portico_gateway::{AccessRules, KeyPolicy};
use portico_tokens::development::ANON_KEY;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::{Server, echo};

/// Collects events and spans of the gateway as text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Lines {
    fn push(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Text)) {
        let mut text = Text(format!("{} {}", metadata.level(), metadata.target()));
        record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn all(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("portico_gateway")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.push(span.metadata(), |text| span.record(text));
        Id::from_u64(1)
    }
    fn event(&self, event: &Event<'_>) {
        self.push(event.metadata(), |text| event.record(text));
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_request_is_logged_as_one_line_with_its_route_and_without_secrets() {
    let lines = Lines::default();
    // For the whole process: lines of other tests are collected too, and must not contain secrets
    // either
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    // A service that has no routes of the library, and one status for many errors
    let files = Router::new().fallback(async || {
        let route = Extension(LoggedRoute("/{bucket}/{name}"));
        (StatusCode::BAD_REQUEST, route, Extension(LoggedErrorCode("NoSuchKey")), "no such key")
    });
    let server = Server::start(|gateway| {
        let gateway = gateway.key_policy(KeyPolicy::Development);
        gateway.mount("/auth/v1", echo(), AccessRules::keyed()).mount("/files/v1", files, AccessRules::keyed())
    })
    .await;
    let token = server.token(json!({ "sub": "u" }));
    let response = server
        .get(&format!("/auth/v1/things/secret-path?code=secret-code&apikey={ANON_KEY}"))
        .header("authorization", &token)
        .send()
        .await
        .unwrap();
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    server.get("/auth/v1/panic").send().await.unwrap();
    server.get("/files/v1/secret-path/x").header("apikey", ANON_KEY).send().await.unwrap();

    let all = lines.all();
    assert!(all.contains(&format!("id=\"{id}\" method=\"GET\" status=200")), "{all}");
    assert!(all.contains("status=200 route=/auth/v1/things/{id} duration_ms="), "{all}");
    assert!(all.contains("ERROR portico_gateway::gateway message=a handler panicked"), "{all}");
    assert!(all.contains("on purpose: 1"), "{all}");
    assert!(all.contains("status=500 route=/auth/v1 "), "{all}");
    assert!(all.contains("status=400 route=/files/v1/{bucket}/{name} error_code=\"NoSuchKey\" duration_ms="), "{all}");
    for secret in ["secret-path", "secret-code", ANON_KEY, token.trim_start_matches("Bearer ")] {
        assert!(!all.contains(secret), "{secret} was logged");
    }
}
