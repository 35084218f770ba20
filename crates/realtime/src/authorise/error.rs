//! Failures of probes, and what they mean for a channel.

use portico_database::wire::{PostgresError, WireError};

use crate::error::{JoinError, Shutdown};

/// The reason why a probe has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthoriseError {
    /// A policy raised an error, or the role does not exist or may not be assumed; PostgreSQL's
    /// text.
    #[error("a policy failed: {0}")]
    Policy(String),
    /// A policy took too long; PostgreSQL's text.
    #[error("a policy was cancelled: {0}")]
    QueryCanceled(String),
    /// `realtime.messages` has no partition for now.
    #[error("realtime.messages has no partition for today")]
    MissingPartition,
    /// All connections for probes were in use for too long.
    #[error("the connections for policies are all in use")]
    NoConnection,
    /// The database does not accept connections, or ended one.
    #[error("the database cannot be reached")]
    Unreachable,
    #[error("the policies could not be checked")]
    Failed,
}

impl AuthoriseError {
    /// Returns the reason to reject a join of `topic`.
    pub fn into_join_error(self, topic: &str) -> JoinError {
        match self {
            Self::Policy(_) => JoinError::Unauthorized { topic: topic.to_owned() },
            Self::QueryCanceled(text) => JoinError::QueryCanceled(text),
            Self::MissingPartition => JoinError::MissingPartition,
            Self::NoConnection => JoinError::NoConnection,
            Self::Unreachable => JoinError::DatabaseUnreachable,
            Self::Failed => JoinError::PoliciesNotChecked,
        }
    }

    /// Returns the reason to end a channel of `topic` whose token was replaced.
    pub fn into_shutdown(self, topic: &str) -> Shutdown {
        match self {
            Self::Policy(_) => Shutdown::NoReadPermission { topic: topic.to_owned() },
            Self::QueryCanceled(_) => Shutdown::QueryCanceled,
            Self::MissingPartition | Self::NoConnection | Self::Unreachable | Self::Failed => {
                Shutdown::DatabaseUnreachable
            }
        }
    }
}

impl From<WireError> for AuthoriseError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Busy(_) => Self::NoConnection,
            error if error.is_unavailable() => {
                tracing::warn!(error = %error, "the policies of a channel could not be checked");
                Self::Unreachable
            }
            WireError::Postgres(error) if error.code == "57014" => Self::QueryCanceled(error.message),
            WireError::Postgres(error) if is_missing_partition(&error) => {
                tracing::error!(error = %error, "realtime.messages has no partition for today");
                Self::MissingPartition
            }
            WireError::Postgres(error) => {
                tracing::warn!(error = %error, "a policy of a channel failed");
                Self::Policy(error.to_string())
            }
            error => {
                tracing::error!(error = %error, "the policies of a channel could not be checked");
                Self::Failed
            }
        }
    }
}

/// Returns true if a row belongs into no partition. Check constraints have the same code, and a
/// name.
fn is_missing_partition(error: &PostgresError) -> bool {
    error.code == "23514"
        && error.constraint.is_none()
        && error.schema.as_deref() == Some("realtime")
        && error.table.as_deref() == Some("messages")
}
