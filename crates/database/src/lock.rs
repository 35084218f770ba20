//! Advisory locks of a database that last longer than a transaction.

use tokio_postgres::Client;

use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;

/// An advisory lock, held by a transaction on a connection of its own: a lock that belongs to a
/// session has no owner behind a connection pooler. Dropping it closes the connection, and the
/// server releases the lock.
#[derive(Debug)]
pub struct HeldLock(Client);

impl HeldLock {
    /// Waits for the lock of a number.
    ///
    /// # Errors
    /// When the server cannot be reached, or ends the connection.
    pub(crate) async fn acquire(endpoint: &Endpoint, key: i64) -> Result<Self, DatabaseError> {
        let client = connection::connect(endpoint).await?;
        let timeouts = "set local idle_in_transaction_session_timeout = 0; set local statement_timeout = 0; set local lock_timeout = 0";
        let lock = format!("select pg_catalog.pg_advisory_xact_lock({key})");
        client.batch_execute(&format!("begin; {timeouts}; {lock}")).await?;
        Ok(Self(client))
    }

    /// Releases the lock.
    pub async fn release(self) {
        // The server releases it also where this fails
        let _ = self.0.batch_execute("rollback").await;
    }
}
