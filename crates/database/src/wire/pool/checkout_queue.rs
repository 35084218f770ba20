//! What the users of a pool share: connections that nobody uses, and callers that wait for one.
//!
//! A connection wakes the runtime that it is registered with, its home. Where there are several, one for each processor, a connection in
//! the hands of a caller at home costs no thread but its own. So callers get connections of their home first: of those that are idle, and
//! of those that come back while somebody waits, unless somebody else waits for long already.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::PoolStatus;
use crate::wire::coalescing::together::{Pending, PendingRead};
use crate::wire::protocol::result_sets::ResultSets;
use crate::wire::session::connection::WireConnection;

/// A caller that waits for longer than this comes first, wherever it is at home.
const PATIENCE: Duration = Duration::from_millis(10);

/// A connection that nobody uses.
#[derive(Debug)]
pub(crate) struct IdleConnection {
    pub connection: Box<WireConnection>,
    /// Since when.
    pub since: Instant,
    /// See `SharedPool::generation` of the pool.
    pub generation: u64,
}

/// What a caller who waits gets.
#[derive(Debug)]
pub(crate) enum Granted {
    /// A place for a connection, and the one that stands there already.
    Place(Option<IdleConnection>),
    /// Somebody has taken his read along.
    CompletedStatement(ResultSets),
}

/// The places for connections.
///
/// Of quick reads, which are known to take no longer than moments, only so many get a place at once: more would not be done sooner, since the
/// processors have enough to do, and PostgreSQL does those faster that travel together. The others wait to be taken along, while connections
/// are left for what takes longer.
///
/// Counted together, so that no connection is seen twice or not at all on its way from one to the other.
#[derive(Debug)]
pub(crate) struct CheckoutQueue {
    /// The last used at the back.
    idle: VecDeque<IdleConnection>,
    /// The caller that came first at the front. Somebody waits only while all places are taken.
    waiters: VecDeque<Waiter>,
    in_use: usize,
    /// Places.
    most: usize,
    /// Places in use by quick reads.
    quick: usize,
    /// As many quick reads at once as make sense; more wait, and are taken along.
    most_quick: usize,
    is_closed: bool,
    tickets: u64,
}

/// A caller in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    home: runtime::Id,
    since: Instant,
    is_quick: bool,
    /// What he wants, if somebody else may do it for him.
    read: Option<PendingRead>,
    answer: oneshot::Sender<Granted>,
}

/// What a caller gets.
pub(crate) enum Asked {
    /// A place, and the connection that stands there.
    Granted(Option<IdleConnection>),
    /// A place in the queue, and where the other one will come.
    Queued(Ticket, oneshot::Receiver<Granted>),
}

/// Where a place goes that came back.
pub(crate) enum Given {
    /// It is free, and its connection idle.
    Kept,
    /// It is free.
    Free,
    /// To the next caller.
    To {
        waiter: oneshot::Sender<Granted>,
        /// He has a quick read.
        is_quick: bool,
        idle: Option<IdleConnection>,
    },
}

impl CheckoutQueue {
    /// Room for so many connections, and for so many of them to be used by quick reads; for one at least.
    pub fn new(most: usize, most_quick: usize) -> Self {
        Self {
            idle: VecDeque::new(),
            waiters: VecDeque::new(),
            in_use: 0,
            most: most.max(1),
            quick: 0,
            most_quick: most_quick.max(1),
            is_closed: false,
            tickets: 0,
        }
    }

    /// Whether nobody has to wait just now. `is_quick`: of those with a quick read.
    pub fn has_room(&self, is_quick: bool) -> bool {
        self.in_use < self.most && (!is_quick || self.quick < self.most_quick)
    }

    fn enter(&mut self, is_quick: bool) {
        self.in_use += 1;
        self.quick += usize::from(is_quick);
    }

    /// A place for a caller at `home`. If he has to wait, somebody else may do his `read` for him. `None`: the shelf is closed.
    pub fn ask(&mut self, home: runtime::Id, is_quick: bool, read: Option<PendingRead>) -> Option<Asked> {
        if self.is_closed {
            return None;
        }
        if self.has_room(is_quick) {
            self.enter(is_quick);
            return Some(Asked::Granted(self.reuse(home)));
        }
        let (answer, coming) = oneshot::channel();
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiters.push_back(Waiter { ticket, home, since: Instant::now(), is_quick, read, answer });
        Some(Asked::Queued(ticket, coming))
    }

    /// An idle connection for a place that is taken: the last used of those at home, else the last used.
    pub fn reuse(&mut self, home: runtime::Id) -> Option<IdleConnection> {
        let at_home = self.idle.iter().rposition(|idle| idle.connection.home() == home);
        match at_home {
            Some(at) => self.idle.remove(at),
            None => self.idle.pop_back(),
        }
    }

    /// A caller no longer waits. `false`: he is not in the queue any more, and something comes for him.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let at = self.waiters.iter().position(|waiter| waiter.ticket == ticket);
        at.and_then(|at| self.waiters.remove(at)).is_some()
    }

    /// Takes callers at `home` out of the queue whose reads somebody does for them: so many at most, and those that `admits` says so of.
    pub fn take_pending(
        &mut self,
        home: runtime::Id,
        most: usize,
        admits: &mut dyn FnMut(&PendingRead) -> bool,
    ) -> Vec<Pending> {
        /// How far back is looked for them.
        const SEEN: usize = 64;
        let mut reads = Vec::new();
        let mut at = 0;
        for _ in 0..self.waiters.len().min(SEEN) {
            if reads.len() == most {
                break;
            }
            let waiter = self.waiters.get(at).filter(|waiter| waiter.home == home);
            let fits = waiter.and_then(|waiter| waiter.read.as_ref()).is_some_and(&mut *admits);
            match fits.then(|| self.waiters.remove(at)).flatten() {
                Some(Waiter { read: Some(read), answer, .. }) => reads.push((read, answer)),
                _ => at += 1,
            }
        }
        reads
    }

    /// A place comes back, with a connection or without. `is_quick`: it was for a quick read.
    pub fn give(&mut self, idle: Option<IdleConnection>, is_quick: bool) -> Given {
        self.in_use -= 1;
        self.quick -= usize::from(is_quick);
        if let Some(waiter) = self.next(idle.as_ref()) {
            self.enter(waiter.is_quick);
            return Given::To { waiter: waiter.answer, is_quick: waiter.is_quick, idle };
        }
        match idle {
            Some(idle) => {
                self.idle.push_back(idle);
                Given::Kept
            }
            None => Given::Free,
        }
    }

    /// Who comes next of those there is room for: the first, or the first at the connection's home while the first has not waited for long.
    fn next(&mut self, idle: Option<&IdleConnection>) -> Option<Waiter> {
        let fits = |waiter: &Waiter| self.has_room(waiter.is_quick);
        let first = self.waiters.iter().position(fits)?;
        let waiter = self.waiters.get(first)?;
        let at = match idle {
            Some(idle) if waiter.home != idle.connection.home() && idle.since - waiter.since < PATIENCE => {
                let home = idle.connection.home();
                self.waiters.iter().position(|waiter| waiter.home == home && fits(waiter)).unwrap_or(first)
            }
            _ => first,
        };
        self.waiters.remove(at)
    }

    /// Takes all idle connections away.
    pub fn clear(&mut self) -> VecDeque<IdleConnection> {
        std::mem::take(&mut self.idle)
    }

    /// Keeps the idle connections that `is_good` says so of.
    pub fn retain(&mut self, is_good: impl FnMut(&mut IdleConnection) -> bool) {
        self.idle.retain_mut(is_good);
    }

    /// Takes away a connection that has been idle for so long.
    pub fn pop_idle_for(&mut self, long: Duration) -> Option<IdleConnection> {
        self.idle.pop_front_if(|oldest| oldest.since.elapsed() >= long)
    }

    /// Since when the connection is idle that is so for the longest time.
    pub fn oldest(&self) -> Option<Instant> {
        self.idle.front().map(|oldest| oldest.since)
    }

    /// From now on nobody gets a place, neither those who wait.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.waiters.clear();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How many connections there are.
    pub fn status(&self) -> PoolStatus {
        let idle = self.idle.len();
        PoolStatus { open: idle + self.in_use, idle, waiting: self.waiters.len() }
    }
}
