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

use super::connection::Connection;
use super::pool::PoolStatus;

/// A caller that waits for longer than this comes first, wherever it is at home.
const PATIENCE: Duration = Duration::from_millis(10);

/// A connection that nobody uses.
#[derive(Debug)]
pub(super) struct Idle {
    pub connection: Box<Connection>,
    /// Since when.
    pub since: Instant,
    /// See `Inner::generation` of the pool.
    pub generation: u64,
}

/// A place for a connection, and the one that stands there already.
pub(super) type Granted = Option<Idle>;

/// The places for connections. Counted together, so that no connection is seen twice or not at all on its way from one to the other.
#[derive(Debug)]
pub(super) struct Shelf {
    /// The last used at the back.
    idle: VecDeque<Idle>,
    /// The caller that came first at the front. Somebody waits only while all places are taken.
    queue: VecDeque<Waiter>,
    in_use: usize,
    /// Places.
    most: usize,
    is_closed: bool,
    tickets: u64,
}

/// A caller in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    home: runtime::Id,
    since: Instant,
    answer: oneshot::Sender<Granted>,
}

/// What a caller gets.
pub(super) enum Asked {
    /// A place.
    Granted(Granted),
    /// A place in the queue, and where the other one will come.
    Queued(Ticket, oneshot::Receiver<Granted>),
}

/// Where a place goes that came back.
pub(super) enum Given {
    /// It is free, and its connection idle.
    Kept,
    /// It is free.
    Free,
    /// To the next caller.
    To(oneshot::Sender<Granted>, Granted),
}

impl Shelf {
    /// Room for so many connections; for one at least.
    pub fn new(most: usize) -> Self {
        Self {
            idle: VecDeque::new(),
            queue: VecDeque::new(),
            in_use: 0,
            most: most.max(1),
            is_closed: false,
            tickets: 0,
        }
    }

    /// A place for a caller at `home`. `None`: the shelf is closed.
    pub fn ask(&mut self, home: runtime::Id) -> Option<Asked> {
        if self.is_closed {
            return None;
        }
        if self.in_use < self.most {
            self.in_use += 1;
            return Some(Asked::Granted(self.reuse(home)));
        }
        let (answer, coming) = oneshot::channel();
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.queue.push_back(Waiter { ticket, home, since: Instant::now(), answer });
        Some(Asked::Queued(ticket, coming))
    }

    /// An idle connection for a place that is taken: the last used of those at home, else the last used.
    pub fn reuse(&mut self, home: runtime::Id) -> Option<Idle> {
        let at_home = self.idle.iter().rposition(|idle| idle.connection.home() == home);
        match at_home {
            Some(at) => self.idle.remove(at),
            None => self.idle.pop_back(),
        }
    }

    /// A caller no longer waits.
    pub fn leave(&mut self, ticket: Ticket) {
        if let Some(at) = self.queue.iter().position(|waiter| waiter.ticket == ticket) {
            self.queue.remove(at);
        }
    }

    /// A place comes back.
    pub fn give(&mut self, granted: Granted) -> Given {
        if let Some(waiter) = self.next(granted.as_ref()) {
            return Given::To(waiter.answer, granted);
        }
        self.in_use -= 1;
        match granted {
            Some(idle) => {
                self.idle.push_back(idle);
                Given::Kept
            }
            None => Given::Free,
        }
    }

    /// Who comes next: the first, or the first at the connection's home while the first has not waited for long.
    fn next(&mut self, granted: Option<&Idle>) -> Option<Waiter> {
        let first = self.queue.front()?;
        let at = match granted {
            Some(idle) if first.home != idle.connection.home() && idle.since - first.since < PATIENCE => {
                let home = idle.connection.home();
                self.queue.iter().position(|waiter| waiter.home == home).unwrap_or(0)
            }
            _ => 0,
        };
        self.queue.remove(at)
    }

    /// Takes all idle connections away.
    pub fn clear(&mut self) -> VecDeque<Idle> {
        std::mem::take(&mut self.idle)
    }

    /// Keeps the idle connections that `is_good` says so of.
    pub fn retain(&mut self, is_good: impl FnMut(&mut Idle) -> bool) {
        self.idle.retain_mut(is_good);
    }

    /// Takes away a connection that has been idle for so long.
    pub fn pop_idle_for(&mut self, long: Duration) -> Option<Idle> {
        self.idle.pop_front_if(|oldest| oldest.since.elapsed() >= long)
    }

    /// Since when the connection is idle that is so for the longest time.
    pub fn oldest(&self) -> Option<Instant> {
        self.idle.front().map(|oldest| oldest.since)
    }

    /// From now on nobody gets a place, neither those who wait.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.queue.clear();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How many connections there are.
    pub fn status(&self) -> PoolStatus {
        let idle = self.idle.len();
        PoolStatus { open: idle + self.in_use, idle, waiting: self.queue.len() }
    }
}
