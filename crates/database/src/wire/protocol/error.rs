//! The errors of the wire client.

use std::fmt;
use std::io;
use std::time::Duration;

use super::message_reader::MalformedMessage;

/// The reason why no connection was available or a batch failed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// PostgreSQL returned an error.
    #[error("{0}")]
    Postgres(Box<PostgresError>),
    /// The connection broke during a batch. Whether the batch took effect is unknown.
    #[error("the connection to the database was lost: {0}")]
    Lost(#[source] io::Error),
    /// No connection became free in time: all are in use.
    #[error("no database connection became free within {0:?}")]
    Busy(Duration),
    /// The server could not be reached, or did not answer in time.
    #[error("the database at {server} cannot be reached: {source}")]
    Unreachable {
        /// The address, without any secret.
        server: String,
        /// The error of the last attempt.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The pool was closed: the server is shutting down.
    #[error("the database connections are closed: the server is shutting down")]
    Closed,
    /// A part of the batch is too large for the protocol; the text names it.
    #[error("{0} is too large for PostgreSQL")]
    TooLarge(&'static str),
    /// The text of a statement contains a zero byte.
    #[error("the text of a statement holds a zero byte")]
    ZeroByte,
    /// The server sent a message that the protocol does not allow here, or that a batch cannot
    /// handle (`copy`).
    #[error("unexpected answer of the database: {0}")]
    Protocol(&'static str),
    /// The server does not allow the login to act as the role, or asks for credentials that are
    /// not configured. The text names the remedy.
    #[error("{0}")]
    Refused(String),
}

impl WireError {
    /// Returns true if the database is only unavailable at the moment (down, restarting, all
    /// connections in use), so that a later retry makes sense. Everything else is an error of the
    /// statement or of the configuration.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Busy(_) | Self::Unreachable { .. } | Self::Closed => true,
            Self::Postgres(error) => error.means_unavailable(),
            Self::TooLarge(_) | Self::ZeroByte | Self::Protocol(_) | Self::Refused(_) => false,
        }
    }

    /// Returns PostgreSQL's five-character error code, if PostgreSQL returned an error.
    pub fn sqlstate(&self) -> Option<&str> {
        self.postgres().map(|error| error.code.as_str())
    }

    /// Returns PostgreSQL's error, if there is one.
    pub fn postgres(&self) -> Option<&PostgresError> {
        match self {
            Self::Postgres(error) => Some(error),
            Self::Unreachable { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

impl From<MalformedMessage> for WireError {
    fn from(malformed: MalformedMessage) -> Self {
        Self::Protocol(malformed.0)
    }
}

/// An error as PostgreSQL reports it: the fields of `ErrorResponse`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostgresError {
    /// `ERROR`, `FATAL` or `PANIC`, never translated.
    pub severity: String,
    /// The SQLSTATE, five characters.
    pub code: String,
    /// The primary message.
    pub message: String,
    /// Details of the problem.
    pub detail: Option<String>,
    /// A suggested remedy.
    pub hint: Option<String>,
    /// The position in the text of the statement, counted in characters from 1.
    pub position: Option<u32>,
    /// The position in `internal_query`.
    pub internal_position: Option<u32>,
    /// The statement that PostgreSQL generated, such as one of a PL/pgSQL function.
    pub internal_query: Option<String>,
    /// The call stack, one entry a line.
    pub context: Option<String>,
    /// The schema the error is about.
    pub schema: Option<String>,
    /// The table the error is about.
    pub table: Option<String>,
    /// The column the error is about.
    pub column: Option<String>,
    /// The data type the error is about.
    pub data_type: Option<String>,
    /// The constraint that was violated.
    pub constraint: Option<String>,
    /// The function of PostgreSQL's source that raised the error.
    pub routine: Option<String>,
}

impl PostgresError {
    /// Reads the body of an `ErrorResponse`: fields of a type byte and a zero-terminated text.
    /// Truncated and unknown fields are skipped. Bytes that are not UTF-8 (in an error before the
    /// encoding is agreed) are replaced.
    pub(crate) fn read(body: &[u8]) -> Self {
        let mut error = Self::default();
        let mut translated = String::new();
        for field in body.split(|byte| *byte == 0) {
            let Some((kind, text)) = field.split_first() else { break };
            let text = String::from_utf8_lossy(text).into_owned();
            match kind {
                b'S' => translated = text,
                b'V' => error.severity = text,
                b'C' => error.code = text,
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                b'P' => error.position = text.parse().ok(),
                b'p' => error.internal_position = text.parse().ok(),
                b'q' => error.internal_query = Some(text),
                b'W' => error.context = Some(text),
                b's' => error.schema = Some(text),
                b't' => error.table = Some(text),
                b'c' => error.column = Some(text),
                b'd' => error.data_type = Some(text),
                b'n' => error.constraint = Some(text),
                b'R' => error.routine = Some(text),
                _ => {}
            }
        }
        if error.severity.is_empty() {
            error.severity = translated;
        }
        error
    }

    /// Returns true if the session ends with this error.
    pub fn is_fatal(&self) -> bool {
        matches!(&*self.severity, "FATAL" | "PANIC")
    }

    /// Returns true if the code means that the server is unavailable at the moment.
    fn means_unavailable(&self) -> bool {
        crate::sqlstate::means_unavailable(&crate::sqlstate::SqlState::from_code(&self.code))
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PostgresError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_read_by_their_type_byte() {
        let error = PostgresError::read(b"SFEHLER\0VERROR\0C23505\0Mno\0Dwhy\0P12\0sapi\0tthings\0nkey\0\0");
        assert_eq!((&*error.severity, &*error.code, &*error.message), ("ERROR", "23505", "no"));
        assert_eq!(error.position, Some(12));
        assert_eq!(error.constraint.as_deref(), Some("key"));
        assert_eq!(error.to_string(), "no (23505): why");
        assert!(!error.is_fatal());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(body: Vec<u8>) {
            let _ = PostgresError::read(&body).to_string();
        }
    }
}
