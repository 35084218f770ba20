//! Finds out whether an endpoint leads to a connection pooler.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::pooling::Pooling;
use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;

/// Finds out how an endpoint's connections get server sessions, and keeps it with the endpoint.
///
/// # Errors
/// When the server or the pooler cannot be reached.
pub(crate) async fn detect(endpoint: &Endpoint) -> Result<Pooling, DatabaseError> {
    if endpoint.trusts_any_role() {
        return Ok(Pooling::None);
    }
    if let Some(known) = endpoint.detected().known_pooling() {
        return Ok(known);
    }
    let found = match has_shared_sessions(endpoint).await? {
        true => Pooling::Transaction,
        false if takes_settings(endpoint).await? => Pooling::None,
        false => Pooling::Session,
    };
    endpoint.detected().set_pooling(found);
    if found != Pooling::None {
        tracing::info!(mode = ?found, "the database is reached through a connection pooler");
    }
    Ok(found)
}

/// Checks that the endpoint past the pooler leads to the same database, and finds out whether it
/// leads to a pooler as well.
///
/// # Errors
/// When it leads to another database, or one of them cannot be reached.
pub(crate) async fn check_direct(endpoint: &Endpoint) -> Result<(), DatabaseError> {
    let direct = endpoint.direct();
    detect(direct).await?;
    if database_identity(endpoint).await? == database_identity(direct).await? {
        return Ok(());
    }
    Err(DatabaseError::Refused(format!(
        "DIRECT_URL leads to another database ({} at {}) than DATABASE_URL ({} at {}): both have to name the same one",
        direct.database(),
        direct.description(),
        endpoint.database(),
        endpoint.description()
    )))
}

/// Returns a text that no other database of a running server has.
async fn database_identity(endpoint: &Endpoint) -> Result<String, DatabaseError> {
    const IDENTITY: &str = "
        select pg_catalog.concat(oid, ' ', pg_catalog.pg_postmaster_start_time())
          from pg_catalog.pg_database where datname operator(pg_catalog.=) pg_catalog.current_database()";
    let client = connection::connect_guarded(endpoint).await?;
    client.batch_execute("set timezone = 'UTC'").await?;
    Ok(client.query_one(IDENTITY, &[]).await?.get(0))
}

/// Returns true if connections share server sessions.
async fn has_shared_sessions(endpoint: &Endpoint) -> Result<bool, DatabaseError> {
    let one = connection::connect(endpoint).await?;
    let other = connection::connect(endpoint).await?;
    let first = process(&one, "").await?;
    let again = process(&one, "").await?;
    // A pooler prefers the session that became free last
    let is_shared = process(&other, "begin;").await? == first;
    let is_pooled = is_shared || first != again || process(&one, "").await? != first;
    other.batch_execute("rollback").await?;
    Ok(is_pooled)
}

/// Returns true if a session begins with the settings that were asked for.
async fn takes_settings(endpoint: &Endpoint) -> Result<bool, DatabaseError> {
    let client = match connection::connect_guarded(endpoint).await {
        // PostgreSQL has other errors for settings that do not apply
        Err(error) if error.sqlstate() == Some(&SqlState::PROTOCOL_VIOLATION) => return Ok(false),
        outcome => outcome?,
    };
    let row = client.query_one("select pg_catalog.current_setting('search_path')", &[]).await?;
    Ok(row.get::<_, &str>(0).replace(' ', "") == "pg_catalog,pg_temp")
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
