//! What browsers are told.

use portico_gateway::{Access, KeyPolicy};
use portico_tokens::development::ANON_KEY;
use reqwest::Method;

use crate::Server;

#[tokio::test]
async fn a_preflight_is_answered_without_a_key_and_echoes_the_headers_that_are_asked_for() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let names = "authorization,apikey,prefer,accept-profile,x-upsert,traceparent,x-of-the-app";
    for path in ["/auth/v1/user", "/auth/v1/nowhere"] {
        let answer = server
            .client
            .request(Method::OPTIONS, server.url(path))
            .header("origin", "https://app.example")
            .header("access-control-request-method", "PATCH")
            .header("access-control-request-headers", names)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        let headers = answer.headers();
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert_eq!(headers["access-control-allow-headers"], names);
        assert_eq!(headers["access-control-allow-methods"], "GET,HEAD,PUT,PATCH,POST,DELETE,OPTIONS,TRACE,CONNECT");
        assert_eq!(headers["access-control-max-age"], "3600");
        assert_eq!(headers["vary"], "Origin, Access-Control-Request-Headers");
        assert_eq!(answer.text().await.unwrap(), "");
    }
}

#[tokio::test]
async fn every_answer_of_a_service_is_open_to_every_page() {
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
        gateway.mount("/auth/v1", router, Access::open())
    })
    .await;
    for path in ["/auth/v1/plain", "/auth/v1/own", "/auth/v1/nowhere", "/rest/v1/nowhere"] {
        let answer = server.get(path).header("origin", "https://app.example").send().await.unwrap();
        assert_eq!(answer.headers()["access-control-allow-origin"], "*", "{path}");
        assert!(!answer.headers().contains_key("access-control-allow-credentials"), "{path}");
        let exposed = answer.headers()["access-control-expose-headers"].to_str().unwrap();
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
async fn options_that_is_no_preflight_goes_to_the_service() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let answer = server
        .client
        .request(Method::OPTIONS, server.url("/auth/v1/user"))
        .header("apikey", ANON_KEY)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.unwrap().contains("\"role\":\"anon\""));
}
