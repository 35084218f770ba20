//! Databases that live as long as a test: cloned from a template, dropped afterwards.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;

/// How long to wait for others to leave the template: a connection that was just closed is seen for a moment still.
const TEMPLATE_IN_USE: Duration = Duration::from_secs(30);

/// Makes the database `name` a copy of `template`, file by file, which takes some hundredths of a second. `admin` must be
/// allowed to create databases; nobody may be connected to the template.
///
/// # Errors
/// What PostgreSQL says: the name is taken, the template is missing or stays in use.
pub async fn clone_database(admin: &Endpoint, template: &str, name: &str) -> Result<Endpoint, DatabaseError> {
    let client = connection::connect(admin).await?;
    let statement =
        format!("create database {} template {} strategy file_copy", quoted(name), quoted(template));
    let deadline = tokio::time::Instant::now() + TEMPLATE_IN_USE;
    loop {
        match client.batch_execute(&statement).await {
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            outcome => break outcome?,
        }
    }
    Ok(admin.with_database(name))
}

/// Drops the database, ending whatever is connected to it. One that is not there is fine.
///
/// # Errors
/// What PostgreSQL says.
pub async fn drop_database(admin: &Endpoint, name: &str) -> Result<(), DatabaseError> {
    let client = connection::connect(admin).await?;
    client.batch_execute(&format!("drop database if exists {} with (force)", quoted(name))).await?;
    Ok(())
}

/// Whether there is a database of that name.
///
/// # Errors
/// What PostgreSQL says.
pub async fn database_exists(admin: &Endpoint, name: &str) -> Result<bool, DatabaseError> {
    let client = connection::connect(admin).await?;
    Ok(client.query_opt("select 1 from pg_catalog.pg_database where datname = $1", &[&name]).await?.is_some())
}

/// One connection, closed when dropped.
///
/// # Errors
/// As [`connect`](crate::connect).
pub async fn connect(endpoint: &Endpoint) -> Result<tokio_postgres::Client, DatabaseError> {
    connection::connect(endpoint).await
}

/// An SQL identifier, quoted.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
