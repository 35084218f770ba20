//! The state of a connection's requests, shared between the reader of its bytes, the HTTP library's service and the
//! listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;

use futures_util::task::AtomicWaker;

/// The requests of a connection: what the HTTP library reports about them, and how far the reader of the bytes is.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The body of the last request, not yet taken by the reader: see [`BodyLength::pack`].
    body: AtomicU64,
    /// Requests that were handed over and whose answers the library has not taken whole.
    under_way: AtomicUsize,
    /// Requests that were handed over.
    count: AtomicU64,
    /// A [`Reading`].
    reading: AtomicU8,
    /// An [`Upgrade`].
    upgrade: AtomicU8,
    /// The client did not take all that was written last.
    is_blocked: AtomicBool,
    /// The reader, while it waits for a report.
    reader: AtomicWaker,
}

/// The length of a request's body on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(u64),
    /// The body comes in chunks, which say it themselves.
    Chunked,
}

/// The state of a connection, for the choice of the one that ends when another one needs its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No whole head has arrived yet, or a further one has arrived in part.
    Unfinished,
    /// All requests are answered.
    Idle,
    /// A request is being answered, or its answer sent.
    Busy,
}

/// The position of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reading {
    /// Before the first byte of a request.
    Between,
    /// Behind a head, with nothing more read.
    Behind,
    /// In the middle of a head or body.
    Within,
}

#[repr(u8)]
enum Upgrade {
    No,
    /// The client asked for one, and has no answer yet.
    Asked,
    /// The rest of the connection is another protocol's.
    Granted,
}

const REPORTED: u64 = 1;
const LONGEST_BODY: u64 = u64::MAX - 2;

impl BodyLength {
    /// As a number above 0, which stands for no report.
    fn pack(self) -> u64 {
        match self {
            Self::Known(length) => length.min(LONGEST_BODY) + REPORTED,
            Self::Chunked => u64::MAX,
        }
    }
}

/// A request whose answer is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Calls>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Calls {
    /// A request was handed over, with such a body behind its head. `may_upgrade`: its answer may hand the connection to
    /// another protocol; then [`Calls::decide_upgrade`] must be called with the answer.
    pub fn begins(self: &Arc<Self>, body: BodyLength, may_upgrade: bool) -> UnderWay {
        if may_upgrade {
            self.upgrade.store(Upgrade::Asked as u8, Ordering::Release);
        }
        let under_way = self.begins_multiplexed();
        self.body.store(body.pack(), Ordering::Release);
        self.reader.wake();
        under_way
    }

    /// A request was handed over on a connection that carries several at a time, and whose bytes are not followed.
    pub fn begins_multiplexed(self: &Arc<Self>) -> UnderWay {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(Arc::clone(self))
    }

    /// The answer to a request that asked for an upgrade grants it or not.
    pub fn decide_upgrade(&self, is_granted: bool) {
        let upgrade = if is_granted { Upgrade::Granted } else { Upgrade::No };
        self.upgrade.store(upgrade as u8, Ordering::Release);
        self.reader.wake();
    }

    /// Returns the number of requests, when every answer has gone out to its last byte and nothing of another request has come in. Only
    /// true of the moment in which the library has done all that it can, before it is asked to go on.
    pub fn at_rest(&self) -> Option<u64> {
        let is_upgrading = self.upgrade.load(Ordering::Acquire) != Upgrade::No as u8;
        (self.is_between() && !self.is_busy() && !is_upgrading).then(|| self.count.load(Ordering::Relaxed))
    }

    /// Returns the state of the connection. Any thread may ask; the answer is old at once.
    pub fn standing(&self) -> Standing {
        if self.is_busy() {
            Standing::Busy
        } else if self.count.load(Ordering::Relaxed) == 0 || !self.is_between() {
            Standing::Unfinished
        } else {
            Standing::Idle
        }
    }

    /// Returns true if the client has yet to send what it announced, or has sent what was not read.
    pub fn is_within_request(&self) -> bool {
        !self.is_between()
    }

    pub(super) fn is_upgrade_undecided(&self) -> bool {
        self.upgrade.load(Ordering::Acquire) == Upgrade::Asked as u8
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.upgrade.load(Ordering::Acquire) == Upgrade::Granted as u8
    }

    /// The body of the request that was handed over last, once. `None`: none was handed over since the last call.
    pub(super) fn take_body(&self) -> Option<BodyLength> {
        match self.body.swap(0, Ordering::AcqRel) {
            0 => None,
            u64::MAX => Some(BodyLength::Chunked),
            length => Some(BodyLength::Known(length - REPORTED)),
        }
    }

    /// Wakes the task when there is a report. It has to look once more after this.
    pub(super) fn wait_for_report(&self, context: &Context<'_>) {
        self.reader.register(context.waker());
    }

    pub(super) fn set_reading(&self, reading: Reading) {
        self.reading.store(reading as u8, Ordering::Release);
    }

    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Release);
    }

    fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Acquire) != 0 || self.is_blocked.load(Ordering::Acquire)
    }

    fn is_between(&self) -> bool {
        let reading = self.reading.load(Ordering::Acquire);
        let has_no_body = || self.body.load(Ordering::Acquire) == BodyLength::Known(0).pack();
        reading == Reading::Between as u8 || (reading == Reading::Behind as u8 && has_no_body())
    }
}
