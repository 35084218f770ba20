//! The error of applying migrations or seeds.

use super::plan::PlanError;
use super::statement_error::{StatementError, message_of};
use crate::error::ProjectError;

/// The reasons for which migrations or seeds cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A file could not be read.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// Files and history do not match.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A statement of a file failed. The file leaves nothing behind.
    #[error(transparent)]
    Statement(#[from] Box<StatementError>),
    /// The history could not be read or written.
    #[error("failed to {action}: {}", message_of(.source))]
    History {
        /// The attempted operation.
        action: &'static str,
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The database could not be reached or prepared.
    #[error(transparent)]
    Database(#[from] portico_database::DatabaseError),
}

impl MigrationError {
    pub(crate) fn history(action: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| Self::History { action, source }
    }
}
