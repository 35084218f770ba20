//! Where requests come from, and their ids.

use portico_gateway::{Access, KeyPolicy};
use serde_json::json;

use crate::{Server, echo, json_of};

#[tokio::test]
async fn a_stranger_s_forwarding_headers_are_removed() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let told = json_of(
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
    assert_eq!(told["address"], "127.0.0.1");
    assert_eq!(told["x-forwarded-for"], "127.0.0.1");
    assert_eq!(told["x-real-ip"], "127.0.0.1");
    // In their place stands what the gateway sees
    let host = server.url("").trim_start_matches("http://").to_owned();
    assert_eq!(told["x-forwarded-host"], host);
    assert_eq!(told["x-forwarded-proto"], "http");
    assert!(host.ends_with(&format!(":{}", told["x-forwarded-port"].as_str().unwrap())));
    assert_eq!(told["x-forwarded-prefix"], "/auth/v1");
    assert_eq!(told["x-forwarded-path"], "/auth/v1/user");
}

#[tokio::test]
async fn a_trusted_proxy_is_believed() {
    let server = Server::start(|gateway| {
        gateway.key_policy(KeyPolicy::Development).trusted_proxies(vec!["127.0.0.0/8".parse().unwrap()]).mount(
            "/auth/v1",
            echo(),
            Access::keyed(),
        )
    })
    .await;
    let answer = server
        .get("/auth/v1/user")
        .header("x-forwarded-for", "1.2.3.4, 198.51.100.7, 127.0.0.9")
        .header("x-forwarded-host", "app.example")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-prefix", "/backend")
        .header("x-request-id", "from-the-proxy-1")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["x-request-id"], "from-the-proxy-1");
    let told = json_of(answer).await;
    assert_eq!(told["address"], "198.51.100.7");
    assert_eq!(told["x-forwarded-host"], "app.example");
    assert_eq!(told["x-forwarded-proto"], "https");
    assert_eq!(told["x-forwarded-port"], "443");
    assert_eq!(told["x-forwarded-prefix"], "/backend/auth/v1");
    assert_eq!(told["x-forwarded-path"], "/backend/auth/v1/user");
    assert_eq!(told["x-real-ip"], "198.51.100.7");
    assert_eq!(told["id"], "from-the-proxy-1");
}

#[tokio::test]
async fn every_answer_has_an_id_and_a_stranger_can_not_choose_it() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    for path in ["/auth/v1/user", "/auth/v1/nowhere", "/nowhere", "/auth/v1/panic"] {
        let answer = server.get(path).header("x-request-id", "chosen-by-me").send().await.unwrap();
        let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(id.len(), 36, "{path}");
        assert_eq!(answer.headers()["sb-request-id"], *id);
        if path == "/auth/v1/user" {
            let told = json_of(answer).await;
            assert_eq!((&told["id"], &told["x-request-id"]), (&json!(id), &json!(id)));
        }
    }
}
