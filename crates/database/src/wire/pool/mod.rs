//! The connections: few, shared fairly, the last used first.

pub(crate) mod checkout_queue;
mod cleanup;
mod idle_sweeper;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::checkout_queue::{Asked, CheckoutQueue, Given, Granted, IdleConnection, Ticket};
use self::cleanup::ConnectionCleanup;
use self::idle_sweeper::IdleSweeper;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::wire::coalescing::times::Times;
use crate::wire::coalescing::together::{MOST, PendingRead, main_of};
use crate::wire::protocol::batch::{Access, Batch, Statement};
use crate::wire::protocol::error::WireError;
use crate::wire::protocol::result_sets::ResultSets;
use crate::wire::session::connection::{SessionMode, WireConnection};
use crate::wire::session::connector::Connector;
use crate::wire::session::reset::FunctionTraits;

/// Quick reads wait for less than this. One that waits for longer is treated like any other.
const QUICK_PATIENCE: Duration = Duration::from_millis(10);

/// How many connections, and how they are kept.
#[derive(Debug, Clone)]
pub struct WirePoolSettings {
    /// The maximum number of connections.
    pub max_connections: usize,
    /// How long a caller waits for a connection to become free before it gets [`WireError::Busy`].
    pub checkout_timeout: Duration,
    /// A connection older than this is closed when it is given back.
    pub max_lifetime: Duration,
    /// A connection that nobody needed for so long is closed.
    pub max_idle: Duration,
    /// Indicates whether a session stays ours between two batches: statements are kept parsed on the
    /// server. Not behind a connection pooler that shares connections by transaction.
    pub prepared: bool,
    /// How many parsed statements one connection keeps at most; the least recently used goes.
    pub statements_per_connection: usize,
    /// A read that usually takes longer than this travels alone ([`PooledConnection::read`]).
    pub quick_read_limit: Duration,
    /// How many connections are in use for quick reads at once; those that come when these are in use wait for moments, to be taken along.
    pub max_quick_reads: usize,
}

impl Default for WirePoolSettings {
    fn default() -> Self {
        Self {
            max_connections: 10,
            checkout_timeout: Duration::from_secs(10),
            max_lifetime: Duration::from_secs(1800),
            max_idle: Duration::from_secs(30),
            prepared: true,
            statements_per_connection: 256,
            quick_read_limit: Duration::from_millis(4),
            max_quick_reads: usize::MAX,
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
    inner: Arc<SharedPool>,
}

#[derive(Debug)]
pub(crate) struct SharedPool {
    pub dialer: Connector,
    settings: WirePoolSettings,
    prepared: AtomicBool,
    /// [`FunctionTraits`] of the database, as bits.
    traits: AtomicU8,
    queue: Mutex<CheckoutQueue>,
    /// Connections that were made before the last [`Pool::renew`] are of an older generation.
    generation: AtomicU64,
    timeouts: AtomicU64,
    coalesced_reads: AtomicU64,
    times: Times,
    /// Whether a task looks after the idle connections.
    pub swept: AtomicBool,
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
    pub fn open(endpoint: &Endpoint, role: &str, settings: WirePoolSettings) -> Result<Self, DatabaseError> {
        Ok(Self {
            inner: Arc::new(SharedPool {
                dialer: Connector::new(endpoint, role, &settings)?,
                prepared: AtomicBool::new(settings.prepared),
                traits: AtomicU8::new(FunctionTraits::UNKNOWN.bits()),
                queue: Mutex::new(CheckoutQueue::new(settings.max_connections, settings.max_quick_reads)),
                generation: AtomicU64::new(0),
                timeouts: AtomicU64::new(0),
                coalesced_reads: AtomicU64::new(0),
                times: Times::new(),
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
    pub async fn checkout(&self) -> Result<PooledConnection, WireError> {
        loop {
            match self.take_for(None).await? {
                Taken::PooledConnection(lease) => return Ok(lease),
                // Not without a batch
                Taken::ResultSets(_) => {}
            }
        }
    }

    /// As [`take`](Self::take), for a batch that only reads, in one statement, and may be run twice: run it with [`PooledConnection::read`]. Where
    /// no connection is free, another such caller who gets one may take the batch along, and then the answers are there already.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_for_read(&self, batch: &Batch<'_>) -> Result<Taken, WireError> {
        self.take_for(Some(batch)).await
    }

    async fn take_for(&self, batch: Option<&Batch<'_>>) -> Result<Taken, WireError> {
        let inner = &self.inner;
        let home = Handle::current().id();
        let WirePoolSettings { max_connections, quick_read_limit, max_quick_reads, checkout_timeout, .. } =
            inner.settings;
        // What may travel with others, and its key
        let keeps = inner.prepared.load(Ordering::Relaxed);
        let mut rides = batch.filter(|_| keeps).and_then(|batch| Some((batch, inner.key(main_of(batch)?))));
        rides = rides.filter(|(_, key)| inner.times.is_quick(*key, quick_read_limit));
        let mut is_quick = rides.is_some() && max_quick_reads < max_connections;
        let deadline = Instant::now() + checkout_timeout;
        let mut found = loop {
            // Copied outside of the lock, and only where it may be of use
            let read = rides.filter(|_| !inner.queue().has_room(is_quick));
            let read = read.map(|(batch, key)| PendingRead::of(batch, key, |statement| inner.key(statement)));
            let asked = inner.queue().ask(home, is_quick, read).ok_or(WireError::Closed)?;
            let (ticket, answer) = match asked {
                Asked::Granted(found) => break found,
                Asked::Queued(ticket, answer) => (ticket, answer),
            };
            let mut waiting = Waiting { pool: inner, ticket, is_quick, answer: Some(answer) };
            let until = if is_quick { deadline.min(Instant::now() + QUICK_PATIENCE) } else { deadline };
            let mut granted = tokio::time::timeout_at(until, waiting.granted()).await;
            if granted.is_err() && !inner.queue().leave(ticket) {
                // Another caller has sent the batch along, and will not take long
                granted = tokio::time::timeout_at(deadline, waiting.granted()).await;
            }
            match granted {
                Ok(Some(Granted::Place(found))) => break found,
                Ok(Some(Granted::CompletedStatement(answers))) => return Ok(Taken::ResultSets(answers)),
                // Closed; or whoever took the batch along did not get through with it: not again
                Ok(None) => (rides, is_quick) = (None, false),
                // The quick ones are held up by something: like everybody else, then
                Err(_) if is_quick => is_quick = false,
                Err(_) => {
                    inner.timeouts.fetch_add(1, Ordering::Relaxed);
                    return Err(WireError::Busy(checkout_timeout));
                }
            }
        };
        // From here on the place is given back by itself
        let mut lease = PooledConnection { inner: inner.clone(), connection: None, generation: 0, is_quick };
        while let Some(mut idle) = found {
            let current = idle.generation == inner.generation.load(Ordering::Acquire);
            if current
                && !inner.is_expired(&idle.connection)
                && idle.connection.settle(home)
                && idle.connection.is_alive()
            {
                (lease.connection, lease.generation) = (Some(idle.connection), idle.generation);
                return Ok(Taken::PooledConnection(lease));
            }
            idle.connection.terminate();
            found = inner.queue().reuse(home);
        }
        // Read before the connection is made: what is renewed meanwhile may be older than this connection's role.
        lease.generation = inner.generation.load(Ordering::Acquire);
        let keeps = inner.prepared.load(Ordering::Acquire);
        lease.connection = Some(Box::new(inner.dialer.dial(keeps).await?));
        Ok(Taken::PooledConnection(lease))
    }

    /// From now on only connections made from now on are used: idle ones are closed, those in use when they are given back.
    /// After the schema or the role's settings changed.
    pub fn renew(&self) {
        self.inner.generation.fetch_add(1, Ordering::AcqRel);
        self.inner.close_idle_connections();
    }

    /// How many connections there are.
    pub fn status(&self) -> PoolStatus {
        self.inner.queue().status()
    }

    /// How often a caller waited in vain since the pool was made.
    pub fn timeouts(&self) -> u64 {
        self.inner.timeouts.load(Ordering::Relaxed)
    }

    /// How many reads went out along with somebody else's since the pool was made.
    pub fn coalesced_reads(&self) -> u64 {
        self.inner.coalesced_reads.load(Ordering::Relaxed)
    }

    /// Whether sessions stay ours ([`WirePoolSettings::prepared`]), from the next batch on. A change renews the connections.
    pub fn set_prepared(&self, prepared: bool) {
        if self.inner.prepared.swap(prepared, Ordering::AcqRel) != prepared {
            self.renew();
        }
    }

    /// Sets the known properties of the functions in the database. Until the first call, and whenever PostgreSQL
    /// reports more than is known, they count as unknown.
    pub fn set_function_traits(&self, traits: FunctionTraits) {
        self.inner.traits.store(traits.bits(), Ordering::Relaxed);
    }

    /// Lets the functions of the database count as unknown until their properties are set again.
    pub fn forget_function_traits(&self) {
        self.inner.forget_function_traits();
    }

    /// Returns the known properties of the functions in the database.
    pub fn function_traits(&self) -> FunctionTraits {
        self.inner.way().traits
    }

    /// Closes the pool: nobody gets a connection any more, and those in use close when they are given back.
    pub fn close(&self) {
        self.inner.queue().close();
        self.inner.close_idle_connections();
    }
}

impl SharedPool {
    fn queue(&self) -> MutexGuard<'_, CheckoutQueue> {
        // A panic elsewhere leaves the list whole: it changes by single pushes and pops.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a statement is known by.
    fn key(&self, statement: &Statement<'_>) -> u64 {
        self.dialer.texts().key(statement.text, statement.scope)
    }

    pub fn way(&self) -> SessionMode {
        SessionMode {
            prepared: self.prepared.load(Ordering::Relaxed),
            traits: FunctionTraits::from_bits(self.traits.load(Ordering::Relaxed)),
        }
    }

    /// Takes the cautious way until the database's functions have been looked at again.
    fn forget_function_traits(&self) {
        self.traits.fetch_or(FunctionTraits::UNKNOWN.bits(), Ordering::Relaxed);
    }

    fn is_expired(&self, connection: &WireConnection) -> bool {
        connection.made().elapsed() > self.settings.max_lifetime
    }

    fn close_idle_connections(&self) {
        let idle = self.queue().clear();
        for mut idle in idle {
            idle.connection.terminate();
        }
    }

    /// After one connection broke, its neighbours are often dead too: the server restarted.
    fn drop_dead_connections(&self) {
        self.queue().retain(|idle| idle.connection.is_alive());
    }

    /// Takes back a place, with the connection that stands there, if it can be used again: between two batches, outside a transaction.
    fn give_back(self: &Arc<Self>, connection: Option<Box<WireConnection>>, generation: u64, mut is_quick: bool) {
        let mut kept = match connection {
            // The only way for a connection to another caller leads through here
            Some(mut connection) if !connection.is_reusable() || self.is_expired(&connection) => {
                connection.terminate();
                None
            }
            connection => connection.map(|connection| IdleConnection { connection, since: Instant::now(), generation }),
        };
        loop {
            let step = {
                let mut queue = self.queue();
                // Looked at under the lock: whoever closes or renews the pool empties the list after saying so.
                let is_stale = queue.is_closed() || generation != self.generation.load(Ordering::Acquire);
                let stale = kept.take_if(|_| is_stale);
                (queue.give(kept, is_quick), stale)
            };
            let (given, stale) = step;
            if let Some(mut stale) = stale {
                stale.connection.terminate();
            }
            match given {
                Given::Kept => return self.start_sweeper(),
                Given::Free => return,
                Given::To { waiter, is_quick: is_for_quick, idle } => match waiter.send(Granted::Place(idle)) {
                    Ok(()) => return,
                    // Gone just now
                    Err(Granted::Place(idle)) => (kept, is_quick) = (idle, is_for_quick),
                    Err(Granted::CompletedStatement(_)) => return,
                },
            }
        }
    }

    /// Makes sure that somebody closes the connections that nobody needs: one task for the pool, for as long as there are
    /// idle connections.
    fn start_sweeper(self: &Arc<Self>) {
        if self.swept.load(Ordering::Acquire) || self.swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let sweeper = IdleSweeper::new(self);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(sweeper.run(self.settings.max_idle));
        }
    }

    /// Closes what has been idle for too long; how long until the next one will have been, if there is one.
    pub fn sweep(&self) -> Option<Duration> {
        let mut queue = self.queue();
        while let Some(mut oldest) = queue.pop_idle_for(self.settings.max_idle) {
            oldest.connection.terminate();
        }
        match queue.oldest() {
            Some(since) => Some(self.settings.max_idle.saturating_sub(since.elapsed())),
            None => {
                // Under the lock, so that whoever pushes next starts a new task.
                self.swept.store(false, Ordering::Release);
                None
            }
        }
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        self.close_idle_connections();
    }
}

/// A caller that waits. When it goes away, so does its place in the queue.
struct Waiting<'a> {
    pool: &'a Arc<SharedPool>,
    ticket: Ticket,
    is_quick: bool,
    /// `None` once it came.
    answer: Option<oneshot::Receiver<Granted>>,
}

impl Waiting<'_> {
    /// `None`: nothing comes any more.
    async fn granted(&mut self) -> Option<Granted> {
        let granted = self.answer.as_mut()?.await.ok();
        self.answer = None;
        granted
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        let _ = self.pool.queue().leave(self.ticket);
        answer.close();
        // It came when nobody looked any more
        match answer.try_recv() {
            Ok(Granted::Place(Some(IdleConnection { connection, generation, .. }))) => {
                self.pool.give_back(Some(connection), generation, self.is_quick);
            }
            Ok(Granted::Place(None)) => self.pool.give_back(None, 0, self.is_quick),
            Ok(Granted::CompletedStatement(_)) | Err(_) => {}
        }
    }
}

/// What a caller with a read gets.
#[derive(Debug)]
pub enum Taken {
    /// A connection, to run it on.
    PooledConnection(PooledConnection),
    /// What came out: somebody else ran it.
    ResultSets(ResultSets),
}

/// A connection for one caller. Dropped between two batches it goes back to the pool, once its session is as it was
/// in the beginning; dropped in the middle of one, the statement is cancelled and the connection closed.
#[derive(Debug)]
pub struct PooledConnection {
    pub(crate) inner: Arc<SharedPool>,
    /// `None` until there is one, and when it is of no use any more: then the lease is no more than a place for one.
    pub(crate) connection: Option<Box<WireConnection>>,
    generation: u64,
    /// It counts among the quick reads.
    is_quick: bool,
}

impl PooledConnection {
    /// Sends the batch in one write and reads its answers.
    ///
    /// When a statement that an earlier batch parsed no longer fits the schema, the batch is run once more with statements
    /// parsed anew; since a batch is one transaction, nothing of the first attempt remains. When the connection turns
    /// out to be in doubt, or breaks under a transaction that only reads, the batch is run once more on another.
    ///
    /// # Errors
    /// [`WireError::Postgres`] with the first error; then nothing of the batch took effect, and a transaction that it began or
    /// ran in can only be rolled back. [`WireError::Lost`] when the connection broke, which the next lease knows nothing of.
    pub async fn run(&mut self, batch: &Batch<'_>) -> Result<ResultSets, WireError> {
        let is_whole = !self.in_transaction();
        match self.run_once(batch).await {
            Err(error) if self.may_repeat(batch, is_whole, &error) => {
                tracing::debug!(%error, "a connection is replaced, and its batch run again");
                self.replace().await?;
                self.run_once(batch).await
            }
            outcome => outcome,
        }
    }

    /// Returns whether a batch that failed can be run on another connection: nothing of it took effect and only the connection
    /// was to blame, or it was a transaction that only reads and the connection broke without an error message. A session that
    /// the server ended with a reason (57P01 for `pg_terminate_backend`) was ended on purpose: running its statement again
    /// would undo that.
    fn may_repeat(&self, batch: &Batch<'_>, is_whole: bool, error: &WireError) -> bool {
        let only_reads = is_whole && batch.ends == Some(Access::ReadOnly);
        match error {
            WireError::Postgres(_) => self.connection.as_ref().is_some_and(|connection| connection.is_in_doubt()),
            WireError::Lost(_) | WireError::Protocol(_) => only_reads,
            _ => false,
        }
    }

    async fn run_once(&mut self, batch: &Batch<'_>) -> Result<ResultSets, WireError> {
        let Self { inner, connection, .. } = self;
        let connection = connection.as_mut().ok_or(WireError::Closed)?;
        let outcome = connection.run(batch, inner.way()).await;
        if connection.is_broken() {
            inner.drop_dead_connections();
        }
        let (answers, verdict) = outcome?;
        if verdict.is_some_and(|verdict| verdict.has_new_traits) {
            inner.forget_function_traits();
        }
        Ok(answers)
    }

    /// Opens another connection in the place of one that has ended.
    async fn replace(&mut self) -> Result<(), WireError> {
        self.connection = None;
        self.generation = self.inner.generation.load(Ordering::Acquire);
        let keeps = self.inner.prepared.load(Ordering::Acquire);
        self.connection = Some(Box::new(self.inner.dialer.dial(keeps).await?));
        Ok(())
    }

    /// As [`run`](Self::run), for the batch that the connection was [taken for](Pool::take_for_read). Where the batch is
    /// known to be a quick read, quick reads of callers who wait for a connection go out in the same write.
    ///
    /// # Errors
    /// As [`run`](Self::run); and as [`Pool::take`], should another connection be needed.
    pub async fn read(mut self, batch: &Batch<'_>) -> Result<ResultSets, WireError> {
        let Self { inner, connection, generation, .. } = &mut self;
        let connection = connection.as_mut().ok_or(WireError::Closed)?;
        let home = connection.home();
        let waiting = |admits: &mut dyn FnMut(&PendingRead) -> bool| {
            let mut queue = inner.queue();
            // A caller that came after the pool was renewed is not to get an older connection; `renew` looks at the
            // shelf behind it
            if *generation != inner.generation.load(Ordering::Acquire) {
                return Vec::new();
            }
            let reads = queue.take_pending(home, MOST - 1, admits);
            inner.coalesced_reads.fetch_add(reads.len() as u64, Ordering::Relaxed);
            reads
        };
        let way = inner.way();
        let outcome = connection.run_together(batch, way, &inner.times, inner.settings.quick_read_limit, waiting).await;
        if connection.is_broken() {
            inner.drop_dead_connections();
        }
        match outcome {
            Err(WireError::Postgres(_)) if connection.is_in_doubt() => {}
            Err(WireError::Lost(_) | WireError::Protocol(_)) => {}
            outcome => {
                let outcome = outcome?;
                if outcome.has_new_traits {
                    inner.forget_function_traits();
                }
                if let Some(answers) = outcome.answers {
                    return Ok(answers);
                }
            }
        }
        // Whatever it ran into, it may be run twice
        let pool = Pool { inner: inner.clone() };
        drop(self);
        pool.checkout().await?.run(batch).await
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

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let rest = self.connection.take_if(|connection| !connection.is_reusable());
        let Some(rest) = rest else {
            return self.inner.give_back(self.connection.take(), self.generation, self.is_quick);
        };
        // The place stays with the aftermath, so that there are never more connections than agreed.
        let (generation, is_quick) = (self.generation, self.is_quick);
        let place = Self { inner: self.inner.clone(), connection: None, generation, is_quick };
        let aftermath = ConnectionCleanup { place, connection: Some(rest) };
        if !aftermath.is_over()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(aftermath.finish());
        }
    }
}
