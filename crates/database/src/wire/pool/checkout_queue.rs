//! The idle connections of a pool, and the queue of callers that wait for one.
//!
//! A connection is registered with one runtime, which it wakes. With one runtime for each
//! processor, a connection that is used by a caller of its own runtime wakes no other thread. So
//! callers get connections of their own runtime first: of the idle ones, and of those that are
//! returned while callers wait. A caller of another runtime that has waited for long is served
//! before them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::wire::protocol::result_sets::ResultSets;
use crate::wire::session::batch_copy::BatchCopy;
use crate::wire::session::connection::WireConnection;

/// A caller that has waited for longer than this is served next, whatever its runtime.
const LONGEST_DETOUR: Duration = Duration::from_millis(10);
/// The number of callers that are considered in a search for batches that another caller can run.
const MAX_SEARCHED: usize = 64;

/// The numbers of connections and waiting callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStatus {
    /// Open connections, in use or not, including those that are being opened.
    pub open: usize,
    /// Open connections that are not in use.
    pub idle: usize,
    /// Callers that wait for a connection.
    pub waiting: usize,
}

/// An open connection that is not in use.
#[derive(Debug)]
pub(crate) struct IdleConnection {
    pub connection: Box<WireConnection>,
    /// The time at which it was returned.
    pub since: Instant,
    /// The generation of the pool in which it was opened.
    pub generation: u64,
}

/// The message to a waiting caller.
#[derive(Debug)]
pub(crate) enum CheckoutGrant {
    /// Permission to use a connection: this one, or a new one.
    Connection(Option<IdleConnection>),
    /// The results of its batch, which another caller ran.
    Results(ResultSets),
}

/// A request for a connection.
#[derive(Debug)]
pub(crate) struct CheckoutRequest {
    /// The runtime of the caller.
    pub runtime: runtime::Id,
    /// Grants a connection only while fewer than this many limited checkouts are in use.
    pub limit: Option<usize>,
    /// The batch of the caller, if another caller may run it.
    pub batch: Option<BatchCopy>,
}

/// The response to a [`CheckoutRequest`].
pub(crate) enum CheckoutResponse {
    /// The caller may use a connection at once.
    Granted(Option<IdleConnection>),
    /// The caller has to wait, and receives the grant here.
    Queued(WaiterId, oneshot::Receiver<CheckoutGrant>),
}

/// The number of a caller in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaiterId(u64);

/// A batch of a waiting caller for another caller to run, and the receiver of its results.
pub(crate) type DelegatedBatch = (BatchCopy, oneshot::Sender<CheckoutGrant>);

/// The outcome of a return.
pub(crate) enum ReturnedConnection {
    /// It is idle.
    Idle,
    /// There is none, and no caller waits.
    Absent,
    /// It is granted to the next caller.
    Granted { waiter: oneshot::Sender<CheckoutGrant>, is_limited: bool, idle: Option<IdleConnection> },
}

/// The idle connections, the waiting callers and the connection limit of a pool.
///
/// They share one lock, so that a connection is neither counted twice nor missed while it moves
/// from one to the other.
#[derive(Debug)]
pub(crate) struct CheckoutQueue {
    /// The most recently used is last.
    idle: VecDeque<IdleConnection>,
    /// The caller that came first is first. A caller only waits while the limit is reached.
    waiters: VecDeque<Waiter>,
    in_use: usize,
    max_connections: usize,
    /// The number of limited checkouts in use.
    limited_in_use: usize,
    is_closed: bool,
    last_waiter: u64,
}

#[derive(Debug)]
struct Waiter {
    id: WaiterId,
    request: CheckoutRequest,
    since: Instant,
    sender: oneshot::Sender<CheckoutGrant>,
}

impl CheckoutQueue {
    /// Returns a queue with a connection limit (minimum 1).
    pub fn new(max_connections: usize) -> Self {
        Self {
            idle: VecDeque::new(),
            waiters: VecDeque::new(),
            in_use: 0,
            max_connections: max_connections.max(1),
            limited_in_use: 0,
            is_closed: false,
            last_waiter: 0,
        }
    }

    /// Returns true if a request with this limit would be granted at once.
    pub fn has_room(&self, limit: Option<usize>) -> bool {
        self.in_use < self.max_connections && limit.is_none_or(|limit| self.limited_in_use < limit)
    }

    fn count(&mut self, is_limited: bool) {
        self.in_use += 1;
        self.limited_in_use += usize::from(is_limited);
    }

    /// Grants a request or queues it. Returns `None` when the pool is closed.
    pub fn request(&mut self, request: CheckoutRequest) -> Option<CheckoutResponse> {
        if self.is_closed {
            return None;
        }
        if self.has_room(request.limit) {
            self.count(request.limit.is_some());
            return Some(CheckoutResponse::Granted(self.take_idle(request.runtime)));
        }
        let (sender, receiver) = oneshot::channel();
        self.last_waiter += 1;
        let id = WaiterId(self.last_waiter);
        self.waiters.push_back(Waiter { id, request, since: Instant::now(), sender });
        Some(CheckoutResponse::Queued(id, receiver))
    }

    /// Takes an idle connection for a granted checkout: the most recently used one of the runtime,
    /// or the most recently used one.
    pub fn take_idle(&mut self, runtime: runtime::Id) -> Option<IdleConnection> {
        let of_runtime = self.idle.iter().rposition(|idle| idle.connection.runtime() == runtime);
        match of_runtime {
            Some(position) => self.idle.remove(position),
            None => self.idle.pop_back(),
        }
    }

    /// Removes a caller from the queue. `false`: it is no longer there, and a grant is on its way.
    pub fn leave(&mut self, id: WaiterId) -> bool {
        let position = self.waiters.iter().position(|waiter| waiter.id == id);
        position.and_then(|position| self.waiters.remove(position)).is_some()
    }

    /// Removes up to `max` callers of `runtime` from the queue whose batches `accepts` accepts, and
    /// returns these batches.
    pub fn take_delegated(
        &mut self,
        runtime: runtime::Id,
        max: usize,
        accepts: &mut dyn FnMut(&BatchCopy) -> bool,
    ) -> Vec<DelegatedBatch> {
        let mut batches = Vec::new();
        let mut position = 0;
        for _ in 0..self.waiters.len().min(MAX_SEARCHED) {
            if batches.len() == max {
                break;
            }
            let request = self.waiters.get(position).map(|waiter| &waiter.request);
            let batch = request.filter(|request| request.runtime == runtime).and_then(|request| request.batch.as_ref());
            let is_accepted = batch.is_some_and(&mut *accepts);
            match is_accepted.then(|| self.waiters.remove(position)).flatten() {
                Some(Waiter { request: CheckoutRequest { batch: Some(batch), .. }, sender, .. }) => {
                    batches.push((batch, sender));
                }
                _ => position += 1,
            }
        }
        batches
    }

    /// Ends a checkout, with a connection or without.
    pub fn give_back(&mut self, idle: Option<IdleConnection>, is_limited: bool) -> ReturnedConnection {
        self.in_use -= 1;
        self.limited_in_use -= usize::from(is_limited);
        if let Some(Waiter { request, sender, .. }) = self.next_waiter(idle.as_ref()) {
            let is_limited = request.limit.is_some();
            self.count(is_limited);
            return ReturnedConnection::Granted { waiter: sender, is_limited, idle };
        }
        match idle {
            Some(idle) => {
                self.idle.push_back(idle);
                ReturnedConnection::Idle
            }
            None => ReturnedConnection::Absent,
        }
    }

    /// Removes the next caller that there is room for: the first one, or the first one of the
    /// connection's runtime while the first one has not waited for long.
    fn next_waiter(&mut self, idle: Option<&IdleConnection>) -> Option<Waiter> {
        let fits = |waiter: &Waiter| self.has_room(waiter.request.limit);
        let first = self.waiters.iter().position(fits)?;
        let waiter = self.waiters.get(first)?;
        let position = match idle {
            Some(idle)
                if waiter.request.runtime != idle.connection.runtime()
                    && idle.since - waiter.since < LONGEST_DETOUR =>
            {
                let runtime = idle.connection.runtime();
                let of_runtime = |waiter: &Waiter| waiter.request.runtime == runtime && fits(waiter);
                self.waiters.iter().position(of_runtime).unwrap_or(first)
            }
            _ => first,
        };
        self.waiters.remove(position)
    }

    /// Takes all idle connections.
    pub fn take_all_idle(&mut self) -> VecDeque<IdleConnection> {
        std::mem::take(&mut self.idle)
    }

    /// Removes the idle connections that `is_usable` returns `false` for.
    pub fn retain_idle(&mut self, is_usable: impl FnMut(&mut IdleConnection) -> bool) {
        self.idle.retain_mut(is_usable);
    }

    /// Takes a connection that has been idle for at least `duration`.
    pub fn take_idle_for(&mut self, duration: Duration) -> Option<IdleConnection> {
        self.idle.pop_front_if(|oldest| oldest.since.elapsed() >= duration)
    }

    /// Returns the time from which the least recently used connection has been idle.
    pub fn oldest_idle(&self) -> Option<Instant> {
        self.idle.front().map(|oldest| oldest.since)
    }

    /// Rejects all requests from now on, the waiting ones included.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.waiters.clear();
    }

    /// Returns true if the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the numbers of connections and waiting callers.
    pub fn status(&self) -> PoolStatus {
        let idle = self.idle.len();
        PoolStatus { open: idle + self.in_use, idle, waiting: self.waiters.len() }
    }
}
