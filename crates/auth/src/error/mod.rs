//! Every way in which an account request can fail, and the one place where a failure becomes HTTP.
//!
//! [`ContractError`] is the table of codes, statuses and texts that clients know. Handlers return
//! [`AuthError`], which adds what the response or the log needs; [`render()`] turns it into the
//! body of the API version that the request asked for. This module knows no other part of the
//! service.

mod code;
mod contract;
mod database;
mod render;
mod weak_password;

use std::time::Duration;

use http::StatusCode;

pub use code::ErrorCode;
pub use contract::{ContractError, OAuthError};
pub use database::SqlResultExt;
pub(crate) use render::Failed;
pub use render::{API_VERSION_HEADER, ApiVersion, render};
pub use weak_password::{WeakPassword, WeakPasswordReason};

/// A failed account request, as its caller sees it and as the log needs it.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The request was rejected.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// Too many requests or messages: status 429 with `Retry-After`.
    #[error("{error}")]
    TooMany {
        /// The rejection; its code is one of the three for rate limits.
        error: ContractError,
        /// The time to wait.
        retry_after: Duration,
        /// The limit that was hit, for the `X-RateLimit-Name` header.
        limit: &'static str,
    },
    /// The password breaks the rules: status 422 with the reasons.
    #[error("{}", .0.message)]
    WeakPassword(WeakPassword),
    /// A rejection in the form of OAuth, in every API version.
    #[error(transparent)]
    OAuth(#[from] OAuthError),
    /// A hook rejected the operation, with its own status and text and without a code.
    #[error("{message}")]
    Hook {
        /// The status that the hook states.
        status: StatusCode,
        /// The text that the hook states.
        message: String,
    },
    /// No failure yet: the transaction needs the response of this hook, see [`crate::hooks`].
    #[error("a hook was not called")]
    HookPending,
    /// A statement failed. Clients see PostgreSQL's message only where the contract demands it.
    #[error("{error}")]
    Sql {
        /// The operation that failed, as clients see it.
        error: ContractError,
        /// The error of PostgreSQL.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The database, or a work queue of this service, cannot take the request now: status 503.
    #[error("{error}")]
    Unavailable {
        /// The failure, as clients see it.
        error: ContractError,
        /// The cause, for the log.
        #[source]
        source: anyhow::Error,
    },
    /// A failure that is not the caller's fault: status 500. The source goes to the log.
    #[error("{error}")]
    Internal {
        /// The failure, as clients see it.
        error: ContractError,
        /// The cause, for the log.
        #[source]
        source: anyhow::Error,
    },
}

impl AuthError {
    /// Rejects a message that was requested too soon after the one before. The wait is rounded up
    /// to whole seconds.
    pub fn too_soon(wait: Duration, error: impl FnOnce(u64) -> ContractError) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self::TooMany { error: error(seconds), retry_after: Duration::from_secs(seconds), limit: "per-user-interval" }
    }

    /// Returns an unexpected failure without a text of its own.
    pub fn internal(source: impl Into<anyhow::Error>) -> Self {
        Self::failed(ContractError::Unexpected, source)
    }

    /// Returns an unexpected failure with the text of `error`.
    pub fn failed(error: ContractError, source: impl Into<anyhow::Error>) -> Self {
        Self::Internal { error, source: source.into() }
    }

    /// Returns the code. Errors in the form of OAuth have none of the catalogue.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::WeakPassword(_) => ErrorCode::WeakPassword,
            Self::OAuth(_) => ErrorCode::Unknown,
            Self::Hook { status, .. } if *status == StatusCode::INTERNAL_SERVER_ERROR => ErrorCode::UnexpectedFailure,
            Self::Hook { .. } => ErrorCode::Unknown,
            Self::HookPending => ErrorCode::UnexpectedFailure,
            Self::Contract(error)
            | Self::TooMany { error, .. }
            | Self::Sql { error, .. }
            | Self::Unavailable { error, .. }
            | Self::Internal { error, .. } => error.code(),
        }
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::WeakPassword(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::OAuth(_) => StatusCode::BAD_REQUEST,
            Self::Hook { status, .. } => *status,
            Self::HookPending => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Contract(error)
            | Self::TooMany { error, .. }
            | Self::Sql { error, .. }
            | Self::Unavailable { error, .. }
            | Self::Internal { error, .. } => error.status(),
        }
    }

    /// Returns true if the caller learns nothing of the cause: it is not their fault, and has no
    /// text of its own.
    pub(crate) fn is_unexplained(&self) -> bool {
        match self {
            Self::Sql { error, .. } => *error == ContractError::DatabaseFailed,
            Self::Internal { error, .. } => *error == ContractError::Unexpected,
            _ => false,
        }
    }

    /// Logs what the operator must know. Called once for each failed request.
    pub(crate) fn log(&self) {
        match self {
            Self::Internal { source, .. } => {
                let error = format!("{source:#}");
                tracing::error!(error = %error, "a request failed");
            }
            Self::Sql { error, source } => {
                // The detail may hold values of the row; code, constraint and message do not
                let state = source.code().map_or("", |state| state.code());
                let constraint = source.as_db_error().and_then(|error| error.constraint()).unwrap_or_default();
                let detail =
                    source.as_db_error().map_or_else(|| source.to_string(), |error| error.message().to_owned());
                tracing::error!(sqlstate = state, constraint, detail, context = %error, "a statement failed");
            }
            Self::Unavailable { error: context, source } => {
                let error = format!("{source:#}");
                tracing::warn!(error = %error, context = %context, "a request could not be served");
            }
            Self::HookPending => tracing::error!("an operation does not complete its hooks"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_have_statuses() {
        let mut seen = std::collections::HashSet::new();
        for code in ErrorCode::ALL {
            assert!(seen.insert(code.as_str()), "{code:?}");
            assert!(!code.usual_status().is_informational());
        }
    }

    #[test]
    fn a_message_requested_too_soon_rounds_the_wait_up() {
        let error =
            AuthError::too_soon(Duration::from_millis(52_100), |seconds| ContractError::EmailTooSoon { seconds });
        let response = render(&error, ApiVersion::V20240101, None);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "53");
        assert_eq!(error.to_string(), "For security purposes, you can only request this after 53 seconds.");
    }
}
