//! Responses that the gateway gives itself.

use std::borrow::Cow;

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::json;

/// The reasons for which the gateway responds in place of a service. The bodies are those of
/// Supabase's gateway where it has one: `message`, sometimes with `hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    NoRoute,
    /// The request names no host, several, or an invalid one.
    WrongHost,
    NoKey,
    WrongKey,
    SecretKeyInBrowser,
    /// A published secret key came with a page of another website.
    SecretKeyOfOtherPage,
    TargetTooLong,
    HeadersTooLarge,
    BodyTooLarge {
        limit: usize,
    },
    MethodNotAllowed,
    TooSlow,
    Panicked,
}

impl Rejection {
    fn contract(self) -> (StatusCode, &'static str, Option<&'static str>) {
        match self {
            Self::NoRoute => (StatusCode::NOT_FOUND, "no Route matched with those values", None),
            Self::WrongHost => (StatusCode::BAD_REQUEST, "A request must name one valid host", None),
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
            Self::SecretKeyOfOtherPage => (
                StatusCode::FORBIDDEN,
                "Forbidden use of a secret API key from another website",
                Some(
                    "The keys of a development server are published, so it takes secret keys and service_role tokens only from programs, \
                     from pages of this machine, and from the sites of [auth] site_url and additional_redirect_urls.",
                ),
            ),
            Self::TargetTooLong => (StatusCode::URI_TOO_LONG, "Request URL too long (max 65000 bytes)", None),
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

    /// Returns the error code that clients of the account service read, where the rejection may
    /// take the place of its response.
    fn code(self) -> Option<&'static str> {
        match self {
            Self::BodyTooLarge { .. } => Some("request_entity_too_large"),
            Self::TooSlow => Some("request_timeout"),
            Self::Panicked => Some("unexpected_failure"),
            _ => None,
        }
    }

    pub(crate) fn response(self) -> Response<Body> {
        let (status, message, hint) = self.contract();
        let message = match self {
            Self::BodyTooLarge { limit } => Cow::Owned(format!("{message} (max {limit} bytes)")),
            _ => Cow::Borrowed(message),
        };
        let code = self.code();
        let body = match (code, hint) {
            // Both spellings of the account service's errors, since the gateway does not know which
            // one the client reads
            (Some(code), _) => json!({ "code": code, "error_code": code, "message": message, "msg": message }),
            (None, Some(hint)) => json!({ "message": message, "hint": hint }),
            (None, None) => json!({ "message": message }),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        if let Some(code) = code {
            headers.insert(HeaderName::from_static("x-sb-error-code"), HeaderValue::from_static(code));
        }
        match self {
            Self::NoKey | Self::WrongKey | Self::SecretKeyInBrowser => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Key realm=\"portico\""));
            }
            Self::MethodNotAllowed => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            _ => {}
        }
        response
    }
}
