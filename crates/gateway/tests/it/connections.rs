//! The life of a connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use portico_gateway::{AccessRules, KeyPolicy, ServeLimits, Workers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::{PATIENCE, Server, slow};

const REQUEST: &[u8] = b"GET /auth/v1/user HTTP/1.1\r\nhost: x\r\n\r\n";

/// Reads until the server closes the connection.
async fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut all)).await.expect("the connection ends");
    all
}

#[tokio::test]
async fn a_request_in_flight_completes_before_the_server_stops() {
    let (router, asked, go) = slow();
    let mut server = Server::start(|gateway| gateway.mount("/slow/v1", router, AccessRules::open())).await;
    let request = tokio::spawn(server.get("/slow/v1/wait").send());
    asked.notified().await;

    server.stop.take().unwrap().send(()).unwrap();
    // No new connection is accepted
    timeout(PATIENCE, async { while TcpStream::connect(server.address).await.is_ok() {} }).await.unwrap();
    assert!(!server.ended.is_finished());

    go.notify_one();
    let response = timeout(PATIENCE, request).await.unwrap().unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), "done");
    timeout(PATIENCE, server.ended).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_body_arrives_in_small_pieces_however_fast_it_is_sent() {
    const SIZE: usize = 4 * 1024 * 1024;
    let sizes = |body: Body| async move {
        let (mut body, mut largest, mut all) = (body, 0, 0);
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap().len();
            (largest, all) = (largest.max(piece), all + piece);
        }
        format!("{largest} {all}")
    };
    let router = Router::new().route("/", post(sizes));
    let access = AccessRules::open().body_limit(SIZE);
    let server = Server::start(|gateway| gateway.mount("/sizes", router, access)).await;
    let response = server.client.post(server.url("/sizes/")).body(vec![b'x'; SIZE]).send().await.unwrap();
    let response = response.text().await.unwrap();
    let (largest, all) = response.split_once(' ').unwrap();
    assert_eq!(all.parse(), Ok(SIZE));
    assert!(largest.parse::<usize>().unwrap() < 16 * 1024, "{largest} bytes of a client at once");
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_off_after_the_drain_time() {
    let (router, asked, _go) = slow();
    let limits = ServeLimits { drain: Duration::from_millis(50), ..ServeLimits::default() };
    let mut server = Server::start_with(limits, |gateway| gateway.mount("/slow/v1", router, AccessRules::open())).await;
    let request = tokio::spawn(server.get("/slow/v1/wait").send());
    asked.notified().await;
    server.stop.take().unwrap().send(()).unwrap();
    timeout(PATIENCE, server.ended).await.unwrap().unwrap().unwrap();
    assert!(timeout(PATIENCE, request).await.unwrap().unwrap().is_err());
}

#[tokio::test]
async fn idle_and_silent_connections_do_not_delay_the_shutdown() {
    let mut server = Server::with_echo(KeyPolicy::Development).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(REQUEST).await.unwrap();
    let mut start = [0; 12];
    idle.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");

    server.stop.take().unwrap().send(()).unwrap();
    timeout(PATIENCE, server.ended).await.unwrap().unwrap().unwrap();
    assert_eq!(rest(&mut silent).await, b"");
    rest(&mut idle).await;
}

#[tokio::test]
async fn a_connection_is_kept_for_more_than_one_request() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..3 {
        socket.write_all(REQUEST).await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"}") {
            assert_ne!(timeout(PATIENCE, socket.read_buf(&mut response)).await.unwrap().unwrap(), 0);
        }
        assert!(response.starts_with(b"HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_slow_head_closes_the_connection() {
    let limits = ServeLimits { head_timeout: Duration::from_millis(100), ..ServeLimits::default() };
    let server = Server::start_with(limits, |gateway| gateway).await;
    for start in [b"".as_slice(), b"G", b"GET / HTTP/1.1\r\nhost:", b"PRI * HT"] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(start).await.unwrap();
        assert!(!rest(&mut socket).await.starts_with(b"HTTP/1.1 200"));
    }
}

/// Returns a body without an end that reports when it is dropped.
fn endless(dropped: Arc<Notify>) -> Body {
    struct Dropped(Arc<Notify>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let guard = Dropped(dropped);
    Body::from_stream(futures_util::stream::repeat_with(move || {
        let _held = &guard;
        Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 64 * 1024]))
    }))
}

#[tokio::test]
async fn a_client_that_stops_reading_is_cut_off() {
    let dropped = Arc::new(Notify::new());
    let body = Arc::clone(&dropped);
    let router = Router::new().route("/endless", get(move || async move { endless(body) }));
    let limits = ServeLimits { stall_timeout: Duration::from_millis(100), ..ServeLimits::default() };
    let server = Server::start_with(limits, |gateway| gateway.mount("/slow/v1", router, AccessRules::open())).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(b"GET /slow/v1/endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut start = [0; 12];
    socket.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    timeout(PATIENCE, dropped.notified()).await.expect("the response is dropped");
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_reset_and_its_connection_continues() {
    let dropped = Arc::new(Notify::new());
    let body = Arc::clone(&dropped);
    let router = Router::new()
        .route("/endless", get(move || async move { endless(body) }))
        .route("/short", get(|| async { "short" }));
    let limits = ServeLimits { stall_timeout: Duration::from_millis(100), ..ServeLimits::default() };
    let server = Server::start_with(limits, |gateway| gateway.mount("/slow/v1", router, AccessRules::open())).await;
    let socket = TcpStream::connect(server.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(64 * 1024).initial_connection_window_size(1024 * 1024);
    let (mut client, connection) = builder.handshake::<_, Bytes>(socket).await.unwrap();
    tokio::spawn(connection);
    let mut send = |path| {
        let request = http::Request::get(server.url(path)).body(()).unwrap();
        client.send_request(request, true).unwrap().0
    };
    // Its window is opened once
    let mut endless = timeout(PATIENCE, send("/slow/v1/endless")).await.unwrap().unwrap().into_body();
    timeout(PATIENCE, dropped.notified()).await.expect("the response is dropped");
    let reset = async {
        loop {
            match endless.data().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error.reason(),
                None => break None,
            }
        }
    };
    assert_eq!(timeout(PATIENCE, reset).await.unwrap(), Some(h2::Reason::CANCEL));
    let mut short = timeout(PATIENCE, send("/slow/v1/short")).await.unwrap().unwrap().into_body();
    assert_eq!(timeout(PATIENCE, short.data()).await.unwrap().unwrap().unwrap(), "short");
}

#[tokio::test]
async fn an_idle_http_2_connection_is_closed() {
    let limits = ServeLimits { idle_timeout: Duration::from_millis(100), ..ServeLimits::default() };
    let router = Router::new().route("/short", get(|| async { "short" }));
    let server = Server::start_with(limits, |gateway| gateway.mount("/slow/v1", router, AccessRules::open())).await;
    let socket = TcpStream::connect(server.address).await.unwrap();
    let (mut client, connection) = h2::client::Builder::new().handshake::<_, Bytes>(socket).await.unwrap();
    let closed = tokio::spawn(connection);
    let request = http::Request::get(server.url("/slow/v1/short")).body(()).unwrap();
    let response = client.send_request(request, true).unwrap().0;
    assert_eq!(timeout(PATIENCE, response).await.unwrap().unwrap().status(), 200);
    timeout(PATIENCE, closed).await.expect("the server closes it").unwrap().unwrap();
}

#[tokio::test]
async fn http_2_is_spoken_without_tls() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().timeout(PATIENCE).build().unwrap();
    let response = client.get(server.url("/auth/v1/user?apikey=x&a=1")).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    assert!(text.contains(r#""path":"/user","query":"a=1""#), "{text}");

    // Also if its preface arrives in pieces
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.set_nodelay(true).unwrap();
    for piece in [b"PRI * HT".as_slice(), b"TP/2.0\r\n\r\nSM\r\n\r\n", &[0, 0, 0, 4, 0, 0, 0, 0, 0]] {
        socket.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut frame = [0; 9];
    timeout(PATIENCE, socket.read_exact(&mut frame)).await.unwrap().unwrap();
    assert_eq!(frame[3], 4, "the server's settings");
}

#[tokio::test]
async fn connections_beyond_the_limit_replace_idle_ones() {
    let limits = ServeLimits { max_connections: 1, head_timeout: PATIENCE, ..ServeLimits::default() };
    let server = Server::start_with(limits, |gateway| gateway).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut byte = [0];
    timeout(PATIENCE, first.read_exact(&mut byte)).await.unwrap().unwrap();

    // An idle one closes for it, and so does one without a request
    for _ in 0..3 {
        let silent = TcpStream::connect(server.address).await.unwrap();
        let mut next = TcpStream::connect(server.address).await.unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        assert!(rest(&mut next).await.starts_with(b"HTTP/1.1 404"));
        drop(silent);
    }
    rest(&mut first).await;
}

#[tokio::test]
async fn a_request_in_progress_is_never_interrupted_for_a_new_connection() {
    let (router, asked, go) = slow();
    let limits = ServeLimits { max_connections: 1, head_timeout: PATIENCE, ..ServeLimits::default() };
    let server = Server::start_with(limits, |gateway| gateway.mount("/slow/v1", router, AccessRules::open())).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(b"GET /slow/v1/wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    asked.notified().await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(timeout(Duration::from_millis(300), second.read_u8()).await.is_err());

    go.notify_one();
    // It gets its response, and then closes without having asked for it
    let response = String::from_utf8(rest(&mut first).await).unwrap();
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("done"), "{response}");
    assert!(rest(&mut second).await.starts_with(b"HTTP/1.1 404"));
}

/// Counts released connections.
struct Rests(Arc<Notify>);

impl Subscriber for Rests {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("portico_gateway::connection")
    }
    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() == Level::TRACE {
            self.0.notify_one();
        }
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

async fn answer(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"}") {
        assert_ne!(timeout(PATIENCE, socket.read_buf(&mut text)).await.unwrap().unwrap(), 0);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_rested_connection_continues() {
    let rested = Arc::new(Notify::new());
    // The server runs on the thread of this test
    let _listening = tracing::subscriber::set_default(Rests(Arc::clone(&rested)));
    let limits = ServeLimits { rest: Duration::from_millis(1), head_timeout: PATIENCE, ..ServeLimits::default() };
    let mut server = Server::start_on(Workers::on_current_runtime(), limits, |gateway| {
        gateway.key_policy(KeyPolicy::Development).mount("/auth/v1", crate::echo(), AccessRules::open()).mount(
            "/large/v1",
            Router::new().route("/", get(async || "x".repeat(LARGE))),
            AccessRules::open(),
        )
    })
    .await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..3 {
        socket.write_all(REQUEST).await.unwrap();
        assert!(answer(&mut socket).await.starts_with("HTTP/1.1 200"));
        timeout(PATIENCE, rested.notified()).await.unwrap();
    }
    // A connection with a partial request does not rest, and responds when the rest arrives
    let (start, end) = REQUEST.split_at(20);
    socket.write_all(start).await.unwrap();
    let mut other = TcpStream::connect(server.address).await.unwrap();
    other.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut other).await.starts_with("HTTP/1.1 200"));
    timeout(PATIENCE, rested.notified()).await.unwrap();
    socket.write_all(end).await.unwrap();
    assert!(answer(&mut socket).await.starts_with("HTTP/1.1 200"));

    // A response that its client does not read yet is not released either
    other.write_all(b"GET /large/v1/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    for _ in 0..3 {
        timeout(PATIENCE, rested.notified()).await.unwrap();
        socket.write_all(REQUEST).await.unwrap();
        assert!(answer(&mut socket).await.starts_with("HTTP/1.1 200"));
    }
    timeout(PATIENCE, rested.notified()).await.unwrap();
    let large = rest(&mut other).await;
    assert!(large.len() > LARGE && large.ends_with(b"xxx"), "{}", large.len());

    // A resting connection does not delay the shutdown
    server.stop.take().unwrap().send(()).unwrap();
    timeout(PATIENCE, server.ended).await.unwrap().unwrap().unwrap();
    assert!(rest(&mut socket).await.is_empty());
}

/// More bytes than the system buffers for a client that does not read.
const LARGE: usize = 16 * 1024 * 1024;
