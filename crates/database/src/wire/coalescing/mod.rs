//! Read coalescing: several reads in one write.
//!
//! While callers wait for a connection, a caller that has one sends their reads along with its own,
//! and each caller receives its results as they arrive. That saves both sides most of the cost of a
//! wake-up, which is higher than the cost of a read of one row by its key.
//!
//! Each read stays a transaction of its own, with its own settings, its own
//! [`SessionReset`](crate::wire::session::reset::SessionReset) and its own `Sync`: PostgreSQL
//! separates them as it does when they are sent one after the other. The reset check of a read is
//! evaluated before its results are used, and results that come after a transaction that left
//! something in the session are discarded. A read that failed, whose results were discarded or
//! whose connection was given up is run once more alone: it only reads.
//!
//! Only quick reads are coalesced, which usually take less than
//! [`quick_read_limit`](CoalescingSettings::quick_read_limit). They use a limited number of
//! connections at once: with more they would not finish sooner, since the processors are busy. The
//! others wait to be coalesced, and connections stay free for slower statements.
//!
//! The other parts of the wire client do not depend on this one. The checkout queue accepts a copy
//! of a batch that another caller may run, and a limit for a kind of checkouts; both are used here
//! only.

mod coalesced_run;
mod shared;
mod statement_times;

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use self::coalesced_run::{CoalescedOutcome, CoalescedRun};
use self::shared::SharedCoalescer;
use self::statement_times::StatementTimes;
use super::pool::checkout_queue::CheckoutGrant;
use super::pool::pooled_connection::PooledConnection;
use super::pool::{Pool, StartedCheckout};
use super::protocol::batch::{Access, Batch, Preparation, Statement};
use super::protocol::error::WireError;
use super::protocol::result_sets::ResultSets;
use super::session::batch_copy::{BatchCopy, size};
use super::session::connection::WireConnection;

/// The time for which a quick read waits for one of the connections for quick reads. Then it waits
/// for any connection.
const QUICK_READ_PATIENCE: Duration = Duration::from_millis(10);
/// The maximum size of a read, texts and values together, that can be coalesced: it has to be
/// copied.
const MAX_SIZE: usize = 16 * 1024;

/// The limits of coalescing.
#[derive(Debug, Clone)]
pub struct CoalescingSettings {
    /// A read that usually takes longer than this is run alone.
    pub quick_read_limit: Duration,
    /// The maximum number of connections that quick reads use at once. Further quick reads wait a
    /// moment to be coalesced. `None`: all connections.
    pub max_quick_reads: Option<NonZero<usize>>,
}

impl Default for CoalescingSettings {
    fn default() -> Self {
        Self { quick_read_limit: Duration::from_millis(4), max_quick_reads: None }
    }
}

/// Runs reads on the connections of a pool, several in one write where callers wait. Clones share
/// the pool and what is known of the reads.
#[derive(Debug, Clone)]
pub struct ReadCoalescer {
    pool: Pool,
    shared: Arc<SharedCoalescer>,
}

/// The reason why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No connection was available.
    #[error(transparent)]
    Checkout(WireError),
    /// PostgreSQL rejected the read, or the connection broke.
    #[error(transparent)]
    Run(WireError),
}

impl From<ReadError> for WireError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Checkout(error) | ReadError::Run(error) => error,
        }
    }
}

/// The outcome of a checkout for a read.
enum ReadCheckout {
    /// A connection to run the read on.
    Connection(PooledConnection),
    /// The results: another caller ran the read.
    Results(ResultSets),
}

impl ReadCoalescer {
    /// Makes a coalescer for a pool.
    pub fn new(pool: Pool, settings: &CoalescingSettings) -> Self {
        let max_connections = pool.shared.settings.max_connections;
        let shared = SharedCoalescer {
            quick_read_limit: settings.quick_read_limit,
            max_quick_reads: settings.max_quick_reads.map(NonZero::get).filter(|max| *max < max_connections),
            times: StatementTimes::new(),
            coalesced: AtomicU64::new(0),
        };
        Self { pool, shared: Arc::new(shared) }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns how many reads were sent by another caller since the coalescer was made.
    pub fn coalesced_reads(&self) -> u64 {
        self.shared.coalesced.load(Ordering::Relaxed)
    }

    /// Runs a batch that is one transaction, only reads, and may be run twice.
    ///
    /// # Errors
    /// [`ReadError::Checkout`] as [`Pool::checkout`]; [`ReadError::Run`] as
    /// [`PooledConnection::run`].
    pub async fn run(&self, batch: &Batch<'_>) -> Result<ResultSets, ReadError> {
        match self.checkout(batch).await.map_err(ReadError::Checkout)? {
            ReadCheckout::Results(results) => Ok(results),
            ReadCheckout::Connection(connection) => self.run_on(connection, batch).await.map_err(ReadError::Run),
        }
    }

    /// Returns true if the statement with this key is known to be quick.
    fn is_quick(&self, key: u64) -> bool {
        self.shared.times.is_quick(key, self.shared.quick_read_limit)
    }

    async fn checkout(&self, batch: &Batch<'_>) -> Result<ReadCheckout, WireError> {
        let pool = &self.pool.shared;
        let is_quick =
            pool.mode().prepared && main_statement(batch).is_some_and(|main| self.is_quick(pool.statement_key(main)));
        let mut delegated = is_quick.then_some(batch);
        let mut limit = self.shared.max_quick_reads.filter(|_| is_quick);
        let deadline = Instant::now() + pool.settings.checkout_timeout;
        let granted = loop {
            // Copied without the lock, and only if the caller will probably have to wait
            let copy = delegated.filter(|_| !pool.queue().has_room(limit));
            let copy = copy.map(|batch| BatchCopy::new(batch, |statement| pool.statement_key(statement)));
            let mut waiting = match self.pool.start_checkout(limit, copy)? {
                StartedCheckout::Granted(granted) => break granted,
                StartedCheckout::Waiting(waiting) => waiting,
            };
            let until = if limit.is_some() { deadline.min(Instant::now() + QUICK_READ_PATIENCE) } else { deadline };
            match waiting.granted(until, deadline).await {
                Ok(Some(CheckoutGrant::Connection(granted))) => break granted,
                Ok(Some(CheckoutGrant::Results(results))) => return Ok(ReadCheckout::Results(results)),
                // The pool was closed; or the caller that took the batch failed, so it is not
                // delegated again
                Ok(None) => (delegated, limit) = (None, None),
                // The quick reads are blocked by something: wait for any connection
                Err(_) if limit.is_some() => limit = None,
                Err(_) => return Err(pool.checkout_timed_out()),
            }
        };
        self.pool.connection_for(granted, limit.is_some()).await.map(ReadCheckout::Connection)
    }

    /// Runs a read on a connection, together with waiting reads.
    async fn run_on(&self, mut pooled: PooledConnection, batch: &Batch<'_>) -> Result<ResultSets, WireError> {
        let generation = pooled.generation;
        let connection = pooled.connection.as_mut().ok_or(WireError::Closed)?;
        let outcome = self.try_run_on(connection, generation, batch).await;
        if connection.is_broken() {
            self.pool.shared.drop_dead_connections();
        }
        match outcome {
            Err(WireError::Postgres(_)) if connection.is_out_of_sync() => {}
            Err(WireError::Lost(_) | WireError::Protocol(_)) => {}
            outcome => {
                if let Some(results) = outcome? {
                    return Ok(results);
                }
            }
        }
        // It only reads, so it can be run again whatever happened
        drop(pooled);
        self.pool.checkout().await?.run(batch).await
    }

    /// Runs a read on a connection. `None`: it has to be run on another one, since this one has
    /// become unusable.
    async fn try_run_on(
        &self,
        connection: &mut WireConnection,
        generation: u64,
        batch: &Batch<'_>,
    ) -> Result<Option<ResultSets>, WireError> {
        let pool = &self.pool.shared;
        let mode = pool.mode();
        let can_coalesce = mode.prepared && connection.is_ready() && !connection.in_transaction();
        let main = main_statement(batch).filter(|_| can_coalesce);
        let key = main.map(|main| pool.statement_key(main));
        if let Some(key) = key.filter(|key| self.is_quick(*key)) {
            let run =
                CoalescedRun { pool: &self.pool, shared: &self.shared, connection: &mut *connection, generation, mode };
            match run.run(batch, key).await {
                Ok(CoalescedOutcome::NotCoalesced) => {}
                Ok(CoalescedOutcome::Completed(Some(results))) => return Ok(Some(results)),
                Ok(CoalescedOutcome::Completed(None)) => {
                    if connection.restore(mode).await.is_err() {
                        return Ok(None);
                    }
                }
                Ok(CoalescedOutcome::Stalled) => return Ok(None),
                // Perhaps one of the other reads caused it
                Err(error) => {
                    tracing::debug!(error = %error, "coalesced reads failed");
                    return Ok(None);
                }
            }
        }
        let started = Instant::now();
        let (results, check) = connection.run(batch, mode).await?;
        if let Some(key) = key {
            self.shared.times.record(key, started.elapsed());
        }
        if check.is_some_and(|check| check.has_new_traits) {
            pool.evict_function_traits();
        }
        Ok(Some(results))
    }
}

/// Returns the main statement of a batch that can be coalesced: all its statements are prepared,
/// and its transaction, which only reads, ends with it.
fn main_statement<'b, 'a>(batch: &'b Batch<'a>) -> Option<&'b Statement<'a>> {
    let main = batch.statements.iter().find(|statement| statement.is_main)?;
    let can_coalesce = batch.ends == Some(Access::ReadOnly)
        && batch.statements.iter().all(|statement| statement.preparation == Preparation::Named)
        && size(batch) <= MAX_SIZE;
    can_coalesce.then_some(main)
}
