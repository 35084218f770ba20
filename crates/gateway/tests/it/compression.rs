//! Responses in the encoding that the client accepts.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::response::Response;
use axum::routing::get;
use futures_util::StreamExt as _;
use portico_gateway::AccessRules;
use reqwest::Method;
use reqwest::header::HeaderMap;
use tokio::sync::Notify;

use crate::Server;

/// Returns a response of this length, with the headers (and `status`) that the query names.
async fn made(Query(wanted): Query<Vec<(String, String)>>) -> Response {
    let mut response = Response::builder();
    let mut length = 5000;
    for (name, value) in &wanted {
        match name.as_str() {
            "status" => response = response.status(value.parse::<u16>().unwrap()),
            "length" => length = value.parse().unwrap(),
            name => response = response.header(name, value),
        }
    }
    response.body(Body::from(text(length))).unwrap()
}

fn text(length: usize) -> String {
    (0..).flat_map(|n: u32| format!("{{\"id\":{n}}}, ").into_bytes()).map(char::from).take(length).collect()
}

async fn server() -> Server {
    Server::start(|gateway| {
        let service = || Router::new().route("/made", get(made));
        gateway.mount("/rest/v1", service(), AccessRules::open().compressed()).mount(
            "/auth/v1",
            service(),
            AccessRules::open(),
        )
    })
    .await
}

struct RawResponse {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl RawResponse {
    /// Returns a header that occurs at most once.
    fn header(&self, name: &str) -> &str {
        assert!(self.headers.get_all(name).iter().count() <= 1, "{name} comes twice");
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    fn read(&self) -> String {
        let mut text = String::new();
        let mut plain: Box<dyn std::io::Read> = match self.header("content-encoding") {
            "br" => Box::new(brotli::Decompressor::new(&self.body[..], 4096)),
            "gzip" => Box::new(flate2::read::GzDecoder::new(&self.body[..])),
            "" => Box::new(&self.body[..]),
            other => panic!("{other}"),
        };
        plain.read_to_string(&mut text).unwrap();
        text
    }
}

async fn ask(server: &Server, method: Method, path: &str, accepted: &[&str]) -> RawResponse {
    let mut request = server.client.request(method, server.url(path));
    for accepted in accepted {
        request = request.header("accept-encoding", *accepted);
    }
    let response = request.send().await.unwrap();
    RawResponse {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.bytes().await.unwrap(),
    }
}

const JSON: &str = "/rest/v1/made?content-type=application/json;%20charset=utf-8";

#[tokio::test]
async fn a_response_has_the_encoding_that_the_client_prefers() {
    let server = server().await;
    for (accepted, encoding) in [
        (&["gzip, deflate, br, zstd"][..], "br"),
        (&["gzip, deflate"], "gzip"),
        (&["br;q=0.5, gzip"], "gzip"),
        (&["*"], "br"),
        (&["br;q=0, *"], "gzip"),
        (&["identity;q=0, gzip;q=0.1"], "gzip"),
        (&["gzip", "br"], "br"),
        (&["identity"], ""),
        (&["gzip;q=0, br;q=0"], ""),
        (&["deflate"], ""),
        (&["*;q=0"], ""),
        (&[], ""),
    ] {
        let response = ask(&server, Method::GET, JSON, accepted).await;
        assert_eq!((response.status, response.header("content-encoding")), (200, encoding), "{accepted:?}");
        assert_eq!(response.read(), text(5000), "{accepted:?}");
        assert_eq!(response.header("content-type"), "application/json; charset=utf-8");
        // Caches have to know of the other encodings even for the plain form
        assert_eq!(response.header("vary"), "Accept-Encoding");
        let length = if encoding.is_empty() { "5000" } else { "" };
        assert_eq!(response.header("content-length"), length);
        assert!(encoding.is_empty() || response.body.len() < 2500);
    }
}

#[tokio::test]
async fn the_vary_header_of_a_service_is_kept() {
    let server = server().await;
    for (own, expected) in [
        ("Accept,%20Prefer,%20Range", "Accept, Prefer, Range, Accept-Encoding"),
        ("accept-encoding,%20Range", "accept-encoding, Range"),
        ("*", "*"),
    ] {
        for accepted in [&["br"][..], &[]] {
            let response = ask(&server, Method::GET, &format!("{JSON}&vary={own}"), accepted).await;
            assert_eq!(response.header("vary"), expected);
        }
    }
}

#[tokio::test]
async fn a_response_that_gains_nothing_is_not_compressed() {
    let server = server().await;
    for path in [
        "/rest/v1/made?content-type=application/json&length=1023",
        "/rest/v1/made?content-type=application/json&length=0",
        "/rest/v1/made?content-type=application/json&status=206",
        "/rest/v1/made?content-type=application/json&cache-control=private,%20No-Transform",
        "/rest/v1/made?content-type=text/event-stream",
        "/rest/v1/made?content-type=image/png",
        "/rest/v1/made?content-type=application/octet-stream",
        "/rest/v1/made",
        // A service whose responses may contain secrets
        "/auth/v1/made?content-type=application/json",
    ] {
        let whole = format!("{path}{}etag=%22a%22&accept-ranges=bytes", if path.contains('?') { '&' } else { '?' });
        let response = ask(&server, Method::GET, &whole, &["br, gzip"]).await;
        assert_eq!((response.header("content-encoding"), response.header("vary")), ("", ""), "{path}");
        assert_eq!((response.header("etag"), response.header("accept-ranges")), ("\"a\"", "bytes"), "{path}");
        assert_eq!(response.header("content-length"), response.body.len().to_string());
        assert!(text(5000).starts_with(&response.read()));
    }
    let encoded = ask(&server, Method::GET, &format!("{JSON}&content-encoding=zstd"), &["br, zstd"]).await;
    assert_eq!((encoded.header("content-encoding"), &encoded.body[..]), ("zstd", text(5000).as_bytes()));
    for status in [204, 304] {
        let empty = ask(&server, Method::GET, &format!("{JSON}&status={status}"), &["br"]).await;
        assert_eq!((empty.status, empty.header("content-encoding"), empty.header("vary")), (status, "", ""));
    }
}

#[tokio::test]
async fn an_error_is_compressed_like_any_response() {
    let response = ask(&server().await, Method::GET, &format!("{JSON}&status=404"), &["br"]).await;
    assert_eq!((response.status, response.header("content-encoding"), response.read()), (404, "br", text(5000)));
}

#[tokio::test]
async fn the_tag_and_ranges_of_the_plain_form_do_not_apply_to_another() {
    let server = server().await;
    for (own, expected) in [
        ("etag=%22a%22", ("W/\"a\"", "")),
        ("etag=W/%22a%22", ("W/\"a\"", "")),
        ("accept-ranges=bytes", ("", "")),
        ("accept-ranges=none", ("", "none")),
        ("accept-ranges=items", ("", "items")),
    ] {
        let response = ask(&server, Method::GET, &format!("{JSON}&{own}"), &["gzip"]).await;
        assert_eq!(response.header("content-encoding"), "gzip");
        assert_eq!((response.header("etag"), response.header("accept-ranges")), expected);
    }
}

#[tokio::test]
async fn head_has_the_headers_of_get() {
    let server = server().await;
    for path in
        [format!("{JSON}&etag=%22a%22"), format!("{JSON}&length=100"), format!("{JSON}&cache-control=no-transform")]
    {
        for accepted in ["gzip", "identity"] {
            let get = ask(&server, Method::GET, &path, &[accepted]).await;
            let head = ask(&server, Method::HEAD, &path, &[accepted]).await;
            assert!(head.body.is_empty());
            for name in ["content-type", "content-encoding", "content-length", "vary", "etag"] {
                assert_eq!(head.header(name), get.header(name), "{name} of {path} as {accepted}");
            }
        }
    }
}

#[tokio::test]
async fn a_long_response_arrives_whole_in_either_encoding_and_over_http_2() {
    let server = server().await;
    let length = 3_000_001;
    let http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    for client in [&server.client, &http2] {
        for accepted in ["br", "gzip"] {
            let url = server.url(&format!("{JSON}&length={length}"));
            let response = client.get(url).header("accept-encoding", accepted).send().await.unwrap();
            let headers = response.headers().clone();
            let response = RawResponse { status: 200, headers, body: response.bytes().await.unwrap() };
            assert_eq!(response.header("content-encoding"), accepted);
            assert!(response.read() == text(length));
        }
    }
}

#[tokio::test]
async fn a_stream_can_be_read_while_it_is_sent() {
    for accepted in ["br", "gzip"] {
        let read = Arc::new(Notify::new());
        let pieces = {
            let read = Arc::clone(&read);
            move || {
                let read = Arc::clone(&read);
                let pieces = futures_util::stream::iter(["first", "second", "third"]).then(move |piece| {
                    let read = Arc::clone(&read);
                    async move {
                        // Each is sent only when the one before has been read
                        if piece != "first" {
                            read.notified().await;
                        }
                        Ok::<_, Infallible>(piece)
                    }
                });
                Response::builder().header("content-type", "text/csv").body(Body::from_stream(pieces)).unwrap()
            }
        };
        let service = Router::new().route("/stream", get(async move || pieces()));
        let server =
            Server::start(|gateway| gateway.mount("/rest/v1", service, AccessRules::open().compressed())).await;
        let mut response = server.get("/rest/v1/stream").header("accept-encoding", accepted).send().await.unwrap();
        assert_eq!(response.headers()["content-encoding"], accepted);
        let mut come = Vec::new();
        for expected in ["first", "firstsecond", "firstsecondthird"] {
            while read_so_far(&come, accepted) != expected {
                come.extend(response.chunk().await.unwrap().expect("more"));
            }
            read.notify_one();
        }
        while let Some(rest) = response.chunk().await.unwrap() {
            come.extend(rest);
        }
        assert_eq!(read_so_far(&come, accepted), "firstsecondthird");
    }
}

/// Decodes what is readable of the beginning of a response.
fn read_so_far(come: &[u8], encoding: &str) -> String {
    let read = if encoding == "br" {
        let mut reader = brotli::DecompressorWriter::new(Vec::new(), 4096);
        reader.write_all(come).unwrap();
        reader.get_ref().clone()
    } else {
        let mut reader = flate2::write::GzDecoder::new(Vec::new());
        reader.write_all(come).unwrap();
        let _ = reader.flush();
        reader.get_ref().clone()
    };
    String::from_utf8(read).unwrap()
}
