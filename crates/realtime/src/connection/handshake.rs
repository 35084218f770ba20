//! The handshake: the checks of an upgrade request, and the upgrade.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use portico_base::{hash, inherit_request};
use serde_json::{Map, Value, json};

use super::task;
use crate::error::TokenRejection;
use crate::service::{AdmittedSocket, RealtimeService};
use crate::socket::SocketHead;
use crate::socket::frame::Version;

/// Completes the key of a handshake (RFC 6455, 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The origin of a request.
pub struct RequestOrigin {
    /// False for a page that may not use secret keys.
    pub may_be_privileged: bool,
    /// Kept for as long as the connection is open, if it is upgraded: its place among the
    /// connections of the listener.
    pub connection: Option<Box<dyn Send + Sync>>,
}

/// Responds to an upgrade request, and serves the socket on the current runtime.
pub(crate) fn respond(service: &Arc<RealtimeService>, mut request: Request, origin: RequestOrigin) -> Response {
    if request.method() != Method::GET {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let Some(accept) = accepted_key(request.headers()) else {
        return (StatusCode::BAD_REQUEST, "a WebSocket upgrade is required").into_response();
    };
    let query = HandshakeQuery::of(request.uri().query().unwrap_or_default());
    let Some(version) = Version::parse(query.version.as_deref()) else {
        return StatusCode::FORBIDDEN.into_response();
    };
    let (head, slot) = match admit(service, request.headers(), query.api_key, version, origin.may_be_privileged) {
        Ok(admitted) => admitted,
        Err(rejection) => return reject(&rejection),
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        // HTTP/2 has another way to begin a WebSocket, which clients use behind TLS only
        return (StatusCode::BAD_REQUEST, "a WebSocket needs HTTP/1.1").into_response();
    };
    let service = Arc::clone(service);
    tokio::spawn(inherit_request(async move {
        match upgrade.await {
            Ok(upgraded) => {
                task::serve(service, head, TokioIo::new(upgraded)).await;
                drop(origin.connection);
            }
            Err(error) => tracing::debug!(error = %error, "a connection was lost during its upgrade"),
        }
        drop(slot);
    }));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// A reason to reject a handshake.
enum HandshakeRejection {
    NoKey,
    Token(TokenRejection),
    TooManySockets,
    TooManyJoins,
}

fn reject(rejection: &HandshakeRejection) -> Response {
    let (status, message) = match rejection {
        HandshakeRejection::NoKey => (StatusCode::UNAUTHORIZED, "API key is missing".to_owned()),
        HandshakeRejection::Token(rejection) => (StatusCode::UNAUTHORIZED, rejection.at_handshake()),
        HandshakeRejection::TooManySockets => (StatusCode::TOO_MANY_REQUESTS, "Too many connected users".to_owned()),
        HandshakeRejection::TooManyJoins => (StatusCode::TOO_MANY_REQUESTS, "Too many joins per second".to_owned()),
    };
    (status, axum::Json(json!({ "error": message }))).into_response()
}

fn admit(
    service: &Arc<RealtimeService>,
    headers: &HeaderMap,
    api_key: Option<String>,
    version: Version,
    may_be_privileged: bool,
) -> Result<(SocketHead, AdmittedSocket), HandshakeRejection> {
    let of_header = ["x-api-key", "apikey"].into_iter().find_map(|name| headers.get(name));
    let of_header = of_header.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let key = of_header.or(api_key).filter(|key| !key.is_empty()).ok_or(HandshakeRejection::NoKey)?;
    let token = service.verifier.token_of_key(&key);
    service.verifier.verify(&token, may_be_privileged).map_err(HandshakeRejection::Token)?;
    let slot = service.admit_socket().ok_or(HandshakeRejection::TooManySockets)?;
    if service.joins.exceeds(service.settings.limits.max_joins_per_second) {
        return Err(HandshakeRejection::TooManyJoins);
    }
    let headers = visible_headers(headers).into();
    Ok((SocketHead { version, token: token.into(), headers, may_be_privileged }, slot))
}

/// Returns the headers that policies see, as a JSON object: those whose names begin with `x-`.
fn visible_headers(headers: &HeaderMap) -> String {
    let visible = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-") && *name != "x-api-key");
    let visible = visible.map(|(name, value)| {
        (name.as_str().to_owned(), Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    Value::Object(visible.collect::<Map<_, _>>()).to_string()
}

/// Returns `Sec-WebSocket-Accept`; `None` if the request is not a handshake.
fn accepted_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has_token = |name: header::HeaderName, token: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(token))
    };
    let is_handshake = has_token(header::CONNECTION, "upgrade")
        && has_token(header::UPGRADE, "websocket")
        && headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_handshake)?;
    let whole = [key.as_bytes(), KEY_SUFFIX.as_bytes()].concat();
    let digest = hex::decode(hash::sha1_hex(&whole)).ok()?;
    HeaderValue::from_str(&STANDARD.encode(digest)).ok()
}

/// The parameters of the URL that matter. The others are ignored.
#[derive(Default)]
struct HandshakeQuery {
    api_key: Option<String>,
    version: Option<String>,
}

impl HandshakeQuery {
    fn of(query: &str) -> Self {
        let mut found = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "apikey" if found.api_key.is_none() => found.api_key = Some(value.into_owned()),
                "vsn" if found.version.is_none() => found.version = Some(value.into_owned()),
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::fixture::TestService;
    use crate::settings::{RealtimeLimits, RealtimeSettings};

    #[tokio::test]
    async fn a_handshake_beyond_the_limit_is_refused_until_a_socket_has_ended() {
        let limits = RealtimeLimits { max_connections: 2, ..RealtimeLimits::default() };
        let test = TestService::without_database(RealtimeSettings { limits, ..RealtimeSettings::default() });
        let handshake = async || {
            let request = Request::get(format!("/websocket?apikey={}&vsn=2.0.0", test.token("anon")))
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
            let origin = RequestOrigin { may_be_privileged: true, connection: None };
            let response = respond(&test.service, request.body(Body::empty()).unwrap(), origin);
            let (head, body) = response.into_parts();
            (head.status.as_u16(), body.collect().await.unwrap().to_bytes())
        };
        // The request of a test cannot be upgraded, and its place is free again
        for _ in 0..3 {
            assert_eq!(handshake().await.0, 400);
        }
        let places = [test.service.admit_socket(), test.service.admit_socket()];
        assert!(places.iter().all(Option::is_some));
        let refused = br#"{"error":"Too many connected users"}"#;
        assert_eq!(handshake().await, (429, Bytes::from_static(refused)));
        drop(places);
        assert_eq!(handshake().await.0, 400);
    }

    #[test]
    fn the_key_of_a_handshake_is_answered_as_the_standard_says() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        assert_eq!(accepted_key(&headers), None);
        headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        assert_eq!(accepted_key(&headers).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        assert_eq!(accepted_key(&headers), None);
    }

    #[test]
    fn policies_see_the_headers_of_the_application_and_no_key() {
        let mut headers = HeaderMap::new();
        headers.insert("x-tenant", HeaderValue::from_static("a"));
        headers.insert("x-api-key", HeaderValue::from_static("secret"));
        headers.insert(header::COOKIE, HeaderValue::from_static("b"));
        assert_eq!(visible_headers(&headers), r#"{"x-tenant":"a"}"#);
    }

    #[test]
    fn other_parameters_are_ignored() {
        let query = HandshakeQuery::of("log_level=info&apikey=a%2Bb&vsn=2.0.0&vsn=1.0.0");
        assert_eq!((query.api_key.as_deref(), query.version.as_deref()), (Some("a+b"), Some("2.0.0")));
    }
}
