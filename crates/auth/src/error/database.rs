//! Errors of the database as errors of a request.

use portico_database::DatabaseError;

use super::{AuthError, ContractError};

impl From<DatabaseError> for AuthError {
    fn from(error: DatabaseError) -> Self {
        if error.is_unavailable() {
            Self::Unavailable { error: ContractError::DatabaseUnreachable, source: error.into() }
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
            DatabaseError::Postgres(source) => Self::Sql { error: ContractError::DatabaseFailed, source },
            other => Self::internal(other),
        }
    }
}

/// Turns the failure of a statement into an error of the contract, at the statement.
pub trait SqlResultExt<T>: Sized {
    /// Returns `error` for a violation of this constraint or unique index, which is the caller's
    /// mistake.
    fn on_constraint(self, name: &str, error: ContractError) -> Result<T, AuthError>;

    /// Names the operation that failed, as clients see it.
    fn context(self, error: ContractError) -> Result<T, AuthError>;
}

impl<T> SqlResultExt<T> for Result<T, tokio_postgres::Error> {
    fn on_constraint(self, name: &str, error: ContractError) -> Result<T, AuthError> {
        self.map_err(AuthError::from).on_constraint(name, error)
    }

    fn context(self, error: ContractError) -> Result<T, AuthError> {
        self.map_err(AuthError::from).context(error)
    }
}

impl<T> SqlResultExt<T> for Result<T, AuthError> {
    fn on_constraint(self, name: &str, error: ContractError) -> Result<T, AuthError> {
        self.map_err(|failed| match &failed {
            AuthError::Sql { source, .. } if source.as_db_error().and_then(|e| e.constraint()) == Some(name) => {
                error.into()
            }
            _ => failed,
        })
    }

    fn context(self, error: ContractError) -> Result<T, AuthError> {
        self.map_err(|failed| match failed {
            AuthError::Sql { source, .. } => AuthError::Sql { error, source },
            other => other,
        })
    }
}
