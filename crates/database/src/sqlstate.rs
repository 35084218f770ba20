//! The SQLSTATE codes that code outside this crate decides by.
//!
//! [`SqlState`] names every code of PostgreSQL's appendix; the ones below are those our services
//! branch on, under the words the services use.

pub use tokio_postgres::error::SqlState;

/// A unique constraint refused the row (`23505`).
pub const UNIQUE_VIOLATION: SqlState = SqlState::UNIQUE_VIOLATION;
/// A foreign key refused the row (`23503`).
pub const FOREIGN_KEY_VIOLATION: SqlState = SqlState::FOREIGN_KEY_VIOLATION;
/// A check constraint refused the row (`23514`).
pub const CHECK_VIOLATION: SqlState = SqlState::CHECK_VIOLATION;
/// A column that may not be null was (`23502`).
pub const NOT_NULL_VIOLATION: SqlState = SqlState::NOT_NULL_VIOLATION;
/// A lock was not had in time, or `nowait` found it taken (`55P03`).
pub const LOCK_NOT_AVAILABLE: SqlState = SqlState::LOCK_NOT_AVAILABLE;
/// Cancelled: by a user, or by `statement_timeout` (`57014`).
pub const QUERY_CANCELED: SqlState = SqlState::QUERY_CANCELED;
/// The role may not do this (`42501`).
pub const INSUFFICIENT_PRIVILEGE: SqlState = SqlState::INSUFFICIENT_PRIVILEGE;
/// No such table (`42P01`).
pub const UNDEFINED_TABLE: SqlState = SqlState::UNDEFINED_TABLE;
/// No such function (`42883`).
pub const UNDEFINED_FUNCTION: SqlState = SqlState::UNDEFINED_FUNCTION;
/// Two transactions wait for each other (`40P01`): try again.
pub const DEADLOCK_DETECTED: SqlState = SqlState::T_R_DEADLOCK_DETECTED;
/// A serializable transaction lost (`40001`): try again.
pub const SERIALIZATION_FAILURE: SqlState = SqlState::T_R_SERIALIZATION_FAILURE;
/// Raised by `raise exception` in PL/pgSQL without a code (`P0001`).
pub const RAISE_EXCEPTION: SqlState = SqlState::RAISE_EXCEPTION;
/// A text that is not UTF-8 or holds a zero byte reached the server (`22021`).
pub const CHARACTER_NOT_IN_REPERTOIRE: SqlState = SqlState::CHARACTER_NOT_IN_REPERTOIRE;
/// A value cannot be read as its type (`22P02`).
pub const INVALID_TEXT_REPRESENTATION: SqlState = SqlState::INVALID_TEXT_REPRESENTATION;
/// A setting or an argument cannot have this value (`22023`).
pub const INVALID_PARAMETER_VALUE: SqlState = SqlState::INVALID_PARAMETER_VALUE;
/// The object is in use, such as a template database that has a connection (`55006`).
pub const OBJECT_IN_USE: SqlState = SqlState::OBJECT_IN_USE;
/// A prepared statement no longer fits its tables (`0A000`, "cached plan must not change result
/// type").
pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState::FEATURE_NOT_SUPPORTED;

/// Returns true if the code means that the server is unavailable, and not that the statement is
/// wrong: connection failures (class 08), too many connections, shutting down, starting up, or the
/// database just being made anew.
pub fn means_unavailable(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || [
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::DATABASE_DROPPED,
            SqlState::INVALID_CATALOG_NAME,
        ]
        .contains(code)
}
