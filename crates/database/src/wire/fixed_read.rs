//! A read of the program's own, as a role of its own.
//!
//! A read for a caller is a transaction with the caller's role, its settings and a session reset.
//! Some reads decide nothing by the caller: they look up a row by a key, with one statement of
//! ours. Here such a statement runs bare, in sessions that run nothing else. It looks up many keys
//! at once: while a batch of them is under way, the keys of further callers are gathered for the
//! next one. A batch costs PostgreSQL and the server about as much as a key alone.
//!
//! Invariant: nothing of a caller ever is in such a session, besides the keys of the statement.
//! [`FixedRead`] keeps it: its text is fixed when it is made, and it has no method that sends
//! another one, a setting, a role or a header. So there is nothing that a reset could remove. The
//! statement returns one row for each key, in their order; each caller gets the row of its own key,
//! and where their numbers differ, no caller gets any.
//!
//! Code of the project must not run there either, since it would run as this role. A session begins
//! with `row_security` off, so that PostgreSQL fails the statement where a policy would apply
//! (`force row level security`), instead of calling its functions, and it fails where a view or a
//! foreign table has taken the name of a table; it is read-only; and names resolve in PostgreSQL's
//! catalog, so the statement has to qualify all others. What remains is what the owner of a table
//! can attach to it (an index whose predicate calls a function): that code has the owner's rights
//! elsewhere too, and finds nothing of any caller here. A server that cannot exclude views (before
//! 15.8 and 16.4) rejects the sessions, and callers read in another way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZero;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::pool::Pool;
use super::pool::settings::WirePoolSettings;
use super::protocol::batch::{Access, Batch, Statement};
use super::protocol::error::WireError;
use super::protocol::result_sets::Row;
use super::session::connector::Connector;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::quote::text_array;

/// The settings of the sessions.
const SETTINGS: [(&str, &str); 9] = [
    ("row_security", "off"),
    ("restrict_nonsystem_relation_kind", "view, foreign-table"),
    ("default_transaction_read_only", "on"),
    ("search_path", "pg_catalog, pg_temp"),
    ("statement_timeout", "30s"),
    ("lock_timeout", "5s"),
    ("timezone", "UTC"),
    // The plan does not depend on the keys
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
];
/// The maximum number of keys in a batch.
const MAX_KEYS: usize = 64;
/// The maximum number of turns for which a batch lets others run.
const MAX_TURNS: usize = 4;
/// The maximum size of a key. Longer ones are read in another way.
const MAX_KEY_BYTES: usize = 8 * 1024;
/// The time for which the read is not tried again after PostgreSQL has rejected it.
const PAUSE: Duration = Duration::from_secs(10);

/// A statement of the program that finds a row for each of many keys. A key has `N` texts. Clones
/// share the connections.
#[derive(Debug, Clone)]
pub struct FixedRead<const N: usize> {
    text: &'static str,
    patience: Duration,
    pool: Option<Pool>,
    waiting: Arc<Mutex<HashMap<runtime::Id, WaitingKeys<N>>>>,
    paused_until: Arc<Mutex<Option<Instant>>>,
}

/// The keys that wait while a batch is under way.
#[derive(Debug, Default)]
struct WaitingKeys<const N: usize> {
    keys: Vec<WaitingKey<N>>,
    /// The batch takes longer than callers wait for it: there are no keys until it has ended.
    is_stalled: bool,
}

/// A key whose caller waits for its row.
#[derive(Debug)]
struct WaitingKey<const N: usize> {
    texts: [String; N],
    caller: oneshot::Sender<Row>,
}

impl<const N: usize> FixedRead<N> {
    /// Makes the read `text` as `role`. `$1` to `$N` are arrays of texts: the first texts of all
    /// keys, and so on. The statement has to return one row for each key, in their order. Every
    /// name in `text` has to be qualified, except for those of PostgreSQL's catalog. Connections
    /// are opened when they are needed. No caller waits longer than `patience` for a batch that is
    /// under way, such as one that waits for a lock.
    ///
    /// # Errors
    /// When the certificates that the endpoint names cannot be read.
    pub fn open(
        endpoint: &Endpoint,
        role: &'static str,
        text: &'static str,
        patience: Duration,
    ) -> Result<Self, DatabaseError> {
        let connector = Connector::for_fixed_statements(endpoint, role, &SETTINGS)?;
        // One for each thread that serves callers: more would only make the batches smaller
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let settings = WirePoolSettings { max_connections: processors, ..WirePoolSettings::default() };
        let pool = connector.map(|connector| Pool::with_connector(connector, settings));
        Ok(Self { text, patience, pool, waiting: Arc::default(), paused_until: Arc::default() })
    }

    /// Returns the row of a key in PostgreSQL's binary form. `None`: its first column is null, or
    /// the read failed or is not possible here, and has to be done in another way. It is not
    /// possible behind a connection pooler, whose sessions others use too, where the role cannot
    /// log in, for a while after PostgreSQL has rejected the statement, and while a batch takes too
    /// long.
    pub async fn run(&self, key: [&str; N]) -> Option<Row> {
        let pool = self.pool.as_ref().filter(|pool| self.is_possible(pool))?;
        if key.iter().map(|text| text.len()).sum::<usize>() > MAX_KEY_BYTES {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        let (caller, row) = oneshot::channel();
        let key = WaitingKey { texts: key.map(str::to_owned), caller };
        let is_first = match self.waiting().entry(runtime.id()) {
            Entry::Occupied(others) if others.get().is_stalled => return None,
            Entry::Occupied(mut others) => {
                others.get_mut().keys.push(key);
                false
            }
            Entry::Vacant(none) => {
                none.insert(WaitingKeys { keys: vec![key], is_stalled: false });
                true
            }
        };
        if is_first {
            // A task of its own, since a caller can be cancelled while others wait for its batch
            let batches = KeyBatches { read: self.clone(), runtime: runtime.id(), is_done: false };
            runtime.spawn(batches.run(pool.clone()));
        }
        row.await.ok()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<runtime::Id, WaitingKeys<N>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_possible(&self, pool: &Pool) -> bool {
        if pool.shared.connector.is_pooled() {
            return false;
        }
        let mut paused_until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        paused_until.take_if(|until| *until <= Instant::now());
        paused_until.is_none()
    }

    /// Closes the connections.
    pub fn close(&self) {
        if let Some(pool) = &self.pool {
            pool.close();
        }
    }
}

/// The work on the keys of one runtime: batch after batch, until no key waits. While it is under
/// way, its runtime has an entry in the map of waiting keys.
struct KeyBatches<const N: usize> {
    read: FixedRead<N>,
    runtime: runtime::Id,
    is_done: bool,
}

impl<const N: usize> KeyBatches<N> {
    async fn run(mut self, pool: Pool) {
        loop {
            self.gather().await;
            let Some(keys) = self.next() else { break };
            if let Err(error) = self.look_up(&pool, keys).await {
                tracing::debug!(error = %error, "a read as a role of the program failed");
                if is_rejection(&error) {
                    let mut paused_until = self.read.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
                    *paused_until = Some(Instant::now() + PAUSE);
                }
            }
        }
        self.is_done = true;
    }

    /// Lets the runtime read the requests that have arrived on other connections, for as long as
    /// that brings more keys: they belong to this batch.
    async fn gather(&self) {
        let mut count = 0;
        for _ in 0..MAX_TURNS {
            tokio::task::yield_now().await;
            let more = self.read.waiting().get(&self.runtime).map_or(0, |waiting| waiting.keys.len());
            if more == count {
                break;
            }
            count = more;
        }
    }

    /// Returns the keys that wait, up to the size of a batch. `None`: none does, and the next one
    /// begins this work anew.
    fn next(&self) -> Option<Vec<WaitingKey<N>>> {
        let mut waiting = self.read.waiting();
        let keys = &mut waiting.get_mut(&self.runtime)?.keys;
        if keys.is_empty() {
            waiting.remove(&self.runtime);
            return None;
        }
        let later = keys.split_off(keys.len().min(MAX_KEYS));
        Some(std::mem::replace(keys, later))
    }

    /// Releases the callers that wait, and those to come until the batch has ended.
    fn set_stalled(&self, is_stalled: bool) {
        if let Some(waiting) = self.read.waiting().get_mut(&self.runtime) {
            *waiting = WaitingKeys { keys: Vec::new(), is_stalled };
        }
    }

    /// Looks up the keys of a batch. After an error their callers read in another way, since their
    /// senders are dropped.
    async fn look_up(&self, pool: &Pool, keys: Vec<WaitingKey<N>>) -> Result<(), WireError> {
        let arrays: [String; N] = std::array::from_fn(|at| text_array(keys.iter().map(|key| &key.texts[at])));
        let values = arrays.each_ref().map(|array| Some(array.as_bytes()));
        let batch = Batch::new().statement(Statement::named(self.read.text, &values).binary()).ending(Access::ReadOnly);
        let mut running = pin!(async { pool.checkout().await?.run(&batch).await });
        let Ok(results) = tokio::time::timeout(self.read.patience, running.as_mut()).await else {
            drop(keys);
            self.set_stalled(true);
            let outcome = running.await;
            self.set_stalled(false);
            return outcome.map(drop);
        };
        let results = results?;
        let rows = results.rows(0);
        if rows.len() != keys.len() {
            tracing::error!(keys = keys.len(), rows = rows.len(), "a read has not returned one row for each key");
            return Ok(());
        }
        for (key, row) in keys.into_iter().zip(rows) {
            if row.bytes(0).is_some() {
                // The caller may have been cancelled
                let _ = key.caller.send(row.clone());
            }
        }
        Ok(())
    }
}

impl<const N: usize> Drop for KeyBatches<N> {
    /// Lets the next key begin the work anew where this one has ended early, with its runtime.
    /// Callers that wait read in another way.
    fn drop(&mut self) {
        if !self.is_done {
            self.read.waiting().remove(&self.runtime);
        }
    }
}

/// Returns true if the statement or the login was rejected. Of a key that is no text of the
/// database, a lock that was not granted in time, a statement that is cancelled and a session that
/// the server ends, the next batch knows nothing.
fn is_rejection(error: &WireError) -> bool {
    match error {
        WireError::Postgres(error) => !["22", "55P03", "57"].iter().any(|class| error.code.starts_with(class)),
        WireError::Refused(_) => true,
        _ => false,
    }
}
