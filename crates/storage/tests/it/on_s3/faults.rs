//! A store that fails.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::{HeaderValue, Method, StatusCode, header};
use portico_storage::{BackendSettings, S3StoreSettings};
use tokio::net::TcpListener;

use super::helper::{Files, assert_error};
use super::place::server_url;
use super::s3;

/// A fault of the next request that it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The store responds with a status, and does nothing.
    Status(u16),
    /// The connection ends after some bytes of a download.
    Cut(usize),
    /// The store does it, and its response is lost.
    LostAnswer,
}

/// Faults in the order of the requests with a method and a text in their URL.
type Faults = Arc<Mutex<Vec<(&'static str, &'static str, Fault)>>>;

/// Stands between Portico and the store, and fails as a test says.
async fn proxy(faults: Faults) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // The server installs it too, but starts behind this client
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let http = reqwest::Client::new();
    let app = axum::Router::new().fallback(forward).with_state((faults, http));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn forward(State((faults, http)): State<(Faults, reqwest::Client)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let fault = {
        let mut faults = faults.lock().unwrap();
        let uri = parts.uri.to_string();
        let fits = |(method, text, _): &(&str, &str, Fault)| parts.method.as_str() == *method && uri.contains(text);
        faults.iter().position(fits).map(|at| faults.remove(at).2)
    };
    if let Some(Fault::Status(status)) = fault {
        let document = "<Error><Code>Fault</Code><Message>x</Message></Error>";
        return (StatusCode::from_u16(status).unwrap(), document).into_response();
    }
    let has_length =
        [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|name| parts.headers.contains_key(name));
    if matches!(parts.method, Method::PUT | Method::POST) && !has_length {
        // As some stores do
        let document = "<Error><Code>MissingContentLength</Code><Message>x</Message></Error>";
        return (StatusCode::LENGTH_REQUIRED, document).into_response();
    }
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let mut headers = parts.headers;
    headers.remove(header::HOST);
    let sent = http.request(parts.method, format!("{}{}", server_url(), parts.uri)).headers(headers).body(body);
    let answer = sent.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let content = answer.bytes().await.unwrap();
    let body = match fault {
        Some(Fault::LostAnswer) => return (StatusCode::BAD_GATEWAY, "").into_response(),
        Some(Fault::Cut(length)) => {
            let first = content.slice(..length);
            let broken = futures_util::stream::iter([Ok(first)])
                .chain(futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]));
            Body::from_stream(broken)
        }
        _ => Body::from(content.clone()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().remove(header::TRANSFER_ENCODING);
    if response.headers().get(header::CONTENT_LENGTH).is_none() {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(content.len()));
    }
    response
}

async fn with_faults(faults: &Faults) -> Files {
    let url = proxy(Arc::clone(faults)).await;
    let f = Files::with(|settings| store(&mut settings.backend).endpoint = Some(url)).await;
    f.bucket("files", serde_json::json!({})).await;
    f
}

fn store(backend: &mut BackendSettings) -> &mut S3StoreSettings {
    let BackendSettings::S3 { store, .. } = backend else { unreachable!("the backend is a store") };
    store
}

fn fail(faults: &Faults, all: &[(&'static str, &'static str, Fault)]) {
    faults.lock().unwrap().extend(all);
}

fn large() -> Vec<u8> {
    (0..6_000_000_usize).map(|at| ((at * 31 + at / 253) % 251) as u8).collect()
}

#[tokio::test]
async fn requests_that_fail_for_a_moment_are_sent_again() {
    let faults = Faults::default();
    let f = with_faults(&faults).await;
    fail(&faults, &[("PUT", "/a/", Fault::Status(503)), ("PUT", "/a/", Fault::LostAnswer)]);
    f.store("files/a", "one").await.expect(200);
    fail(&faults, &[("GET", "/a/", Fault::Status(500)), ("GET", "/a/", Fault::Status(503))]);
    assert_eq!(f.content("files/a").await, "one");
    for fault in [
        ("POST", "uploads", Fault::Status(503)),
        ("PUT", "partNumber=1", Fault::Status(500)),
        ("PUT", "partNumber=2", Fault::LostAnswer),
        ("POST", "uploadId", Fault::Status(503)),
    ] {
        fail(&faults, &[fault]);
    }
    // The last one succeeds and is not acknowledged to Portico
    fail(&faults, &[("POST", "uploadId", Fault::LostAnswer)]);
    f.service(f.post("/object/files/b").body(large())).send().await.expect(200);
    assert_eq!(*faults.lock().unwrap(), []);
    let read = f.service(f.get("/object/files/b")).send().await.expect(200);
    assert!(read.body == large());
    f.has_files(2).await;
}

#[tokio::test]
async fn a_download_continues_where_its_connection_broke() {
    let faults = Faults::default();
    let f = with_faults(&faults).await;
    f.service(f.post("/object/files/a").body(large())).send().await.expect(200);
    fail(&faults, &[("GET", "/a/", Fault::Cut(1_000_000)), ("GET", "/a/", Fault::Cut(700_000))]);
    let read = f.service(f.get("/object/files/a")).send().await.expect(200);
    assert!(read.body == large());
    fail(&faults, &[("GET", "/a/", Fault::Cut(10))]);
    let part = f.service(f.get("/object/files/a")).header("range", "bytes=100-5000000").send().await.expect(206);
    assert!(part.body == large()[100..=5_000_000]);
    assert_eq!(*faults.lock().unwrap(), []);
}

#[tokio::test]
async fn a_store_that_stays_away_is_an_error_and_leaves_nothing() {
    let faults = Faults::default();
    let f = with_faults(&faults).await;
    fail(&faults, &[("PUT", "/a/", Fault::Status(503)); 4]);
    let failed = f.store("files/a", "one").await;
    assert_error(&failed, 500, "500", "InternalError", "Internal Server Error");
    fail(&faults, &[("PUT", "partNumber=2", Fault::Status(503)); 4]);
    let failed = f.service(f.post("/object/files/b").body(large())).send().await;
    assert_error(&failed, 500, "500", "InternalError", "Internal Server Error");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_files(0).await;
    fail(&faults, &[("PUT", "/a/", Fault::Status(507))]);
    let full = f.store("files/a", "one").await;
    assert_error(&full, 507, "507", "InsufficientStorage", "There is no space left for the object");
    f.store("files/a", "two").await.expect(200);
    assert_eq!(f.content("files/a").await, "two");
}

#[tokio::test]
async fn an_object_is_not_reported_as_missing_when_the_bucket_of_the_store_is() {
    let f = Files::with_buckets().await;
    f.store("files/a", "one").await.expect(200);
    let missing = Files::with(|settings| store(&mut settings.backend).bucket = "not-there".into()).await;
    missing.bucket("files", serde_json::json!({})).await;
    let failed = missing.store("files/a", "one").await;
    assert_error(&failed, 500, "500", "InternalError", "Internal Server Error");
    // The log of the start says why
    f.t.storage().check_backend().await.unwrap();
    let reason = missing.t.storage().check_backend().await.unwrap_err();
    assert!(reason.contains("NoSuchBucket"), "{reason}");
}

#[tokio::test]
async fn requests_without_a_body_have_a_length() {
    let url = proxy(Faults::default()).await;
    let f = s3::start_with(|settings| store(&mut settings.backend).endpoint = Some(url)).await;
    f.store("files/a", "").await.expect(200);
    assert_eq!(f.content("files/a").await, "");
    s3::begin(&f).await;
}
