//! The CORS headers of responses.

use std::time::Duration;

use portico_gateway::{AccessRules, Cors, KeyPolicy};
use portico_tokens::development::ANON_KEY;
use reqwest::Method;
use reqwest::header::HeaderValue;

use crate::Server;

#[tokio::test]
async fn a_preflight_needs_no_key_and_echoes_the_requested_headers() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let names = "authorization,apikey,prefer,accept-profile,x-upsert,traceparent,x-of-the-app";
    for path in ["/auth/v1/user", "/auth/v1/nowhere"] {
        let response = server
            .client
            .request(Method::OPTIONS, server.url(path))
            .header("origin", "https://app.example")
            .header("access-control-request-method", "PATCH")
            .header("access-control-request-headers", names)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let headers = response.headers();
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert_eq!(headers["access-control-allow-headers"], names);
        assert_eq!(headers["access-control-allow-methods"], "GET,HEAD,PUT,PATCH,POST,DELETE,OPTIONS,TRACE,CONNECT");
        assert_eq!(headers["access-control-max-age"], "3600");
        assert_eq!(headers["vary"], "Origin, Access-Control-Request-Headers");
        assert_eq!(response.text().await.unwrap(), "");
    }
}

#[tokio::test]
async fn every_response_of_a_service_is_open_to_every_page() {
    let server = Server::start(|gateway| {
        let router = axum::Router::new().route("/plain", axum::routing::get(async || "x")).route(
            "/own",
            axum::routing::get(async || {
                [
                    ("access-control-allow-origin", "https://only.example"),
                    ("access-control-allow-credentials", "true"),
                    ("access-control-expose-headers", "x-own"),
                ]
            }),
        );
        gateway.mount("/auth/v1", router, AccessRules::open())
    })
    .await;
    for path in ["/auth/v1/plain", "/auth/v1/own", "/auth/v1/nowhere", "/rest/v1/nowhere"] {
        let response = server.get(path).header("origin", "https://app.example").send().await.unwrap();
        assert_eq!(response.headers()["access-control-allow-origin"], "*", "{path}");
        assert!(!response.headers().contains_key("access-control-allow-credentials"), "{path}");
        let exposed = response.headers()["access-control-expose-headers"].to_str().unwrap();
        assert_eq!(exposed == "x-own", path == "/auth/v1/own", "{path}");
        if exposed != "x-own" {
            for name in ["Content-Range", "sb-request-id", "X-Supabase-Api-Version", "Retry-After", "X-RateLimit-Name"]
            {
                assert!(exposed.contains(name), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_service_can_have_cors_headers_of_its_own() {
    let server = Server::start(|gateway| {
        let own = || async { [("access-control-allow-origin", "https://only.example"), ("x-own", "1")] };
        let router = axum::Router::new()
            .route("/own", axum::routing::any(own))
            .route("/own/below", axum::routing::any(own))
            .route("/own/without", axum::routing::get(async || "x"))
            .route("/owner", axum::routing::any(own));
        let keyed = gateway.mount("/rest/v1", router.clone(), AccessRules::keyed().own_cors(["/own"]));
        keyed.mount("/storage/v1", router, AccessRules::open().own_cors(["/own"]))
    })
    .await;
    let send = |method: Method, path: &str| {
        let request = server.client.request(method, server.url(path)).header("origin", "https://app.example");
        request.header("access-control-request-method", "PATCH").send()
    };
    for (path, origin, is_own) in [
        ("/storage/v1/own", "https://only.example", true),
        ("/storage/v1/own/below", "https://only.example", true),
        ("/storage/v1/owner", "*", false),
    ] {
        let preflight = send(Method::OPTIONS, path).await.unwrap();
        assert_eq!(
            (&preflight.headers()["access-control-allow-origin"], preflight.headers().contains_key("x-own")),
            (&HeaderValue::from_static(origin), is_own),
            "{path}"
        );
        let response = send(Method::GET, path).await.unwrap();
        assert_eq!(response.headers()["access-control-allow-origin"], origin, "{path}");
    }
    let without = send(Method::GET, "/storage/v1/own/without").await.unwrap();
    assert_eq!(without.headers()["access-control-allow-origin"], "*");
    let refused = server.get("/rest/v1/own").header("origin", "https://app.example").send().await.unwrap();
    assert_eq!(
        (refused.status().is_success(), &refused.headers()["access-control-allow-origin"]),
        (false, &HeaderValue::from_static("*"))
    );
}

#[tokio::test]
async fn options_without_a_preflight_goes_to_the_service() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let response = server
        .client
        .request(Method::OPTIONS, server.url("/auth/v1/user"))
        .header("apikey", ANON_KEY)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.text().await.unwrap().contains("\"role\":\"anon\""));
}

#[tokio::test]
async fn a_mount_can_have_its_own_rules_and_list_of_origins() {
    let server = Server::start(|gateway| {
        let router = axum::Router::new().route("/x", axum::routing::get(async || "x"));
        let listed = |origin: &str| Some(origin == "https://app.example");
        let rules = Cors::default().methods("GET, POST").headers("Accept").max_age(Duration::from_secs(86400));
        gateway
            .mount(
                "/listed/v1",
                router.clone(),
                AccessRules::open().cors(rules.clone().exposing("X-Own").origins(listed)),
            )
            .mount("/any/v1", router, AccessRules::open().cors(rules.origins(|_| None)))
    })
    .await;
    let preflight = async |path: &str, origin: &str| {
        let request = server.client.request(Method::OPTIONS, server.url(path)).header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "prefer,x-app").send().await.unwrap()
    };
    let app = preflight("/listed/v1/x", "https://app.example").await;
    assert_eq!(app.status(), 200);
    let headers = app.headers();
    assert_eq!(headers["access-control-allow-origin"], "https://app.example");
    assert_eq!(headers["access-control-allow-credentials"], "true");
    assert_eq!(headers["access-control-allow-methods"], "GET, POST");
    assert_eq!(headers["access-control-allow-headers"], "Accept, prefer,x-app");
    assert_eq!(headers["access-control-max-age"], "86400");
    let other = preflight("/listed/v1/x", "https://other.example").await;
    assert_eq!(other.status(), 200);
    assert!(!other.headers().keys().any(|name| name.as_str().starts_with("access-control-")));
    assert_eq!(preflight("/any/v1/x", "https://other.example").await.headers()["access-control-allow-origin"], "*");

    let read = async |path: &str, origin: &str| server.get(path).header("origin", origin).send().await.unwrap();
    let app = read("/listed/v1/x", "https://app.example").await;
    assert_eq!(app.headers()["access-control-allow-origin"], "https://app.example");
    assert_eq!(
        (&app.headers()["access-control-allow-credentials"], &app.headers()["vary"]),
        (&"true".parse().unwrap(), &"Origin".parse().unwrap())
    );
    assert!(app.headers()["access-control-expose-headers"].to_str().unwrap().ends_with(", X-Own"));
    // The request is served all the same
    let other = read("/listed/v1/x", "https://other.example").await;
    assert!(!other.headers().contains_key("access-control-allow-origin"));
    assert_eq!(other.text().await.unwrap(), "x");
    let any = read("/any/v1/x", "https://other.example").await;
    assert_eq!(any.headers()["access-control-allow-origin"], "*");
    assert!(!any.headers().contains_key("access-control-allow-credentials"));
}
