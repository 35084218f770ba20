//! Targets with characters that should be percent-encoded.

use portico_gateway::KeyPolicy;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{PATIENCE, Server};

const RAW: &str = "GET /auth/v1/user?a=b->>c&d=\"<`{}|\\^é HTTP/1.1\r\nhost: x\r\n\r\n";
const QUERY: &str = "a=b-%3E%3Ec&d=%22%3C%60{}|\\^é";

/// Sends the pieces one after the other, and reads one response: its head, and its body by its
/// length.
pub async fn ask(socket: &mut TcpStream, pieces: &[&[u8]]) -> (String, Vec<u8>) {
    socket.set_nodelay(true).unwrap();
    for piece in pieces {
        socket.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    answer(socket).await
}

pub async fn answer(socket: &mut TcpStream) -> (String, Vec<u8>) {
    let read = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.unwrap();
        (head, body)
    };
    timeout(PATIENCE, read).await.expect("an answer")
}

fn query((head, body): (String, Vec<u8>)) -> String {
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let echo: Value = serde_json::from_slice(&body).unwrap();
    echo["query"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn unencoded_characters_are_accepted_in_every_request() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..3 {
        assert_eq!(query(ask(&mut socket, &[RAW.as_bytes()]).await), QUERY);
        let (start, end) = RAW.as_bytes().split_at(24);
        assert_eq!(query(ask(&mut socket, &[start, end]).await), QUERY);
        // Also behind a body of either kind
        let post = b"POST /auth/v1/read?\"> HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\n";
        for pieces in [vec![&post[..], b"GET />\r\n"], vec![&post[..], b"GET", b" />\r\n"]] {
            let (head, body) = ask(&mut socket, &pieces).await;
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert_eq!(body, b"8");
        }
        let (head, body) = ask(&mut socket, &[&[&post[..], b"\"<GET />"].concat()]).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body, b"8");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_one_after_the_other() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let plain = "GET /auth/v1/user?plain HTTP/1.1\r\nhost: x\r\n\r\n";
    let ahead = [RAW, plain, RAW].concat();
    assert_eq!(query(ask(&mut socket, &[ahead.as_bytes()]).await), QUERY);
    assert_eq!(query(answer(&mut socket).await), "plain");
    assert_eq!(query(answer(&mut socket).await), QUERY);
    // Behind a body, too
    let post = "POST /auth/v1/read?> HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n\">";
    let chunks = "POST /auth/v1/read?> HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n>\r\n0\r\n\r\n";
    let ahead = [post, RAW, chunks, chunks, RAW].concat();
    assert_eq!(ask(&mut socket, &[ahead.as_bytes()]).await.1, b"2");
    assert_eq!(query(answer(&mut socket).await), QUERY);
    assert_eq!(answer(&mut socket).await.1, b"1");
    assert_eq!(answer(&mut socket).await.1, b"1");
    assert_eq!(query(answer(&mut socket).await), QUERY);
}

#[tokio::test]
async fn the_next_request_may_follow_a_chunked_body() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let post = b"POST /auth/v1/read?> HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    for _ in 0..2 {
        let (_, body) = ask(&mut socket, &[post, b"7\r\nGET />>\r\n", b"0\r\n\r\n"]).await;
        assert_eq!(body, b"7");
        assert_eq!(query(ask(&mut socket, &[RAW.as_bytes()]).await), QUERY);
    }
    // Malformed chunks close the connection
    socket.write_all(&[&post[..], b"7\nGET />>\r\n0\r\n\r\n", RAW.as_bytes()].concat()).await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut rest)).await.unwrap();
    assert!(!String::from_utf8(rest).unwrap().contains("200 OK"));
}

#[tokio::test]
async fn a_bare_line_feed_in_a_head_is_rejected() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let plain = "GET /auth/v1/user?plain HTTP/1.1\r\nhost: x\r\n\r\n";
    let post = "POST /auth/v1/read HTTP/1.1\r\nhost: x\r\n";
    for head in [
        "GET /auth/v1/user HTTP/1.1\nhost: x\r\n\r\n",
        "GET /auth/v1/user HTTP/1.1\r\nhost: x\n\r\n",
        "GET /auth/v1/user HTTP/1.1\r\nhost: x\r\n\n",
        "GET /auth/v1/user HTTP/1.1\nhost: x\n\n",
        "\nGET /auth/v1/user HTTP/1.1\r\nhost: x\r\n\r\n",
    ] {
        for before in [
            String::new(),
            plain.to_owned(),
            format!("{post}content-length: 2\r\n\r\n\n\n"),
            format!("{post}transfer-encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n"),
            "GET /auth/v1/user HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n".to_owned(),
        ] {
            let mut socket = TcpStream::connect(server.address).await.unwrap();
            socket.write_all(format!("{before}{head}{plain}").as_bytes()).await.unwrap();
            if !before.is_empty() {
                assert!(answer(&mut socket).await.0.starts_with("HTTP/1.1 200"), "{before:?}");
            }
            assert!(answer(&mut socket).await.0.starts_with("HTTP/1.1 400"), "{before:?} {head:?}");
            assert_eq!(timeout(PATIENCE, socket.read(&mut [0])).await.unwrap().unwrap_or_default(), 0);
        }
    }
}

#[tokio::test]
async fn a_request_that_does_not_name_one_host_is_rejected() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    for (version, hosts, status) in [
        ("1.1", "", "400"),
        ("1.1", "host: x\r\nhost: x\r\n", "400"),
        ("1.1", "host: x\r\nHost: y\r\n", "400"),
        ("1.1", "host: x y\r\n", "400"),
        ("1.1", "host: x\r\n", "200"),
        ("1.0", "", "200"),
        ("1.0", "host: x\r\nhost: y\r\n", "400"),
    ] {
        for (path, is_there) in [("/auth/v1/user", true), ("/nowhere", false)] {
            let mut socket = TcpStream::connect(server.address).await.unwrap();
            let request = format!("GET {path} HTTP/{version}\r\n{hosts}\r\n");
            let (head, _) = ask(&mut socket, &[request.as_bytes()]).await;
            let status = if is_there || status == "400" { status } else { "404" };
            assert_eq!(head.split(' ').nth(1), Some(status), "{request:?}");
            assert!(head.contains("x-request-id"), "{head}");
        }
    }
    // The host of the target takes precedence
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET http://app.example:81/auth/v1/user HTTP/1.1\r\nhost: evil.example\r\n\r\n";
    let (_, body) = ask(&mut socket, &[request]).await;
    let echo: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(echo["x-forwarded-host"], "app.example:81");

    let client = reqwest::Client::builder().http2_prior_knowledge().timeout(PATIENCE).build().unwrap();
    for (host, status) in [(None, 200), (Some(server.address.to_string()), 200), (Some("evil.example".into()), 400)] {
        let mut request = client.get(server.url("/auth/v1/user"));
        if let Some(host) = &host {
            request = request.header("host", host);
        }
        // The library sends the header along with the target's host
        assert_eq!(request.send().await.unwrap().status(), status, "{host:?}");
    }
}

#[tokio::test]
async fn a_malformed_request_is_rejected() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    for nonsense in [
        "GET /a\x01b HTTP/1.1\r\n\r\n",
        "GET  /a> HTTP/1.1\r\n\r\n",
        "G\"T /a HTTP/1.1\r\n\r\n",
        "GET http://a<b/ HTTP/1.1\r\n\r\n",
    ] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        assert!(ask(&mut socket, &[nonsense.as_bytes()]).await.0.starts_with("HTTP/1.1 400"), "{nonsense}");
    }
    // Not UTF-8
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    assert!(ask(&mut socket, &[b"GET /a\xff HTTP/1.1\r\n\r\n"]).await.0.starts_with("HTTP/1.1 400"));
}
