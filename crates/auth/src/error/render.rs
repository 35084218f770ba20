//! The HTTP responses of errors, in the two forms of the API versions.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::AuthError;

/// A version of the API: the form of error bodies that a client understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApiVersion {
    /// The first version: the header `X-Supabase-Api-Version` is missing or old.
    #[default]
    Initial,
    /// The version of 2024-01-01, and later ones.
    V20240101,
}

/// The header that requests an API version.
pub const API_VERSION_HEADER: HeaderName = HeaderName::from_static("x-supabase-api-version");
const API_VERSION_2024: HeaderValue = HeaderValue::from_static("2024-01-01");
const ERROR_CODE_HEADER: HeaderName = HeaderName::from_static("x-sb-error-code");
const RATE_LIMIT_HEADER: HeaderName = HeaderName::from_static("x-ratelimit-name");

impl ApiVersion {
    /// Reads the value of the header. A value that is not a date means the initial version.
    pub fn parse(text: Option<&str>) -> Self {
        let is_date = |text: &&str| {
            let bytes = text.as_bytes();
            bytes.len() == 10
                && bytes.iter().enumerate().all(|(at, byte)| match at {
                    4 | 7 => *byte == b'-',
                    _ => byte.is_ascii_digit(),
                })
                && ("01"..="12").contains(&&text[5..7])
                && ("01"..="31").contains(&&text[8..10])
        };
        match text.map(str::trim).filter(is_date) {
            Some(date) if date >= "2024-01-01" => Self::V20240101,
            _ => Self::Initial,
        }
    }
}

/// The SQLSTATEs whose message the initial version shows to clients, with status 500.
const SHOWN_SQLSTATES: &[&str] = &["P0001", "23000", "23001", "23502", "23503", "23505", "23514", "23P01"];

/// Renders an error in the form of the given version.
pub fn render(error: &AuthError, version: ApiVersion, request_id: Option<&str>) -> Response {
    error.log();
    if let AuthError::OAuth(error) = error {
        let body = json!({"error": error.error(), "error_description": error.to_string()});
        let mut response = json_response(StatusCode::BAD_REQUEST, &body);
        if version == ApiVersion::V20240101 {
            response.headers_mut().insert(API_VERSION_HEADER, API_VERSION_2024);
        }
        return response;
    }
    if let (AuthError::Sql { source, .. }, ApiVersion::Initial) = (error, version)
        && let Some((status, body)) = shown_sql_error(source)
    {
        return json_response(status, &body);
    }
    let (status, code, message) = (error.status(), error.code().as_str(), error.to_string());
    let mut body = Map::new();
    match version {
        ApiVersion::Initial => {
            body.insert("code".into(), status.as_u16().into());
            body.insert("error_code".into(), code.into());
            body.insert("msg".into(), message.into());
            if let Some(id) = request_id
                && status.is_server_error()
            {
                body.insert("error_id".into(), id.into());
            }
        }
        ApiVersion::V20240101 => {
            body.insert("code".into(), code.into());
            body.insert("message".into(), message.into());
        }
    }
    if let AuthError::WeakPassword(weak) = error {
        body.insert("weak_password".into(), json!({"reasons": weak.reasons_json()}));
    }
    let mut response = json_response(status, &Value::Object(body));
    let headers = response.headers_mut();
    let is_new_weak_password = matches!(error, AuthError::WeakPassword(_)) && version == ApiVersion::V20240101;
    if !is_new_weak_password {
        headers.insert(ERROR_CODE_HEADER, HeaderValue::from_static(code));
    }
    if version == ApiVersion::V20240101 {
        headers.insert(API_VERSION_HEADER, API_VERSION_2024);
    }
    match error {
        AuthError::TooMany { retry_after, limit, .. } => {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after.as_secs().max(1)));
            headers.insert(RATE_LIMIT_HEADER, HeaderValue::from_static(limit));
        }
        AuthError::Unavailable { .. } => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

fn shown_sql_error(source: &tokio_postgres::Error) -> Option<(StatusCode, Value)> {
    let error = source.as_db_error()?;
    let state = error.code().code();
    let status = if SHOWN_SQLSTATES.contains(&state) {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        let number: u16 = state.strip_prefix("PT")?.parse().ok()?;
        // An informational status cannot end a request
        StatusCode::from_u16(number).ok().filter(|status| !status.is_informational())?
    };
    let body = json!({
        "code": state,
        "message": error.message(),
        "hint": error.hint().unwrap_or_default(),
        "detail": error.detail().unwrap_or_default(),
    });
    Some((status, body))
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(body.to_string().into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Carries an error from a handler to the layer that knows the API version of the request.
#[derive(Clone)]
pub(crate) struct Failed(pub std::sync::Arc<AuthError>);

impl IntoResponse for AuthError {
    /// Returns a response without a body. The outermost layer of the router renders it in the form
    /// that the request asked for.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(Failed(std::sync::Arc::new(self)));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ContractError, OAuthError, WeakPassword, WeakPasswordReason};

    #[test]
    fn an_api_version_is_read_from_its_date() {
        for (text, expected) in [
            (None, ApiVersion::Initial),
            (Some(""), ApiVersion::Initial),
            (Some("2023-12-31"), ApiVersion::Initial),
            (Some("2024-01-01"), ApiVersion::V20240101),
            (Some("2031-05-06"), ApiVersion::V20240101),
            (Some("2031-13-06"), ApiVersion::Initial),
            (Some("latest"), ApiVersion::Initial),
            (Some("2024-01-0é"), ApiVersion::Initial),
        ] {
            assert_eq!(ApiVersion::parse(text), expected, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_rejection_has_a_body_for_each_version() {
        let body = async |response: Response| {
            let bytes = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        let error = AuthError::from(ContractError::InvalidLogin);
        let old = render(&error, ApiVersion::Initial, None);
        assert!(old.headers().get(API_VERSION_HEADER).is_none());
        assert_eq!(
            body(old).await,
            r#"{"code":400,"error_code":"invalid_credentials","msg":"Invalid login credentials"}"#
        );
        let new = render(&error, ApiVersion::V20240101, None);
        assert_eq!(new.headers()["x-supabase-api-version"], "2024-01-01");
        assert_eq!(new.headers()["x-sb-error-code"], "invalid_credentials");
        assert_eq!(body(new).await, r#"{"code":"invalid_credentials","message":"Invalid login credentials"}"#);
        let weak = AuthError::WeakPassword(WeakPassword {
            reasons: vec![WeakPasswordReason::Length],
            message: "short".into(),
        });
        let new = render(&weak, ApiVersion::V20240101, None);
        assert!(new.headers().get("x-sb-error-code").is_none());
        assert_eq!(
            body(new).await,
            r#"{"code":"weak_password","message":"short","weak_password":{"reasons":["length"]}}"#
        );
    }

    #[test]
    fn the_version_is_echoed_on_every_shape_of_error() {
        let error = AuthError::from(OAuthError::IdTokenRequired);
        assert!(render(&error, ApiVersion::Initial, None).headers().get(API_VERSION_HEADER).is_none());
        let new = render(&error, ApiVersion::V20240101, None);
        assert_eq!(new.headers()["x-supabase-api-version"], "2024-01-01");
    }
}
