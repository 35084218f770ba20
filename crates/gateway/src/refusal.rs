//! Answers that the gateway gives itself.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

/// Why a request is answered here and not by a service. The bodies are those of the wire contract where it has
/// one: `message`, sometimes with `hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoRoute,
    NoKey,
    WrongKey,
    SecretKeyInBrowser,
    HeadersTooLarge,
    BodyTooLarge { limit: usize },
    MethodNotAllowed,
    TooSlow,
    Panicked,
}

impl Refusal {
    fn contract(self) -> (StatusCode, &'static str, Option<&'static str>) {
        match self {
            Self::NoRoute => (StatusCode::NOT_FOUND, "no Route matched with those values", None),
            Self::NoKey => (
                StatusCode::UNAUTHORIZED,
                "No API key found in request",
                Some("No `apikey` request header or url param was found."),
            ),
            Self::WrongKey => (
                StatusCode::UNAUTHORIZED,
                "Invalid API key",
                Some("Double check your Supabase `anon` or `service_role` API key."),
            ),
            Self::SecretKeyInBrowser => (
                StatusCode::UNAUTHORIZED,
                "Forbidden use of secret API key in browser",
                Some(
                    "Secret API keys can only be used in a protected environment and should never be used in a \
                     browser. Delete this secret API key immediately.",
                ),
            ),
            Self::HeadersTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "Request headers too large (max 65536 bytes)", None)
            }
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "Request body too large", None),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", None),
            Self::TooSlow => {
                (StatusCode::GATEWAY_TIMEOUT, "Processing this request timed out, please retry after a moment.", None)
            }
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error", None),
        }
    }

    pub(crate) fn answer(self) -> Response<Body> {
        let (status, message, hint) = self.contract();
        let body = match (self, hint) {
            (Self::BodyTooLarge { limit }, _) => json!({ "message": format!("{message} (max {limit} bytes)") }),
            (_, Some(hint)) => json!({ "message": message, "hint": hint }),
            (_, None) => json!({ "message": message }),
        };
        let mut answer = Response::new(Body::from(body.to_string()));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        match self {
            Self::NoKey | Self::WrongKey | Self::SecretKeyInBrowser => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Key realm=\"portico\""));
            }
            Self::MethodNotAllowed => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            _ => {}
        }
        answer
    }
}
