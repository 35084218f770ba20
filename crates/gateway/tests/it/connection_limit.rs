//! The connections that close when the connection limit is reached.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use portico_gateway::{AccessRules, KeyPolicy, ServeLimits, Workers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::{PATIENCE, Server, echo, slow};

const REQUEST: &[u8] = b"GET /auth/v1/user HTTP/1.1\r\nhost: x\r\n\r\n";
const PART: &[u8] = b"GET /auth/v1/user HTTP/1.1\r\nhost:";

/// Limits by which no connection closes because of time.
fn limits(max_connections: usize) -> ServeLimits {
    ServeLimits {
        max_connections,
        head_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        new_for: Duration::ZERO,
        ..ServeLimits::default()
    }
}

async fn server(limits: ServeLimits) -> Server {
    // One thread, so that bytes that were sent first are read first
    Server::start_on(Workers::on_current_runtime(), limits, |gateway| {
        gateway.key_policy(KeyPolicy::Development).mount("/auth/v1", echo(), AccessRules::open())
    })
    .await
}

/// Sends a request and reads the response; an error if the connection has closed.
async fn ask(socket: &mut TcpStream) -> std::io::Result<()> {
    socket.write_all(REQUEST).await?;
    let mut response = Vec::new();
    while !response.ends_with(b"}") {
        if timeout(PATIENCE, socket.read_buf(&mut response)).await.expect("an answer or an end")? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
    Ok(())
}

/// Waits until the server closes the connection.
async fn ends(socket: &mut TcpStream) {
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("the connection ends");
    assert!(rest.is_empty());
}

async fn connect(server: &Server, start: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(start).await.unwrap();
    socket
}

async fn connect_from(address: &str, server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(address.parse::<IpAddr>().unwrap(), 0)).unwrap();
    socket.connect(server.address).await.unwrap()
}

#[tokio::test]
async fn a_new_connection_is_served_while_unfinished_heads_fill_the_limit() {
    let server = server(limits(300)).await;
    let mut idle = connect(&server, b"").await;
    ask(&mut idle).await.unwrap();
    let mut unfinished = Vec::new();
    for number in 0..299 {
        unfinished.push(connect(&server, &PART[..number % PART.len()]).await);
    }
    // Each replaces the oldest
    let mut newcomers = Vec::new();
    for oldest in unfinished.iter_mut().take(20) {
        let mut newcomer = connect(&server, b"").await;
        ask(&mut newcomer).await.unwrap();
        ends(oldest).await;
        newcomers.push(newcomer);
    }
    ask(&mut idle).await.expect("one with a whole head stays");
}

#[tokio::test]
async fn a_further_unfinished_head_makes_a_connection_unfinished() {
    let server = server(limits(2)).await;
    let mut partial = connect(&server, b"").await;
    ask(&mut partial).await.unwrap();
    let mut idle = connect(&server, b"").await;
    ask(&mut idle).await.unwrap();
    partial.write_all(PART).await.unwrap();
    // Read behind the partial head
    ask(&mut idle).await.unwrap();
    let mut next = connect(&server, b"").await;
    ask(&mut next).await.unwrap();
    ends(&mut partial).await;
    ask(&mut idle).await.unwrap();
}

#[tokio::test]
async fn new_connections_do_not_close_each_other_while_there_are_idle_ones() {
    let server = server(ServeLimits { new_for: PATIENCE, ..limits(3) }).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut socket = connect(&server, b"").await;
        ask(&mut socket).await.unwrap();
        idle.push(socket);
    }
    let mut new = vec![connect(&server, PART).await];
    for _ in 0..2 {
        new.push(connect(&server, PART).await);
    }
    for socket in &mut idle {
        ends(socket).await;
    }
    for socket in &mut new {
        socket.write_all(b" x\r\n\r\n").await.unwrap();
        let mut start = [0; 12];
        timeout(PATIENCE, socket.read_exact(&mut start)).await.unwrap().unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
}

#[tokio::test]
async fn an_http_2_connection_without_a_request_is_unfinished() {
    let server = server(limits(2)).await;
    let mut idle = connect(&server, b"").await;
    ask(&mut idle).await.unwrap();
    let mut silent = connect(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut settings = [0; 9];
    timeout(PATIENCE, silent.read_exact(&mut settings)).await.unwrap().unwrap();
    let mut next = connect(&server, b"").await;
    ask(&mut next).await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, silent.read_to_end(&mut rest)).await.expect("it ends");
    ask(&mut idle).await.unwrap();
}

#[tokio::test]
async fn a_head_has_its_own_time_limit() {
    let server = server(ServeLimits { head_timeout: Duration::from_millis(50), ..limits(100) }).await;
    let mut idle = connect(&server, b"").await;
    ask(&mut idle).await.unwrap();
    let mut further = connect(&server, b"").await;
    ask(&mut further).await.unwrap();
    further.write_all(PART).await.unwrap();
    ends(&mut further).await;
    for start in [&b""[..], b"\r\n", b"G", PART, b"PRI * HT"] {
        ends(&mut connect(&server, start).await).await;
    }
    let mut http2 = connect(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, http2.read_to_end(&mut rest)).await.expect("it ends");
    ask(&mut idle).await.expect("between two requests there is more time");
}

#[tokio::test]
async fn an_address_at_its_limit_loses_its_own_connections_only() {
    let (router, asked, go) = slow();
    let limits = ServeLimits { max_connections_per_address: 2, unlimited_peers: Vec::new(), ..limits(100) };
    let server = Server::start_on(Workers::on_current_runtime(), limits, |gateway| {
        gateway.key_policy(KeyPolicy::Development).mount("/auth/v1", echo(), AccessRules::open()).mount(
            "/slow/v1",
            router,
            AccessRules::open(),
        )
    })
    .await;
    let mut other = connect_from("127.0.0.3", &server).await;
    other.write_all(PART).await.unwrap();
    let mut first = connect_from("127.0.0.2", &server).await;
    ask(&mut first).await.unwrap();
    let mut second = connect_from("127.0.0.2", &server).await;
    second.write_all(PART).await.unwrap();
    // The unfinished one closes for the third, and the idle one for the fourth
    let mut third = connect_from("127.0.0.2", &server).await;
    ends(&mut second).await;
    third.write_all(b"GET /slow/v1/wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    asked.notified().await;
    let mut fourth = connect_from("127.0.0.2", &server).await;
    ends(&mut first).await;
    fourth.write_all(b"GET /slow/v1/wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    asked.notified().await;
    // No connection closes for a fifth
    ends(&mut connect_from("127.0.0.2", &server).await).await;
    go.notify_one();
    go.notify_one();
    for socket in [&mut third, &mut fourth] {
        let mut start = [0; 12];
        timeout(PATIENCE, socket.read_exact(&mut start)).await.unwrap().unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
    other.write_all(b" x\r\n\r\n").await.unwrap();
    assert_eq!(timeout(PATIENCE, other.read_u8()).await.unwrap().unwrap(), b'H', "another address is not touched");
}

#[tokio::test]
async fn a_proxy_may_have_any_number_of_connections() {
    let limits = ServeLimits { max_connections_per_address: 1, ..limits(100) };
    assert!(limits.unlimited_peers.iter().any(|network| network.contains(&IpAddr::from([127, 0, 0, 1]))));
    let server = server(limits).await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(connect(&server, b"").await);
    }
    for socket in &mut sockets {
        ask(socket).await.unwrap();
    }
}
