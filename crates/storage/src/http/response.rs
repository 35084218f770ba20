//! The responses that the routes have in common.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// Returns a response without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Returns a response with plain text.
pub(crate) fn text(text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns a response with JSON that is already text. It is for its caller at this moment only,
/// unless its route says otherwise.
pub(crate) fn json_bytes(json: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(json.into()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// Returns a response with JSON.
pub(crate) fn json_response(json: &Value) -> Response {
    json_bytes(json.to_string())
}

/// Returns a response with a text for people.
pub(crate) fn message(text: &str) -> Response {
    json_response(&json!({ "message": text }))
}
