//! A read of the program's own, as a role of its own.
//!
//! A read for a caller is a transaction with the caller's role, its settings and a session reset.
//! Some reads decide nothing by the caller: they are one statement of ours, with other values each
//! time. Here such a statement runs bare, in sessions that run nothing else, and reads that wait
//! share a write.
//!
//! Invariant: nothing of a caller ever is in such a session, besides the values of the statement.
//! [`FixedRead`] keeps it: its text is fixed when it is made, and it has no method that sends
//! another one, a setting, a role or a header. So there is nothing that a reset could remove.
//!
//! Code of the project must not run there either, since it would run as this role. A session begins
//! with `row_security` off, so that PostgreSQL fails the statement where a policy would apply
//! (`force row level security`), instead of calling its functions, and it fails where a view or a
//! foreign table has taken the name of a table; it is read-only; and names resolve in PostgreSQL's
//! catalog, so the statement has to qualify all others. What remains is what the owner of a table
//! can attach to it (an index whose predicate calls a function): that code has the owner's rights
//! elsewhere too, and finds nothing of any caller here. A server that cannot exclude views (before
//! 15.8 and 16.4) rejects the sessions, and callers read in another way.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::coalescing::{CoalescingSettings, ReadCoalescer, ReadError};
use super::pool::Pool;
use super::pool::settings::WirePoolSettings;
use super::protocol::batch::{Access, Batch, Statement};
use super::protocol::error::WireError;
use super::protocol::joined_rows::{JoinedRows, RowSeparators};
use super::session::connector::Connector;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;

/// The settings of the sessions.
const SETTINGS: [(&str, &str); 9] = [
    ("row_security", "off"),
    ("restrict_nonsystem_relation_kind", "view, foreign-table"),
    ("default_transaction_read_only", "on"),
    ("search_path", "pg_catalog, pg_temp"),
    ("statement_timeout", "30s"),
    ("lock_timeout", "5s"),
    ("timezone", "UTC"),
    // The plan does not depend on the values
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
];
/// Connections per processor. The reads take little time, so waiting ones are coalesced.
const CONNECTIONS_PER_PROCESSOR: NonZero<usize> = NonZero::new(3).expect("it is not zero");
/// The time for which the read is not tried again after PostgreSQL has rejected it.
const PAUSE: Duration = Duration::from_secs(10);

/// A statement of the program that reads rows of one column. Clones share the connections.
#[derive(Debug, Clone)]
pub struct FixedRead {
    text: &'static str,
    reads: Option<ReadCoalescer>,
    paused_until: Arc<Mutex<Option<Instant>>>,
}

impl FixedRead {
    /// Makes the read `text` as `role`. Every name in `text` has to be qualified, except for those
    /// of PostgreSQL's catalog. Connections are opened when they are needed.
    ///
    /// # Errors
    /// When the certificates that the endpoint names cannot be read.
    pub fn open(endpoint: &Endpoint, role: &'static str, text: &'static str) -> Result<Self, DatabaseError> {
        let connector = Connector::for_fixed_statements(endpoint, role, &SETTINGS)?;
        let processors = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let max_connections = CONNECTIONS_PER_PROCESSOR.saturating_mul(processors).get();
        let reads = connector.map(|connector| {
            let settings = WirePoolSettings { max_connections, ..WirePoolSettings::default() };
            ReadCoalescer::new(Pool::with_connector(connector, settings), &CoalescingSettings::default())
        });
        Ok(Self { text, reads, paused_until: Arc::default() })
    }

    /// Runs the read with its values. `None`: it is not possible here, and has to be done in
    /// another way. That is so behind a connection pooler, whose sessions others use too, where the
    /// role cannot log in, and for a while after PostgreSQL has rejected the statement.
    ///
    /// # Errors
    /// When the database cannot be reached or is busy.
    pub async fn run<const N: usize>(&self, values: [&str; N]) -> Result<Option<JoinedRows>, ReadError> {
        let Some(reads) = self.reads.as_ref().filter(|reads| self.is_possible(reads)) else { return Ok(None) };
        let values = values.map(|value| Some(value.as_bytes()));
        let statement = Statement::named(self.text, &values).joined(RowSeparators::default());
        let batch = Batch::new().statement(statement).ending(Access::ReadOnly);
        match reads.run(&batch).await {
            Ok(mut results) => Ok(results.take_joined_rows()),
            Err(ReadError::Checkout(error) | ReadError::Run(error)) if is_rejection(&error) => {
                tracing::debug!(error = %error, "a read as a role of the program is not possible");
                *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn is_possible(&self, reads: &ReadCoalescer) -> bool {
        if reads.pool().shared.connector.is_pooled() {
            return false;
        }
        let mut paused_until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        paused_until.take_if(|until| *until <= Instant::now());
        paused_until.is_none()
    }

    /// Closes the connections.
    pub fn close(&self) {
        if let Some(reads) = &self.reads {
            reads.pool().close();
        }
    }
}

/// Returns whether the statement or the login was rejected. A statement that is cancelled, and a
/// session that the server ends, are no rejections.
fn is_rejection(error: &WireError) -> bool {
    match error {
        WireError::Postgres(error) => !error.code.starts_with("57"),
        WireError::Refused(_) => true,
        _ => false,
    }
}
