//! Requests that are too large, too slow or malformed.

use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use portico_gateway::{AccessRules, KeyPolicy};
use reqwest::Body;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::request_line::ask;
use crate::{Server, json_of, slow};

#[tokio::test]
async fn a_body_beyond_the_limit_is_rejected_with_413_with_and_without_a_length() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let post = async |path: &str, body: Body| server.client.post(server.url(path)).body(body).send().await.unwrap();
    let chunked = |bytes: usize| {
        let chunk = || Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'x'; 100])));
        let chunks: Vec<_> = std::iter::repeat_with(chunk).take(bytes / 100).collect();
        Body::wrap(StreamBody::new(futures_util::stream::iter(chunks)))
    };

    for body in [Body::from(vec![b'x'; 1000]), chunked(1000)] {
        let response = post("/auth/v1/read", body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.text().await.unwrap(), "1000");
    }
    for body in [Body::from(vec![b'x'; 1001]), chunked(1100), Body::from(vec![b'x'; 5_000_000]), chunked(5_000_000)] {
        let response = post("/auth/v1/read", body).await;
        assert_eq!(response.status(), 413);
        assert_eq!(json_of(response).await["message"], "Request body too large (max 1000 bytes)");
    }
    // A service that does not read the body has responded already
    let response = post("/auth/v1/ignore", chunked(500_000)).await;
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "ignored"));
}

#[tokio::test]
async fn a_rejection_reaches_a_client_that_is_still_sending() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    let response = server.client.post(server.url("/auth/v1/read")).body(vec![b'x'; 3_000_000]).send().await.unwrap();
    assert_eq!(response.status(), 401);
}

/// Sends a head and a body of this number of chunks of a megabyte, completely.
async fn send_megabytes(socket: &mut TcpStream, head: &str, megabytes: usize) {
    socket.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).await.unwrap();
    let megabyte = [b"100000\r\n", &[b'x'; 1024 * 1024][..], b"\r\n"].concat();
    for _ in 0..megabytes {
        socket.write_all(&megabyte).await.expect("the server reads on");
    }
    socket.write_all(b"0\r\n\r\n").await.expect("the server reads on");
}

#[tokio::test]
async fn an_unread_body_can_be_sent_completely_before_the_response_is_read() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let preflight = "origin: http://a.example\r\naccess-control-request-method: POST\r\n";
    for (method, path, headers, status) in [
        ("POST", "/nowhere/v1/x", "", "404"),
        ("POST", "/nowhere", "", "404"),
        ("POST", "/nowhere", "host: y\r\n", "400"),
        ("OPTIONS", "/auth/v1/user", preflight, "200"),
    ] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}");
        // Twice: the connection stays usable
        for _ in 0..2 {
            send_megabytes(&mut socket, &head, 1).await;
            let (response, _) = ask(&mut socket, &[]).await;
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{method} {path}: {response}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_to_wait_for_is_read_after_the_response() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    send_megabytes(&mut socket, "POST /nowhere HTTP/1.1\r\nhost: x\r\n", 64).await;
    assert!(ask(&mut socket, &[]).await.0.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn a_client_that_expects_continue_is_rejected_before_it_sends() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket
        .write_all(
            b"POST /auth/v1/read HTTP/1.1\r\nhost: x\r\ncontent-length: 90000000\r\nexpect: 100-continue\r\n\r\n",
        )
        .await
        .unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).await.unwrap();
    assert!(response.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&response));
}

#[tokio::test]
async fn headers_beyond_the_limit_are_rejected_with_431() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let fits = server.get("/auth/v1/user").header("x-long", "x".repeat(60_000)).send().await.unwrap();
    assert_eq!(fits.status(), 200);

    let response = server.get("/auth/v1/user").header("x-long", "x".repeat(66_000)).send().await.unwrap();
    assert_eq!(response.status(), 431);
    assert_eq!(json_of(response).await["message"], "Request headers too large (max 65536 bytes)");
}

#[tokio::test]
async fn a_url_beyond_the_limit_is_rejected_with_414_and_the_connection_stays_open() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    for length in [65_001, 65_600, 200_000, 3_000_000] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        for (length, status) in [(length, 414), (100, 200)] {
            let target = format!("/auth/v1/user?{}", "x".repeat(length - "/auth/v1/user?".len()));
            let (head, body) =
                ask(&mut socket, &[format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()]).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {head}");
            if status == 414 {
                assert!(head.contains("access-control-allow-origin: *"), "{head}");
                assert_eq!(body, br#"{"message":"Request URL too long (max 65000 bytes)"}"#);
            }
        }
    }
    let fits = format!("/auth/v1/user?{}", "x".repeat(65_000 - "/auth/v1/user?".len()));
    assert_eq!(server.get(&fits).send().await.unwrap().status(), 200);
    // The encoded form counts
    let quotes = format!("GET /auth/v1/user?{} HTTP/1.1\r\nhost: x\r\n\r\n", "\"".repeat(30_000));
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    assert!(ask(&mut socket, &[quotes.as_bytes()]).await.0.starts_with("HTTP/1.1 414 "));
}

#[tokio::test]
async fn a_service_that_is_too_slow_is_a_504() {
    let (router, _, _) = slow();
    let server = Server::start(|gateway| {
        gateway.mount("/slow/v1", router, AccessRules::open().timeout(Some(Duration::from_millis(20))))
    })
    .await;
    let response = server.get("/slow/v1/wait").send().await.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(response.headers()["x-sb-error-code"], "request_timeout");
    assert_eq!(json_of(response).await["message"], "Processing this request timed out, please retry after a moment.");
}

#[tokio::test]
async fn a_panic_is_a_500_for_one_client_and_the_server_continues() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let response = server.get("/auth/v1/panic").send().await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers()["access-control-allow-origin"], "*");
    assert_eq!(response.headers()["x-sb-error-code"], "unexpected_failure");
    assert_eq!(
        json_of(response).await,
        json!({
            "code": "unexpected_failure",
            "error_code": "unexpected_failure",
            "message": "Internal Server Error",
            "msg": "Internal Server Error"
        })
    );
    assert_eq!(server.get("/auth/v1/user").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn input_that_is_not_http_is_rejected() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    for nonsense in [
        b"\0\0\0\0\r\n\r\n".as_slice(),
        b"GET\r\n\r\n",
        b"GET /auth/v1/user HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /auth/v1/user HTTP/9.9\r\n\r\n",
        b"POST /auth/v1/read HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /auth/v1/read HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all, but long enough to be read as one",
    ] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(nonsense).await.unwrap();
        let mut response = Vec::new();
        // A reset is an acceptable end
        let _ = socket.read_to_end(&mut response).await;
        assert!(!response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(nonsense));
    }
    assert_eq!(server.get("/auth/v1/user").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_unknown_path_has_the_response_of_supabase_s_gateway() {
    let server = Server::with_echo(KeyPolicy::Hosted).await;
    for path in ["/rest/v1/todos", "/auth/v1", "/", "/nowhere"] {
        let response = server.get(path).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(response.text().await.unwrap(), r#"{"message":"no Route matched with those values"}"#);
    }
}

#[tokio::test]
async fn the_longest_prefix_wins() {
    let text = |text: &'static str| axum::Router::new().fallback(move || async move { text });
    let server = Server::start(|gateway| {
        gateway.mount("/storage/v1", text("storage"), AccessRules::open()).mount(
            "/storage/v1/s3",
            text("s3"),
            AccessRules::open(),
        )
    })
    .await;
    let body = async |path: &str| server.get(path).send().await.unwrap().text().await.unwrap();
    assert_eq!(body("/storage/v1/s3/x").await, "s3");
    assert_eq!(body("/storage/v1/s3").await, "storage");
    assert_eq!(body("/storage/v1/object").await, "storage");
}
