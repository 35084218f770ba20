//! Connection poolers: those that lend a session for one transaction (PgBouncer's transaction mode and others), and
//! those that do not pass on the settings with which a session begins (PgBouncer in every mode).
//!
//! Portico's settings, locks and notifications belong to a session, and so do the roles that it takes on: through
//! a pooler of the first kind they would reach other clients. The settings at a session's beginning are a part of
//! the fence. A URL that leads to such a pooler is refused before a session is changed.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;

/// Checks that a connection is a session of its own: no other connection gets its server process, and it keeps it.
///
/// # Errors
/// [`DatabaseError::Refused`] with the remedy when it is none.
pub(crate) async fn refuse(endpoint: &Endpoint) -> Result<(), DatabaseError> {
    let one = connection::connect(endpoint).await?;
    let other = connection::connect(endpoint).await?;
    let first = process(&one, "").await?;
    let again = process(&one, "").await?;
    // A pooler prefers the process that became free last
    let shared = process(&other, "begin;").await? == first;
    let is_pooled = shared || first != again || process(&one, "").await? != first;
    // The connection ends, and with it the transaction; a pooler is left in order
    other.batch_execute("rollback").await?;
    match is_pooled {
        false => check_settings(endpoint).await,
        true => Err(DatabaseError::Refused(format!(
            "the database URL leads to a connection pooler in transaction mode ({}), which lends a session for one transaction \
             only: use the address of the server itself, or of the pooler in session mode (see \"Connection poolers\" in \
             docs/database.md)",
            endpoint.place()
        ))),
    }
}

/// Checks that a session begins with the settings that were asked for.
async fn check_settings(endpoint: &Endpoint) -> Result<(), DatabaseError> {
    let refused = |problem: &str| {
        DatabaseError::Refused(format!(
            "the database URL leads to a connection pooler that {problem} the settings of a new session ({}): use the address of \
             the server itself (see \"Connection poolers\" in docs/database.md)",
            endpoint.place()
        ))
    };
    let client = match connection::connect_guarded(endpoint).await {
        // PostgreSQL has other errors for settings that do not apply
        Err(error) if error.sqlstate() == Some(&SqlState::PROTOCOL_VIOLATION) => return Err(refused("refuses")),
        outcome => outcome?,
    };
    let row = client.query_one("select pg_catalog.current_setting('search_path')", &[]).await?;
    match row.get::<_, &str>(0).replace(' ', "") == "pg_catalog,pg_temp" {
        true => Ok(()),
        false => Err(refused("drops")),
    }
}

/// Returns the number of the server process that answers, without a prepared statement.
async fn process(client: &Client, before: &str) -> Result<String, DatabaseError> {
    let answers = client.simple_query(&format!("{before} select pg_catalog.pg_backend_pid()")).await?;
    let number = |message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    Ok(answers.into_iter().find_map(number).unwrap_or_default())
}
