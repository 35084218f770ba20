//! The connections: few, shared fairly, the last used first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answers::Answers;
use super::batch::Batch;
use super::connection::Connection;
use super::dial::Dialer;
use super::error::WireError;
use super::shelf::{Asked, Given, Granted, Idle, Shelf, Ticket};
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
    /// Open connections, in use or not, with those that are being made.
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
    shelf: Mutex<Shelf>,
    /// Connections that were made before the last [`Pool::renew`] are of an older generation.
    generation: AtomicU64,
    timeouts: AtomicU64,
    /// Whether a task looks after the idle connections.
    swept: AtomicBool,
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
                shelf: Mutex::new(Shelf::new(settings.connections)),
                generation: AtomicU64::new(0),
                timeouts: AtomicU64::new(0),
                swept: AtomicBool::new(false),
                settings,
            }),
        })
    }

    /// A connection for the caller alone, until the lease is dropped: the one used last, or a new one. Callers that have to
    /// wait are served in their order, but for moments: of callers on several runtimes those come first whose own runtime the
    /// connection wakes.
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
        let home = Handle::current().id();
        let asked = inner.shelf().ask(home).ok_or(WireError::Closed)?;
        let mut found = match asked {
            Asked::Granted(found) => found,
            Asked::Queued(ticket, answer) => {
                let mut waiting = Waiting { pool: inner, ticket, answer: Some(answer) };
                match tokio::time::timeout(inner.settings.wait, waiting.granted()).await {
                    Ok(granted) => granted?,
                    Err(_) => {
                        inner.timeouts.fetch_add(1, Ordering::Relaxed);
                        return Err(WireError::Busy(inner.settings.wait));
                    }
                }
            }
        };
        // From here on the place is given back by itself
        let mut lease = Lease { inner: inner.clone(), connection: None, generation: 0 };
        while let Some(mut idle) = found {
            let current = idle.generation == inner.generation.load(Ordering::Acquire);
            if current
                && !inner.has_aged(&idle.connection)
                && idle.connection.settle(home)
                && idle.connection.is_alive()
            {
                (lease.connection, lease.generation) = (Some(idle.connection), idle.generation);
                return Ok(lease);
            }
            idle.connection.say_goodbye();
            found = inner.shelf().reuse(home);
        }
        // Read before the connection is made: what is renewed meanwhile may be older than this connection's role.
        lease.generation = inner.generation.load(Ordering::Acquire);
        let keeps = inner.prepared.load(Ordering::Acquire);
        lease.connection = Some(Box::new(inner.dialer.dial(keeps).await?));
        Ok(lease)
    }

    /// From now on only connections made from now on are used: idle ones are closed, those in use when they are given back.
    /// After the schema or the role's settings changed.
    pub fn renew(&self) {
        self.inner.generation.fetch_add(1, Ordering::AcqRel);
        self.inner.drop_idle();
    }

    /// How many connections there are.
    pub fn status(&self) -> PoolStatus {
        self.inner.shelf().status()
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
        self.inner.shelf().close();
        self.inner.drop_idle();
    }
}

impl Inner {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // A panic elsewhere leaves the list whole: it changes by single pushes and pops.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_aged(&self, connection: &Connection) -> bool {
        connection.made().elapsed() > self.settings.max_lifetime
    }

    fn drop_idle(&self) {
        let idle = self.shelf().clear();
        for mut idle in idle {
            idle.connection.say_goodbye();
        }
    }

    /// After one connection broke, its neighbours are often dead too: the server restarted.
    fn drop_dead(&self) {
        self.shelf().retain(|idle| idle.connection.is_alive());
    }

    /// Takes back a place, with the connection that stands there, if it can be used again: between two batches, outside a transaction.
    fn take_back(self: &Arc<Self>, connection: Option<Box<Connection>>, generation: u64) {
        let mut kept = match connection {
            Some(mut connection) if self.has_aged(&connection) => {
                connection.say_goodbye();
                None
            }
            connection => connection.map(|connection| Idle { connection, since: Instant::now(), generation }),
        };
        loop {
            let step = {
                let mut shelf = self.shelf();
                // Looked at under the lock: whoever closes or renews the pool empties the list after saying so.
                let is_stale = shelf.is_closed() || generation != self.generation.load(Ordering::Acquire);
                let stale = kept.take_if(|_| is_stale);
                (shelf.give(kept), stale)
            };
            let (given, stale) = step;
            if let Some(mut stale) = stale {
                stale.connection.say_goodbye();
            }
            match given {
                Given::Kept => return self.sweep_later(),
                Given::Free => return,
                Given::To(waiter, granted) => match waiter.send(granted) {
                    Ok(()) => return,
                    // Gone just now
                    Err(granted) => kept = granted,
                },
            }
        }
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
        let mut shelf = self.shelf();
        while let Some(mut oldest) = shelf.pop_idle_for(self.settings.max_idle) {
            oldest.connection.say_goodbye();
        }
        match shelf.oldest() {
            Some(since) => Some(self.settings.max_idle.saturating_sub(since.elapsed())),
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

/// A caller that waits. When it goes away, so does its place in the queue.
struct Waiting<'a> {
    pool: &'a Arc<Inner>,
    ticket: Ticket,
    /// `None` once it came.
    answer: Option<oneshot::Receiver<Granted>>,
}

impl Waiting<'_> {
    async fn granted(&mut self) -> Result<Granted, WireError> {
        let Some(answer) = &mut self.answer else { return Err(WireError::Closed) };
        let granted = answer.await.map_err(|_| WireError::Closed);
        self.answer = None;
        granted
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        self.pool.shelf().leave(self.ticket);
        answer.close();
        // It came when nobody looked any more
        if let Ok(granted) = answer.try_recv() {
            match granted {
                Some(Idle { connection, generation, .. }) => self.pool.take_back(Some(connection), generation),
                None => self.pool.take_back(None, 0),
            }
        }
    }
}

/// A connection for one caller. Dropped between two batches it goes back to the pool, after a rollback when a transaction is
/// open; dropped in the middle of one, the statement is cancelled and the connection closed.
#[derive(Debug)]
pub struct Lease {
    inner: Arc<Inner>,
    /// `None` until there is one, and when it is of no use any more: then the lease is no more than a place for one.
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
        let Self { inner, connection, .. } = self;
        let prepared = inner.prepared.load(Ordering::Relaxed);
        let connection = connection.as_mut().ok_or(WireError::Closed)?;
        let outcome = connection.run(batch, prepared).await;
        if connection.is_broken() {
            inner.drop_dead();
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
        let rest = self.connection.take_if(|connection| !is_reusable(connection));
        let Some(rest) = rest else { return self.inner.take_back(self.connection.take(), self.generation) };
        // The place stays with the aftermath, so that there are never more connections than agreed.
        let place = Self { inner: self.inner.clone(), connection: None, generation: self.generation };
        let aftermath = Aftermath { place, connection: Some(rest) };
        if !aftermath.is_over()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(aftermath.finish());
        }
    }
}

/// Whether somebody else may have it: it is between two batches, and outside a transaction.
fn is_reusable(connection: &mut Box<Connection>) -> bool {
    connection.is_ready() && !connection.in_transaction()
}

/// A connection whose caller is gone and which is not ready for another.
struct Aftermath {
    place: Lease,
    connection: Option<Box<Connection>>,
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
                && is_reusable(connection)
            {
                self.place.connection = self.connection.take();
            }
        } else {
            let cancelled = tokio::time::timeout(AFTERMATH, self.place.inner.dialer.cancel(connection.key()));
            if let Ok(Err(error)) = cancelled.await {
                tracing::debug!(%error, "an abandoned statement could not be cancelled");
            }
        }
    }
}

impl Drop for Aftermath {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.say_goodbye();
        }
    }
}
