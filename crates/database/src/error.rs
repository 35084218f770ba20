//! The errors between Portico and PostgreSQL.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::endpoint::error::EndpointError;
use crate::sqlstate;
use crate::tls::TlsError;

/// A connection could not be had, or a statement failed.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// No connection became free in time: every one is in use.
    #[error("no database connection became free within {0:?}")]
    Busy(Duration),
    /// The server could not be reached, or did not answer in time.
    #[error("the database at {server} cannot be reached: {}", ErrorChain(.source.as_ref()))]
    Unreachable {
        /// The address, without any secret.
        server: String,
        /// The error of the connection attempt.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The pool was closed: the server is shutting down.
    #[error("the database connections are closed: the server is shutting down")]
    Closed,
    /// The URL or its files (certificates) are not usable.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The certificates given for the connection are not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// PostgreSQL answered with an error, or the connection broke under a statement.
    #[error("{}", ErrorChain(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// A step of bringing the schema up to date failed.
    #[error("{step}: {}", ErrorChain(.source))]
    Bootstrap {
        /// The operation.
        step: String,
        /// Returns PostgreSQL's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The database is in a state this program does not go on from; the text says what to do.
    #[error("{0}")]
    Refused(String),
}

impl DatabaseError {
    /// Returns true if the database is unavailable for now (down, restarting, all connections
    /// busy), so that a later retry can succeed. Every other error is one of the statement.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Busy(_) | Self::Unreachable { .. } | Self::Closed => true,
            Self::Postgres(error) | Self::Bootstrap { source: error, .. } => is_unavailable(error),
            Self::Endpoint(_) | Self::Tls(_) | Self::Refused(_) => false,
        }
    }

    /// Returns PostgreSQL's error code, when the error came from a statement or from the server's
    /// rejection to connect.
    pub fn sqlstate(&self) -> Option<&SqlState> {
        match self {
            Self::Postgres(error) | Self::Bootstrap { source: error, .. } => error.code(),
            Self::Unreachable { source, .. } => {
                source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code)
            }
            _ => None,
        }
    }
}

/// Returns the text for a login that may not act as `role`, with the remedy. It is a mistake of the
/// set-up.
pub(crate) fn explain_rejected_role(login: &str, role: &str, error: &dyn fmt::Display) -> String {
    format!(
        "the login role `{login}` of the database may not act as `{role}` ({error}): as a superuser, run `grant {role} to \
         \"{login}\"`"
    )
}

/// Returns true if an error of the driver means that the connection or the server is gone. Without
/// an SQLSTATE it was the driver that failed: a closed connection or a broken socket; conversions
/// of values have a source that is not an I/O error.
pub(crate) fn is_unavailable(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => sqlstate::means_unavailable(code),
        None => error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>()),
    }
}

/// Writes an error with its causes, and PostgreSQL's own message instead of the driver's "db
/// error".
pub(crate) struct ErrorChain<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(answer) = self.0.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.as_db_error()) {
            write!(f, "{} ({})", answer.message(), answer.code().code())?;
            if let Some(detail) = answer.detail() {
                write!(f, ": {detail}")?;
            }
            return match answer.hint() {
                Some(hint) => write!(f, " (hint: {hint})"),
                None => Ok(()),
            };
        }
        f.write_str(&portico_base::error_chain(self.0))
    }
}
