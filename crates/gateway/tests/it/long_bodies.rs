//! Long bodies of services that read them before they respond: they do not pass through the HTTP
//! library, and everything is as if they did.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http_body_util::BodyExt as _;
use portico_gateway::{AccessRules, ServeLimits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::request_line::{answer, ask};
use crate::{PATIENCE, Server};

/// Long enough for more than a block.
const LONG: usize = 300_007;
/// The body of a response that does not fit into the buffers of a socket.
const LARGE: usize = 32 * 1024 * 1024;

/// Returns content whose parts differ.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

/// Returns a text that no other content has.
fn sum(bytes: &[u8]) -> String {
    let folded = bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{} bytes, {folded:x}", bytes.len())
}

/// Starts a server with a service that reads bodies before it responds.
async fn start(broken: &Arc<Notify>) -> Server {
    let broken = Arc::clone(broken);
    let read = move |mut body: Body| async move {
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => all.extend_from_slice(&frame.into_data().unwrap()),
                Err(_) => {
                    broken.notify_one();
                    return "broken".to_owned();
                }
            }
        }
        sum(&all)
    };
    let router = Router::new()
        .route("/read", post(read))
        .route("/ignore", post(async |body: Body| drop(body)))
        .route("/large", get(async || content(LARGE)))
        .route("/small", get(async || "small"));
    let access = AccessRules::open().body_limit(usize::MAX).timeout(None).reads_before_responding();
    let limits = ServeLimits { head_timeout: PATIENCE, ..ServeLimits::default() };
    Server::start_with(limits, |gateway| gateway.mount("/long/v1", router, access)).await
}

fn head(path: &str, size: usize, more: &str) -> Vec<u8> {
    format!("POST /long/v1{path} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n{more}\r\n").into_bytes()
}

const SMALL: &[u8] = b"GET /long/v1/small HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn a_connection_is_kept_for_long_and_short_requests() {
    let server = start(&Arc::default()).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    for size in [64 * 1024, LONG, 5, 3 * LONG] {
        let body = content(size);
        // Also in pieces that end anywhere
        let request = [head("/read", size, ""), body.clone()].concat();
        for pieces in [vec![&request[..]], request.chunks(60_001).collect(), request.chunks(size / 2 + 3).collect()] {
            let (head, read) = ask(&mut socket, &pieces).await;
            assert!(head.starts_with("HTTP/1.1 200") && !head.contains("connection: close"), "{head}");
            assert!(head.contains("\r\ndate: ") && head.contains("\r\nsb-request-id: "), "{head}");
            assert_eq!(String::from_utf8(read).unwrap(), sum(&body));
        }
        assert_eq!(ask(&mut socket, &[SMALL]).await.1, b"small");
    }
}

#[tokio::test]
async fn requests_may_follow_each_other_without_waiting() {
    let server = start(&Arc::default()).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let body = content(LONG);
    let long = [head("/read", LONG, ""), body.clone()].concat();
    let all = [SMALL, &long, &long, SMALL, &long].concat();
    let sending = async {
        // In pieces that end in heads, bodies and between them
        for piece in all.chunks(70_001) {
            socket.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, sending).await.unwrap();
    let expected = sum(&body);
    for expected in ["small", &expected, &expected, "small", &expected] {
        let (head, body) = answer(&mut socket).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }
}

#[tokio::test]
async fn an_earlier_response_that_waits_for_its_reader_stays_whole() {
    let server = start(&Arc::default()).await;
    let socket = TcpStream::connect(server.address).await.unwrap();
    let (mut reader, mut writer) = socket.into_split();
    let body = content(3 * LARGE / 4);
    let request = [head("/read", body.len(), ""), body.clone()].concat();
    let sending = tokio::spawn(async move {
        writer.write_all(b"GET /long/v1/large HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        writer.write_all(&request).await.unwrap();
        writer.write_all(SMALL).await.unwrap();
        writer
    });
    // The sender is stopped by the full buffers of the socket
    let mut first = vec![0; 5];
    timeout(PATIENCE, reader.read_exact(&mut first)).await.unwrap().unwrap();
    let mut rest = first;
    let reading = async {
        while !rest.ends_with(b"small") {
            let mut part = vec![0; 64 * 1024];
            let read = reader.read(&mut part).await.unwrap();
            assert!(read > 0, "the connection stays open");
            rest.extend_from_slice(&part[..read]);
        }
    };
    timeout(PATIENCE, reading).await.unwrap();
    drop(sending.await.unwrap());
    let large = content(LARGE);
    let begin = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(rest[begin..begin + LARGE] == large);
    let behind = String::from_utf8_lossy(&rest[begin + LARGE..]);
    assert!(behind.starts_with("HTTP/1.1 200") && behind.contains(&sum(&body)), "{behind}");
}

#[tokio::test]
async fn a_body_that_is_not_read_is_discarded_or_closes_the_connection() {
    let server = start(&Arc::default()).await;
    for (size, closes) in [(LONG, false), (20 * 1024 * 1024, true)] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let request = [head("/ignore", size, ""), content(size)].concat();
        let (head, _) = ask(&mut socket, &[&request]).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(head.contains("connection: close"), closes, "{head}");
        if closes {
            assert_eq!(timeout(PATIENCE, socket.read(&mut [0])).await.unwrap().unwrap(), 0);
        } else {
            assert_eq!(ask(&mut socket, &[SMALL]).await.1, b"small");
        }
    }
}

#[tokio::test]
async fn a_client_that_expects_to_be_asked_for_the_body_is_asked_when_it_is_read() {
    let server = start(&Arc::default()).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let body = content(LONG);
    for _ in 0..2 {
        socket.write_all(&head("/read", LONG, "expect: 100-continue\r\n")).await.unwrap();
        let mut interim = vec![0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        timeout(PATIENCE, socket.read_exact(&mut interim)).await.unwrap().unwrap();
        assert_eq!(interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(String::from_utf8(ask(&mut socket, &[&body]).await.1).unwrap(), sum(&body));
    }
    // It is not asked for a body that is not read
    let (head, _) = ask(&mut socket, &[&head("/ignore", LONG, "expect: 100-continue\r\n")]).await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
}

#[tokio::test]
async fn a_connection_is_closed_where_the_client_asks_for_it() {
    let server = start(&Arc::default()).await;
    let body = content(LONG);
    let request = |version: &str, connection: &str| {
        let head = format!(
            "POST /long/v1/read HTTP/{version}\r\nhost: x\r\ncontent-length: {LONG}\r\nconnection: {connection}\r\n\r\n"
        );
        [head.as_bytes(), &body].concat()
    };
    for (version, connection, closes) in [
        ("1.1", "keep-alive", false),
        ("1.1", "x-other, Close", true),
        ("1.0", "Keep-Alive", false),
        ("1.0", "x-other", true),
    ] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let (head, read) = ask(&mut socket, &[&request(version, connection)]).await;
        assert!(head.starts_with(&format!("HTTP/{version} 200")), "{head}");
        assert_eq!(String::from_utf8(read).unwrap(), sum(&body));
        if closes {
            assert_eq!(timeout(PATIENCE, socket.read(&mut [0])).await.unwrap().unwrap(), 0, "{version} {connection}");
        } else {
            assert_eq!(ask(&mut socket, &[SMALL]).await.1, b"small");
        }
    }
}

#[tokio::test]
async fn a_service_sees_that_a_client_has_gone() {
    let broken = Arc::new(Notify::new());
    let server = start(&broken).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&head("/read", LONG, "")).await.unwrap();
    socket.write_all(&content(LONG - 1)).await.unwrap();
    drop(socket);
    timeout(PATIENCE, broken.notified()).await.unwrap();
}

#[tokio::test]
async fn a_long_request_in_flight_completes_before_the_server_stops() {
    let mut server = start(&Arc::default()).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&head("/read", LONG, "expect: 100-continue\r\n")).await.unwrap();
    let mut interim = vec![0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    timeout(PATIENCE, socket.read_exact(&mut interim)).await.unwrap().unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    // No new connection is accepted
    timeout(PATIENCE, async { while TcpStream::connect(server.address).await.is_ok() {} }).await.unwrap();
    let body = content(LONG);
    let (head, read) = ask(&mut socket, &[&body]).await;
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(String::from_utf8(read).unwrap(), sum(&body));
    timeout(PATIENCE, server.ended).await.unwrap().unwrap().unwrap();
}
