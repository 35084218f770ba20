//! The failures to connect that a later attempt can escape, for both clients of PostgreSQL.
//!
//! A name that does not resolve and a certificate that does not match are none of them.

use std::io::ErrorKind;

/// Returns true if an SQLSTATE says that the server is starting or shutting down.
pub(crate) fn is_restart(code: &str) -> bool {
    ["57P03", "57P01", "57P02"].contains(&code)
}

/// Returns true if an SQLSTATE says that the database does not exist, as for a moment while it is
/// recreated. Only the pools of services retry then: the start and the commands have to report a
/// database that is missing, or create it.
pub(crate) fn is_recreation(code: &str) -> bool {
    code == "3D000"
}

/// Returns true if a connection was rejected or lost as by a server that restarts.
pub(crate) fn is_lost_connection(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::NotFound
            | ErrorKind::UnexpectedEof
    )
}
