//! The connections: few, shared fairly, the last used first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answers::Answers;
use super::batch::Batch;
use super::connection::Connection;
use super::dial::Dialer;
use super::error::WireError;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;

/// How long the end of an abandoned conversation may take: cancelling it, or rolling it back.
const AFTERMATH: Duration = Duration::from_secs(5);

/// How many connections, and how they are kept.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Connections at most.
    pub connections: usize,
    /// How long a caller waits for a connection to become free before it gets [`WireError::Busy`].
    pub wait: Duration,
    /// A connection older than this is closed when it is given back.
    pub max_lifetime: Duration,
    /// A connection that nobody needed for so long is closed.
    pub max_idle: Duration,
    /// Whether a session stays ours between two batches: statements are kept parsed on the server, and `session` is set. Not behind a
    /// connection pooler that shares connections by transaction.
    pub prepared: bool,
    /// How many parsed statements one connection keeps at most; the least recently used goes.
    pub statements_per_connection: usize,
    /// Settings that each connection has, by name, besides those of its role.
    pub session: Vec<(String, String)>,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            connections: 10,
            wait: Duration::from_secs(10),
            max_lifetime: Duration::from_secs(1800),
            max_idle: Duration::from_secs(30),
            prepared: true,
            statements_per_connection: 256,
            session: Vec::new(),
        }
    }
}

/// How many connections there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStatus {
    /// Open connections, in use or not.
    pub open: usize,
    /// Open and not in use.
    pub idle: usize,
    /// Callers that wait for one.
    pub waiting: usize,
}

/// Connections that act as one role. Clones share them.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dialer: Dialer,
    settings: PoolSettings,
    prepared: AtomicBool,
    /// One permit for each connection that may be open; it hands them out in the order they were asked for.
    permits: Semaphore,
    shelf: Mutex<Shelf>,
    /// Connections that were made before the last [`Pool::renew`] are of an older generation.
    generation: AtomicU64,
    waiting: AtomicUsize,
    timeouts: AtomicU64,
    /// Whether a task looks after the idle connections.
    swept: AtomicBool,
}

/// Counted together, so that no connection is seen twice or not at all on its way from one to the other.
#[derive(Debug, Default)]
struct Shelf {
    /// The last used at the back.
    idle: VecDeque<Idle>,
    in_use: usize,
}

#[derive(Debug)]
struct Idle {
    connection: Box<Connection>,
    since: Instant,
    generation: u64,
}

impl Pool {
    /// Makes the pool; connections open when they are first asked for. Needs a Tokio runtime only then.
    ///
    /// On the embedded cluster the role logs in through the socket. On an external server the endpoint's login role does, and
    /// takes on the role: as its session where it is a superuser, with `set role` else. The role's own settings
    /// (`alter role .. set`) are in force either way.
    ///
    /// # Errors
    /// When the certificates that the endpoint names can not be read.
    pub fn open(endpoint: &Endpoint, role: &str, settings: PoolSettings) -> Result<Self, DatabaseError> {
        Ok(Self {
            inner: Arc::new(Inner {
                dialer: Dialer::new(endpoint, role, &settings)?,
                prepared: AtomicBool::new(settings.prepared),
                permits: Semaphore::new(settings.connections.clamp(1, Semaphore::MAX_PERMITS)),
                shelf: Mutex::default(),
                generation: AtomicU64::new(0),
                waiting: AtomicUsize::new(0),
                timeouts: AtomicU64::new(0),
                swept: AtomicBool::new(false),
                settings,
            }),
        })
    }

    /// A connection for the caller alone, until the lease is dropped: the one used last, or a new one. Callers that have to
    /// wait are served in their order.
    ///
    /// # Errors
    /// [`WireError::Busy`] when none becomes free in time; [`WireError::Unreachable`] when the server does not answer,
    /// [`WireError::Postgres`] or [`WireError::Refused`] when it does not want us; [`WireError::Closed`] after
    /// [`close`](Self::close).
    pub async fn take(&self) -> Result<Lease, WireError> {
        loop {
            let mut lease = self.take_any().await?;
            let Some(connection) = lease.connection.as_mut().filter(|connection| connection.has_changed()) else {
                return Ok(lease);
            };
            // A pooler may have put another session behind the connection, which is not ours to restore
            if !self.inner.prepared.load(Ordering::Relaxed) {
                return Ok(lease);
            }
            // A statement changed the session though nobody expected it to
            match connection.restore(true).await {
                Ok(()) => return Ok(lease),
                Err(error) => tracing::warn!(%error, "a session did not get its settings back, and ends"),
            }
        }
    }

    /// As [`take`](Self::take), whatever the connection's last user left in the session.
    async fn take_any(&self) -> Result<Lease, WireError> {
        let inner = &self.inner;
        let permit = match inner.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Count::up(&inner.waiting);
                match tokio::time::timeout(inner.settings.wait, inner.permits.acquire()).await {
                    Ok(Ok(permit)) => permit,
                    Ok(Err(_)) => return Err(WireError::Closed),
                    Err(_) => {
                        inner.timeouts.fetch_add(1, Ordering::Relaxed);
                        return Err(WireError::Busy(inner.settings.wait));
                    }
                }
            }
        };
        let (connection, generation) = match inner.reuse() {
            Some(found) => found,
            None => {
                // Read before the connection is made: what is renewed meanwhile may be older than this connection's role.
                let generation = inner.generation.load(Ordering::Acquire);
                let keeps = inner.prepared.load(Ordering::Acquire);
                let connection = Box::new(inner.dialer.dial(keeps).await?);
                inner.shelf().in_use += 1;
                (connection, generation)
            }
        };
        // From here on the lease gives the permit back.
        permit.forget();
        Ok(Lease { inner: inner.clone(), connection: Some(connection), generation })
    }

    /// From now on only connections made from now on are used: idle ones are closed, those in use when they are given back.
    /// After the schema or the role's settings changed.
    pub fn renew(&self) {
        self.inner.generation.fetch_add(1, Ordering::AcqRel);
        self.inner.drop_idle();
    }

    /// How many connections there are.
    pub fn status(&self) -> PoolStatus {
        let (idle, in_use) = {
            let shelf = self.inner.shelf();
            (shelf.idle.len(), shelf.in_use)
        };
        PoolStatus { open: idle + in_use, idle, waiting: self.inner.waiting.load(Ordering::Relaxed) }
    }

    /// How often a caller waited in vain since the pool was made.
    pub fn timeouts(&self) -> u64 {
        self.inner.timeouts.load(Ordering::Relaxed)
    }

    /// Whether sessions stay ours ([`PoolSettings::prepared`]), from the next batch on. A change renews the connections.
    pub fn set_prepared(&self, prepared: bool) {
        if self.inner.prepared.swap(prepared, Ordering::AcqRel) != prepared {
            self.renew();
        }
    }

    /// Closes the pool: nobody gets a connection any more, and those in use close when they are given back.
    pub fn close(&self) {
        self.inner.permits.close();
        self.inner.drop_idle();
    }
}

impl Inner {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // A panic elsewhere leaves the list whole: it changes by single pushes and pops.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The idle connection that was used last, of those that still live; it counts as in use from here on.
    fn reuse(&self) -> Option<(Box<Connection>, u64)> {
        loop {
            let mut idle = {
                let mut shelf = self.shelf();
                let idle = shelf.idle.pop_back()?;
                shelf.in_use += 1;
                idle
            };
            let current = idle.generation == self.generation.load(Ordering::Acquire);
            if current && !self.has_aged(&idle.connection) && idle.connection.is_alive() {
                return Some((idle.connection, idle.generation));
            }
            self.shelf().in_use -= 1;
            idle.connection.say_goodbye();
        }
    }

    fn has_aged(&self, connection: &Connection) -> bool {
        connection.made().elapsed() > self.settings.max_lifetime
    }

    fn drop_idle(&self) {
        let idle = std::mem::take(&mut self.shelf().idle);
        for mut idle in idle {
            idle.connection.say_goodbye();
        }
    }

    /// After one connection broke, its neighbours are often dead too: the server restarted.
    fn drop_dead(&self) {
        self.shelf().idle.retain_mut(|idle| idle.connection.is_alive());
    }

    /// Takes back a connection between two batches, outside a transaction.
    fn give_back(self: &Arc<Self>, mut connection: Box<Connection>, generation: u64) {
        if self.has_aged(&connection) {
            connection.say_goodbye();
            return self.let_go();
        }
        let refused = {
            let mut shelf = self.shelf();
            shelf.in_use -= 1;
            // Looked at under the lock: whoever closes or renews the pool empties the list after saying so.
            if self.permits.is_closed() || generation != self.generation.load(Ordering::Acquire) {
                Some(connection)
            } else {
                shelf.idle.push_back(Idle { connection, since: Instant::now(), generation });
                None
            }
        };
        match refused {
            Some(mut connection) => connection.say_goodbye(),
            None => self.sweep_later(),
        }
        self.permits.add_permits(1);
    }

    /// Counts a connection that is no more, and lets the next caller come.
    fn let_go(&self) {
        self.shelf().in_use -= 1;
        self.permits.add_permits(1);
    }

    /// Makes sure that somebody closes the connections that nobody needs: one task for the pool, for as long as there are
    /// idle connections.
    fn sweep_later(self: &Arc<Self>) {
        if self.swept.load(Ordering::Acquire) || self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let sweeper = Sweeper { pool: Arc::downgrade(self), is_done: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(sweeper.run(self.settings.max_idle));
        }
    }

    /// Closes what has been idle for too long; how long until the next one will have been, if there is one.
    fn sweep(&self) -> Option<Duration> {
        let idle = &mut self.shelf().idle;
        while idle.front().is_some_and(|oldest| oldest.since.elapsed() >= self.settings.max_idle) {
            if let Some(mut oldest) = idle.pop_front() {
                oldest.connection.say_goodbye();
            }
        }
        match idle.front() {
            Some(oldest) => Some(self.settings.max_idle.saturating_sub(oldest.since.elapsed())),
            None => {
                // Under the lock, so that whoever pushes next starts a new task.
                self.swept.store(false, Ordering::Release);
                None
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.drop_idle();
    }
}

/// The task that sweeps. When it ends early, with its runtime, another may begin.
struct Sweeper {
    pool: Weak<Inner>,
    is_done: bool,
}

impl Sweeper {
    async fn run(mut self, first: Duration) {
        let mut pause = first;
        while !self.is_done {
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
            match self.pool.upgrade().and_then(|pool| pool.sweep()) {
                Some(next) => pause = next,
                None => self.is_done = true,
            }
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if !self.is_done
            && let Some(pool) = self.pool.upgrade()
        {
            pool.swept.store(false, Ordering::Release);
        }
    }
}

/// Counts while it lives.
struct Count<'a>(&'a AtomicUsize);

impl<'a> Count<'a> {
    fn up(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection for one caller. Dropped between two batches it goes back to the pool, after a rollback when a transaction is
/// open; dropped in the middle of one, the statement is cancelled and the connection closed.
#[derive(Debug)]
pub struct Lease {
    inner: Arc<Inner>,
    /// `None` only while it is dropped.
    connection: Option<Box<Connection>>,
    generation: u64,
}

impl Lease {
    /// Sends the batch in one write and reads its answers.
    ///
    /// When a statement that an earlier batch parsed no longer fits the schema, the batch is run once more with statements
    /// parsed anew; since a batch is one transaction, nothing of the first attempt remains.
    ///
    /// # Errors
    /// [`WireError::Postgres`] with the first error; then nothing of the batch took effect, and a transaction that it began or
    /// ran in can only be rolled back. [`WireError::Lost`] when the connection broke, which the next lease knows nothing of.
    pub async fn run(&mut self, batch: &Batch<'_>) -> Result<Answers, WireError> {
        let prepared = self.inner.prepared.load(Ordering::Relaxed);
        let connection = self.connection.as_mut().ok_or(WireError::Closed)?;
        let outcome = connection.run(batch, prepared).await;
        if connection.is_broken() {
            self.inner.drop_dead();
        }
        outcome
    }

    /// Whether a transaction is open, be it only to be rolled back.
    pub fn in_transaction(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.in_transaction())
    }

    /// Whether the connection has ended, so that only another lease is of use.
    pub fn is_broken(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_broken())
    }

    /// The number of the server's process for this connection, as `pg_stat_activity` shows it.
    pub fn process(&self) -> i32 {
        self.connection.as_ref().map_or(0, |connection| connection.process())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if connection.is_ready() && !connection.in_transaction() {
            self.inner.give_back(connection, self.generation);
            return;
        }
        // The permit stays with the aftermath, so that there are never more connections than agreed.
        let aftermath =
            Aftermath { inner: self.inner.clone(), connection: Some(connection), generation: self.generation };
        if let Ok(runtime) = Handle::try_current()
            && !aftermath.is_over()
        {
            runtime.spawn(aftermath.finish());
        }
    }
}

/// A connection whose caller is gone and which is not ready for another.
struct Aftermath {
    inner: Arc<Inner>,
    connection: Option<Box<Connection>>,
    generation: u64,
}

impl Aftermath {
    /// Whether there is nothing to be done but to let go.
    fn is_over(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_broken())
    }

    async fn finish(mut self) {
        let Some(connection) = self.connection.as_mut() else { return };
        if connection.is_ready() {
            if let Ok(Ok(())) = tokio::time::timeout(AFTERMATH, connection.execute("rollback")).await
                && !connection.in_transaction()
                && let Some(connection) = self.connection.take()
            {
                self.inner.give_back(connection, self.generation);
            }
        } else if let Ok(Err(error)) = tokio::time::timeout(AFTERMATH, self.inner.dialer.cancel(connection.key())).await
        {
            tracing::debug!(%error, "an abandoned statement could not be cancelled");
        }
    }
}

impl Drop for Aftermath {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.say_goodbye();
            self.inner.let_go();
        }
    }
}
