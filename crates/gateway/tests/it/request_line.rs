//! Targets that hold what belongs percent-encoded.

use portico_gateway::KeyPolicy;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{PATIENCE, Server};

const RAW: &str = "GET /auth/v1/user?a=b->>c&d=\"<`{}|\\^é HTTP/1.1\r\nhost: x\r\n\r\n";
const QUERY: &str = "a=b-%3E%3Ec&d=%22%3C%60{}|\\^é";

/// Sends the pieces one after the other, and reads one answer: its head, and its body as far as its length says.
pub async fn ask(socket: &mut TcpStream, pieces: &[&[u8]]) -> (String, Vec<u8>) {
    socket.set_nodelay(true).unwrap();
    for piece in pieces {
        socket.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    answer(socket).await
}

async fn answer(socket: &mut TcpStream) -> (String, Vec<u8>) {
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
    let told: Value = serde_json::from_slice(&body).unwrap();
    told["query"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn raw_characters_are_taken_request_after_request() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..3 {
        assert_eq!(query(ask(&mut socket, &[RAW.as_bytes()]).await), QUERY);
        let (start, end) = RAW.as_bytes().split_at(24);
        assert_eq!(query(ask(&mut socket, &[start, end]).await), QUERY);
        // Also behind a body, however it comes
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
async fn requests_sent_ahead_are_answered_as_far_as_they_are_encoded() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let plain = "GET /auth/v1/user?plain HTTP/1.1\r\nhost: x\r\n\r\n";
    let ahead = [RAW, plain, RAW].concat();
    assert_eq!(query(ask(&mut socket, &[ahead.as_bytes()]).await), QUERY);
    assert_eq!(query(answer(&mut socket).await), "plain");
    assert!(answer(&mut socket).await.0.starts_with("HTTP/1.1 400"));
    assert_eq!(timeout(PATIENCE, socket.read(&mut [0])).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn behind_a_body_in_chunks_nothing_is_changed_any_more() {
    let server = Server::with_echo(KeyPolicy::Development).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let post = b"POST /auth/v1/read?> HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let (_, body) = ask(&mut socket, &[post, b"7\r\nGET />>\r\n", b"0\r\n\r\n"]).await;
    assert_eq!(body, b"7");
    let plain = b"GET /auth/v1/user?plain HTTP/1.1\r\nhost: x\r\n\r\n";
    assert_eq!(query(ask(&mut socket, &[plain]).await), "plain");
    assert!(ask(&mut socket, &[RAW.as_bytes()]).await.0.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn what_is_no_request_is_refused_as_ever() {
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
    // No UTF-8
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    assert!(ask(&mut socket, &[b"GET /a\xff HTTP/1.1\r\n\r\n"]).await.0.starts_with("HTTP/1.1 400"));
}
