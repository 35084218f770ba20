//! A connection that one caller has checked out.

use std::sync::Arc;

use super::shared::SharedPool;
use crate::wire::protocol::batch::{Access, Batch};
use crate::wire::protocol::error::WireError;
use crate::wire::protocol::result_sets::ResultSets;
use crate::wire::session::connection::WireConnection;

/// The attempts to run a batch, each on another connection.
const ATTEMPTS: usize = 2;
/// The attempts behind a pooler, where each may find a server session that has to end, and ends it.
const POOLED_ATTEMPTS: usize = 100;

/// A connection for one caller. Dropped between two batches, it returns to the pool once its
/// session is restored to its origin. Dropped during a batch, the statement is cancelled and the
/// connection closed.
#[derive(Debug)]
pub struct PooledConnection {
    pub(crate) pool: Arc<SharedPool>,
    /// `None` before it is opened and after it has become unusable. The checkout still counts for
    /// the connection limit.
    pub(crate) connection: Option<Box<WireConnection>>,
    pub(crate) generation: u64,
    /// It counts as a limited checkout.
    pub(super) is_limited: bool,
}

impl PooledConnection {
    /// Returns a checkout whose connection is not open yet.
    pub(super) fn without_connection(pool: Arc<SharedPool>, is_limited: bool) -> Self {
        Self { pool, connection: None, generation: 0, is_limited }
    }

    /// Opens a connection in place of the one that has ended.
    pub(super) async fn connect(&mut self) -> Result<(), WireError> {
        self.connection = None;
        let (connection, generation) = self.pool.open_connection().await?;
        (self.connection, self.generation) = (Some(connection), generation);
        Ok(())
    }

    /// Sends the batch in one write and reads its results.
    ///
    /// When a statement that an earlier batch parsed no longer fits the schema, the batch is run
    /// once more with statements parsed anew; since a batch is one transaction, nothing of the
    /// first attempt remains. When the connection turns out to be out of sync, or breaks under a
    /// transaction that only reads, the batch is run once more on another connection.
    ///
    /// # Errors
    /// [`WireError::Postgres`] with the first error. Then nothing of the batch took effect, and a
    /// transaction that it began or ran in can only be rolled back. [`WireError::Lost`] when the
    /// connection broke; the next checkout is not affected by it.
    pub async fn run(&mut self, batch: &Batch<'_>) -> Result<ResultSets, WireError> {
        let is_whole_transaction = !self.in_transaction();
        let mut attempts = if self.pool.connector.is_pooled() { POOLED_ATTEMPTS } else { ATTEMPTS };
        loop {
            attempts -= 1;
            match self.run_once(batch).await {
                Err(error) if attempts > 0 && self.may_retry(batch, is_whole_transaction, &error) => {
                    tracing::debug!(error = %error, "replacing a connection and retrying its batch");
                    self.connect().await?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns true if a failed batch can be run on another connection: nothing of it took effect
    /// and only the state of the connection was the cause, or it was a transaction that only reads
    /// and the connection broke without an error message. A session that the server ended with a
    /// reason (57P01 for `pg_terminate_backend`) was ended on purpose: running its statement again
    /// would undo that.
    fn may_retry(&self, batch: &Batch<'_>, is_whole_transaction: bool, error: &WireError) -> bool {
        let only_reads = is_whole_transaction && batch.ends == Some(Access::ReadOnly);
        match error {
            WireError::Postgres(_) => self.connection.as_ref().is_some_and(|connection| connection.is_out_of_sync()),
            WireError::Lost(_) | WireError::Protocol(_) => only_reads,
            _ => false,
        }
    }

    async fn run_once(&mut self, batch: &Batch<'_>) -> Result<ResultSets, WireError> {
        let Self { pool, connection, .. } = self;
        let connection = connection.as_mut().ok_or(WireError::Closed)?;
        let outcome = connection.run(batch, pool.mode()).await;
        if connection.is_broken() {
            pool.drop_dead_connections();
        }
        let (results, check) = outcome?;
        if check.is_some_and(|check| check.has_new_traits) {
            pool.evict_function_traits();
        }
        Ok(results)
    }

    /// Returns true if a transaction is open, including one that can only be rolled back.
    pub fn in_transaction(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.in_transaction())
    }

    /// Returns true if the connection has ended, so that another checkout is needed.
    pub fn is_broken(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_broken())
    }

    /// Returns the number of the server's process for this connection, as in `pg_stat_activity`.
    pub fn process(&self) -> i32 {
        self.connection.as_ref().map_or(0, |connection| connection.process())
    }
}
