//! Cross-origin rules: every page may call every service, since keys and tokens protect them, not the origin.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

const METHODS: HeaderValue = HeaderValue::from_static("GET,HEAD,PUT,PATCH,POST,DELETE,OPTIONS,TRACE,CONNECT");
const ANY: HeaderValue = HeaderValue::from_static("*");

/// What pages may read of an answer when the service does not say.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Content-Encoding, Content-Location, Content-Range, Content-Type, Date, ETag, Link, Location, Preference-Applied, \
     Retry-After, Server-Timing, X-RateLimit-Name, X-Total-Count, X-Supabase-Api-Version, x-sb-error-code, \
     sb-request-id, x-request-id",
);

/// Whether a browser asks what it may send.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer: it may. The requested headers are echoed, since applications send their own ones too.
pub(crate) fn preflight(asked: &HeaderMap) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::OK;
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    headers.insert(header::VARY, HeaderValue::from_static("Origin, Access-Control-Request-Headers"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    answer
}

/// Opens an answer to every page. Credentials (cookies) are never used, so they are never allowed.
pub(crate) fn open_to_pages(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
    headers.entry(header::ACCESS_CONTROL_EXPOSE_HEADERS).or_insert(EXPOSED);
}
