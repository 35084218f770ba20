//! The client of a request, and request ids.

use portico_gateway::{AccessRules, KeyPolicy};
use serde_json::json;

use crate::{Server, echo, json_of};

#[tokio::test]
async fn forwarding_headers_of_an_untrusted_client_are_removed() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let echo = json_of(
        server
            .get("/auth/v1/user?apikey=x&a=b")
            .header("x-forwarded-for", "198.51.100.7")
            .header("x-real-ip", "198.51.100.7")
            .header("x-forwarded-path", "/evil/user")
            .header("x-forwarded-host", "evil.example")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-port", "1")
            .header("x-forwarded-prefix", "/evil")
            .send()
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(echo["address"], "127.0.0.1");
    assert_eq!(echo["x-forwarded-for"], "127.0.0.1");
    assert_eq!(echo["x-real-ip"], "127.0.0.1");
    // The gateway's own observations replace them
    let host = server.url("").trim_start_matches("http://").to_owned();
    assert_eq!(echo["x-forwarded-host"], host);
    assert_eq!(echo["x-forwarded-proto"], "http");
    assert!(host.ends_with(&format!(":{}", echo["x-forwarded-port"].as_str().unwrap())));
    assert_eq!(echo["x-forwarded-prefix"], "/auth/v1");
    assert_eq!(echo["x-forwarded-path"], "/auth/v1/user");
}

#[tokio::test]
async fn headers_of_a_trusted_proxy_are_used() {
    let server = Server::start(|gateway| {
        gateway.key_policy(KeyPolicy::Development).trusted_proxies(vec!["127.0.0.0/8".parse().unwrap()]).mount(
            "/auth/v1",
            echo(),
            AccessRules::keyed(),
        )
    })
    .await;
    let response = server
        .get("/auth/v1/user")
        .header("x-forwarded-for", "1.2.3.4, 198.51.100.7, 127.0.0.9")
        .header("x-forwarded-host", "app.example")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-prefix", "/backend")
        .header("x-request-id", "from-the-proxy-1")
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["x-request-id"], "from-the-proxy-1");
    let echo = json_of(response).await;
    assert_eq!(echo["address"], "198.51.100.7");
    assert_eq!(echo["x-forwarded-host"], "app.example");
    assert_eq!(echo["x-forwarded-proto"], "https");
    assert_eq!(echo["x-forwarded-port"], "443");
    assert_eq!(echo["x-forwarded-prefix"], "/backend/auth/v1");
    assert_eq!(echo["x-forwarded-path"], "/backend/auth/v1/user");
    assert_eq!(echo["x-real-ip"], "198.51.100.7");
    assert_eq!(echo["id"], "from-the-proxy-1");
}

#[tokio::test]
async fn every_response_has_an_id_that_an_untrusted_client_cannot_choose() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    for path in ["/auth/v1/user", "/auth/v1/nowhere", "/nowhere", "/auth/v1/panic"] {
        let response = server.get(path).header("x-request-id", "chosen-by-me").send().await.unwrap();
        let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(id.len(), 36, "{path}");
        assert_eq!(response.headers()["sb-request-id"], *id);
        if path == "/auth/v1/user" {
            let echo = json_of(response).await;
            assert_eq!((&echo["id"], &echo["x-request-id"]), (&json!(id), &json!(id)));
        }
    }
}
