//! Every way an account request can fail, and the one place where that becomes HTTP.
//!
//! Contract: auth-core 1.4 (two shapes of error bodies, chosen by `X-Supabase-Api-Version`) and 1.6 (the catalogue).
//! Handlers return [`AuthError`]; [`render`] turns it into the body of the version that the request asked for.

use std::borrow::Cow;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use portico_database::DatabaseError;
use serde_json::{Map, Value, json};

pub use crate::http::error_code::ErrorCode;

/// Why a password is too weak, in the order in which reasons are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeakPasswordReason {
    /// Too short.
    Length,
    /// A demanded kind of character is missing.
    Characters,
    /// Known from a breach.
    Pwned,
}

impl WeakPasswordReason {
    /// The reason as clients compare it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Characters => "characters",
            Self::Pwned => "pwned",
        }
    }
}

/// A password that breaks the rules of this project: all reasons, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeakPassword {
    /// In the order length, characters, pwned; never empty.
    pub reasons: Vec<WeakPasswordReason>,
    /// The texts of the reasons, joined.
    pub message: String,
}

impl WeakPassword {
    /// `["length", ...]`
    pub fn reasons_json(&self) -> Value {
        self.reasons.iter().map(|reason| reason.as_str()).collect()
    }
}

/// Every way an account request can fail, as its caller sees it.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A refusal from the catalogue.
    #[error("{message}")]
    Refused {
        /// Usually [`ErrorCode::usual_status`].
        status: StatusCode,
        /// Which one.
        code: ErrorCode,
        /// The contract's text.
        message: Cow<'static, str>,
    },
    /// Too many requests or messages; `Retry-After` is set.
    #[error("{message}")]
    TooMany {
        /// One of the three rate limit codes.
        code: ErrorCode,
        /// The contract's text.
        message: Cow<'static, str>,
        /// How long to wait.
        retry_after: Duration,
        /// Which limit was hit, for the `X-RateLimit-Name` header.
        limit: &'static str,
    },
    /// 422 with the reasons.
    #[error("{}", .0.message)]
    WeakPassword(WeakPassword),
    /// The OAuth-style body `{"error", "error_description"}` with status 400, in both versions.
    #[error("{description}")]
    OAuth {
        /// Such as `invalid request`.
        error: &'static str,
        /// Text for people.
        description: Cow<'static, str>,
    },
    /// A statement failed; what the database said is shown only where the contract demands it.
    #[error("{context}")]
    Sql {
        /// What was being done, as clients see it: "Database error saving new user".
        context: &'static str,
        /// What PostgreSQL said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The database, or our own work queue, can not take the request now: 503.
    #[error("{message}")]
    Unavailable {
        /// For the caller.
        message: &'static str,
        /// For the log.
        #[source]
        source: Option<anyhow::Error>,
    },
    /// Not the caller's fault. The client sees a plain 500; the source goes to the log.
    #[error("{message}")]
    Internal {
        /// For the caller.
        message: Cow<'static, str>,
        /// For the log.
        #[source]
        source: anyhow::Error,
    },
}

/// What an error is on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contract {
    /// HTTP status.
    pub status: StatusCode,
    /// `error_code`.
    pub code: ErrorCode,
    /// `msg` or `message`.
    pub message: String,
}

const UNEXPECTED: &str = "Unexpected failure, please check server logs for more information";
const GENERAL_SQL: &str = "Database error";

impl AuthError {
    /// A refusal with the usual status of its code.
    pub fn refuse(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        let status = StatusCode::from_u16(code.usual_status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self::Refused { status, code, message: message.into() }
    }

    /// A refusal with a status of its own.
    pub fn refuse_with(status: StatusCode, code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { status, code, message: message.into() }
    }

    /// 400 `validation_failed`.
    pub fn validation(message: impl Into<Cow<'static, str>>) -> Self {
        Self::refuse(ErrorCode::ValidationFailed, message)
    }

    /// 400 `invalid_credentials` "Invalid login credentials": the same for an unknown user and a wrong password.
    pub fn invalid_credentials() -> Self {
        Self::refuse(ErrorCode::InvalidCredentials, "Invalid login credentials")
    }

    /// 422 `signup_disabled`.
    pub fn signup_disabled() -> Self {
        Self::refuse(ErrorCode::SignupDisabled, "Signups not allowed for this instance")
    }

    /// 403 `user_not_found`: the account of a token that was just checked is gone.
    pub fn user_gone() -> Self {
        Self::refuse_with(StatusCode::FORBIDDEN, ErrorCode::UserNotFound, "User from sub claim in JWT does not exist")
    }

    /// 403 `user_banned`.
    pub fn user_banned() -> Self {
        Self::refuse(ErrorCode::UserBanned, "User is banned")
    }

    /// 403 `otp_expired`, text for codes that were typed.
    pub fn code_expired() -> Self {
        Self::refuse(ErrorCode::OtpExpired, "Token has expired or is invalid")
    }

    /// 403 `otp_expired`, text for links.
    pub fn link_expired() -> Self {
        Self::refuse(ErrorCode::OtpExpired, "Email link is invalid or has expired")
    }

    /// 422 `email_exists`.
    pub fn email_exists() -> Self {
        Self::refuse(ErrorCode::EmailExists, "A user with this email address has already been registered")
    }

    /// 422 `phone_exists`.
    pub fn phone_exists() -> Self {
        Self::refuse(ErrorCode::PhoneExists, "A user with this phone number has already been registered")
    }

    /// 422 `user_already_exists`.
    pub fn user_already_exists() -> Self {
        Self::refuse(ErrorCode::UserAlreadyExists, "User already registered")
    }

    /// 429 for a message that was asked for again too early.
    pub fn too_early(code: ErrorCode, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self::TooMany {
            code,
            message: format!("For security purposes, you can only request this after {seconds} seconds.").into(),
            retry_after: Duration::from_secs(seconds),
            limit: "per-user-interval",
        }
    }

    /// Something that should not happen.
    pub fn internal(source: impl Into<anyhow::Error>) -> Self {
        Self::Internal { message: UNEXPECTED.into(), source: source.into() }
    }

    /// Something that should not happen, with the contract's text for it.
    pub fn internal_with(message: impl Into<Cow<'static, str>>, source: impl Into<anyhow::Error>) -> Self {
        Self::Internal { message: message.into(), source: source.into() }
    }

    /// The code, if the error has one of the catalogue.
    pub fn code(&self) -> ErrorCode {
        self.contract().code
    }

    /// Status, code and text of the wire contract.
    pub fn contract(&self) -> Contract {
        let (status, code, message) = match self {
            Self::Refused { status, code, message } => (*status, *code, message.to_string()),
            Self::TooMany { code, message, .. } => (StatusCode::TOO_MANY_REQUESTS, *code, message.to_string()),
            Self::WeakPassword(weak) => {
                (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::WeakPassword, weak.message.clone())
            }
            Self::OAuth { description, .. } => (StatusCode::BAD_REQUEST, ErrorCode::Unknown, description.to_string()),
            Self::Sql { context, .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::UnexpectedFailure, (*context).to_owned())
            }
            Self::Unavailable { message, .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::UnexpectedFailure, (*message).to_owned())
            }
            Self::Internal { message, .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::UnexpectedFailure, message.to_string())
            }
        };
        Contract { status, code, message }
    }

    /// Not the caller's fault, and without a text of its own.
    pub(crate) fn is_unexplained(&self) -> bool {
        match self {
            Self::Sql { context, .. } => *context == GENERAL_SQL,
            Self::Internal { message, .. } => message == UNEXPECTED,
            _ => false,
        }
    }

    /// Logs what the operator must know; called once per failed request.
    pub(crate) fn log(&self) {
        match self {
            Self::Internal { source, .. } => tracing::error!(error = format!("{source:#}"), "Request failed"),
            Self::Sql { context, source } => {
                // The message may hold values of the row; the code and the constraint do not
                let state = source.code().map_or("", |state| state.code());
                let constraint = source.as_db_error().and_then(|error| error.constraint()).unwrap_or_default();
                let detail =
                    source.as_db_error().map_or_else(|| source.to_string(), |error| error.message().to_owned());
                tracing::error!(sqlstate = state, constraint, detail, "{context}");
            }
            Self::Unavailable { message, source } => {
                let detail = source.as_ref().map(|error| format!("{error:#}")).unwrap_or_default();
                tracing::warn!(error = detail, "{message}");
            }
            _ => {}
        }
    }
}

impl From<DatabaseError> for AuthError {
    fn from(error: DatabaseError) -> Self {
        if error.is_unavailable() {
            Self::Unavailable {
                message: "The database can not be reached at the moment, please retry after a moment.",
                source: Some(error.into()),
            }
        } else {
            Self::internal(error)
        }
    }
}

impl From<tokio_postgres::Error> for AuthError {
    fn from(source: tokio_postgres::Error) -> Self {
        let error = DatabaseError::from(source);
        if error.is_unavailable() {
            return Self::from(error);
        }
        match error {
            DatabaseError::Postgres(source) => Self::Sql { context: GENERAL_SQL, source },
            other => Self::internal(other),
        }
    }
}

impl From<crate::oauth::pkce::ChallengeError> for AuthError {
    fn from(error: crate::oauth::pkce::ChallengeError) -> Self {
        Self::validation(error.to_string())
    }
}

/// Turns failed statements into answers, where the statement is.
pub trait SqlResultExt<T>: Sized {
    /// The violation of this constraint or unique index is the caller's mistake.
    fn on_constraint(self, name: &str, error: impl FnOnce() -> AuthError) -> Result<T, AuthError>;

    /// Says what was being done, as clients see it.
    fn context(self, what: &'static str) -> Result<T, AuthError>;
}

impl<T> SqlResultExt<T> for Result<T, tokio_postgres::Error> {
    fn on_constraint(self, name: &str, error: impl FnOnce() -> AuthError) -> Result<T, AuthError> {
        self.map_err(AuthError::from).on_constraint(name, error)
    }

    fn context(self, what: &'static str) -> Result<T, AuthError> {
        self.map_err(AuthError::from).context(what)
    }
}

impl<T> SqlResultExt<T> for Result<T, AuthError> {
    fn on_constraint(self, name: &str, error: impl FnOnce() -> AuthError) -> Result<T, AuthError> {
        self.map_err(|failed| match &failed {
            AuthError::Sql { source, .. } if source.as_db_error().and_then(|e| e.constraint()) == Some(name) => error(),
            _ => failed,
        })
    }

    fn context(self, what: &'static str) -> Result<T, AuthError> {
        self.map_err(|failed| match failed {
            AuthError::Sql { source, .. } => AuthError::Sql { context: what, source },
            other => other,
        })
    }
}

/// Which shape of error bodies a client understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApiVersion {
    /// No or an old `X-Supabase-Api-Version`.
    #[default]
    Initial,
    /// 2024-01-01 and later.
    V20240101,
}

/// The header that asks for an API version.
pub const API_VERSION_HEADER: HeaderName = HeaderName::from_static("x-supabase-api-version");
const API_VERSION_2024: HeaderValue = HeaderValue::from_static("2024-01-01");
const ERROR_CODE_HEADER: HeaderName = HeaderName::from_static("x-sb-error-code");
const RATE_LIMIT_HEADER: HeaderName = HeaderName::from_static("x-ratelimit-name");

impl ApiVersion {
    /// Reads the header's value; anything that is no date is the initial version.
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

/// SQLSTATEs whose text the initial version shows to the client, with status 500.
const SHOWN_SQLSTATES: &[&str] = &["P0001", "23000", "23001", "23502", "23503", "23505", "23514", "23P01"];

/// Renders an error as the given version has it.
pub fn render(error: &AuthError, version: ApiVersion, request_id: Option<&str>) -> Response {
    error.log();
    if let AuthError::OAuth { error, description } = error {
        let body = json!({"error": error, "error_description": description});
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
    let contract = error.contract();
    let code = contract.code.as_str();
    let mut body = Map::new();
    match version {
        ApiVersion::Initial => {
            body.insert("code".into(), contract.status.as_u16().into());
            body.insert("error_code".into(), code.into());
            body.insert("msg".into(), contract.message.into());
            if let Some(id) = request_id
                && contract.status.is_server_error()
            {
                body.insert("error_id".into(), id.into());
            }
        }
        ApiVersion::V20240101 => {
            body.insert("code".into(), code.into());
            body.insert("message".into(), contract.message.into());
        }
    }
    if let AuthError::WeakPassword(weak) = error {
        body.insert("weak_password".into(), json!({"reasons": weak.reasons_json()}));
    }
    let mut response = json_response(contract.status, &Value::Object(body));
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
        // An informational status is no answer
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

/// Carries an error from a handler to the layer that knows the request's API version.
#[derive(Clone)]
pub(crate) struct Failed(pub std::sync::Arc<AuthError>);

impl IntoResponse for AuthError {
    /// A response without a body; the router's outermost layer renders it in the shape that the request asked for.
    fn into_response(self) -> Response {
        let mut response = self.contract().status.into_response();
        response.extensions_mut().insert(Failed(std::sync::Arc::new(self)));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions() {
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

    #[test]
    fn codes_are_unique_and_have_statuses() {
        let mut seen = std::collections::HashSet::new();
        for code in ErrorCode::ALL {
            assert!(seen.insert(code.as_str()), "{code:?}");
            assert!(StatusCode::from_u16(code.usual_status()).is_ok());
        }
    }

    #[tokio::test]
    async fn both_shapes_of_a_refusal() {
        let body = async |response: Response| {
            let bytes = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        let error = AuthError::invalid_credentials();
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
        let error = AuthError::OAuth { error: "invalid_request", description: "no".into() };
        assert!(render(&error, ApiVersion::Initial, None).headers().get(API_VERSION_HEADER).is_none());
        let new = render(&error, ApiVersion::V20240101, None);
        assert_eq!(new.headers()["x-supabase-api-version"], "2024-01-01");
    }

    #[test]
    fn too_early_rounds_up_and_says_when_to_come_back() {
        let error = AuthError::too_early(ErrorCode::OverEmailSendRateLimit, Duration::from_millis(52_100));
        let response = render(&error, ApiVersion::V20240101, None);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "53");
        assert_eq!(error.to_string(), "For security purposes, you can only request this after 53 seconds.");
    }
}
