//! The state of a connection's requests, shared between the reader of its bytes, the HTTP library's
//! service and the listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;

use futures_util::task::AtomicWaker;

/// The requests of a connection: what the HTTP library reports about them, and the position of the
/// reader of the bytes.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The body of the last request, until the reader takes it: see [`BodyLength::pack`].
    body: AtomicU64,
    /// The number of requests that were handed over and whose responses the library has not taken
    /// completely.
    in_flight: AtomicUsize,
    /// The number of requests that were handed over.
    count: AtomicU64,
    /// A [`ReaderPosition`].
    reading: AtomicU8,
    /// An [`Upgrade`].
    upgrade: AtomicU8,
    /// True if the client did not read all that was written last.
    is_blocked: AtomicBool,
    /// A [`HandOver`].
    hand_over: AtomicU8,
    /// The reader, while it waits for a report.
    reader: AtomicWaker,
}

/// The length of a request's body on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(u64),
    /// The body is in chunks, which carry their own lengths.
    Chunked,
}

/// The state of a connection, for the choice of the one to close when the connection limit is
/// reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionStanding {
    /// No complete head has arrived yet, or a further one has arrived in part.
    Unfinished,
    /// All requests have their responses.
    Idle,
    /// A request is in progress, or its response is being sent.
    Busy,
}

/// The position of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ReaderPosition {
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
    /// The client requested one, and has no response yet.
    Asked,
    /// The rest of the connection belongs to another protocol.
    Granted,
}

/// The way of a connection from the HTTP library to the service of a request with a long body,
/// which reads it from the connection itself.
#[repr(u8)]
enum HandOver {
    No,
    /// The library reads nothing more. It may have to write the end of an earlier response.
    Begun,
    /// It has nothing more to write.
    Done,
}

const REPORTED: u64 = 1;
const LONGEST_BODY: u64 = u64::MAX - 2;

impl BodyLength {
    /// Returns the length as a number above 0, which stands for no report.
    fn pack(self) -> u64 {
        match self {
            Self::Known(length) => length.min(LONGEST_BODY) + REPORTED,
            Self::Chunked => u64::MAX,
        }
    }
}

/// A request whose response is being sent, until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestInFlight(Arc<Calls>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Calls {
    /// Records that a request with such a body was handed over. If `may_upgrade`, its response may
    /// hand the connection to another protocol; then [`Calls::decide_upgrade`] must be called with
    /// the response.
    pub fn begins(self: &Arc<Self>, body: BodyLength, may_upgrade: bool) -> RequestInFlight {
        if may_upgrade {
            self.upgrade.store(Upgrade::Asked as u8, Ordering::Release);
        }
        let in_flight = self.begins_multiplexed();
        self.body.store(body.pack(), Ordering::Release);
        self.reader.wake();
        in_flight
    }

    /// Records that a request was handed over on a connection that carries several at a time, and
    /// whose bytes are not followed.
    pub fn begins_multiplexed(self: &Arc<Self>) -> RequestInFlight {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        RequestInFlight(Arc::clone(self))
    }

    /// Records whether the response to an upgrade request grants it.
    pub fn decide_upgrade(&self, is_granted: bool) {
        let upgrade = if is_granted { Upgrade::Granted } else { Upgrade::No };
        self.upgrade.store(upgrade as u8, Ordering::Release);
        self.reader.wake();
    }

    /// Ends the library's reading, behind a request that was handed over, until
    /// [`Calls::end_hand_over`].
    pub fn begin_hand_over(&self) {
        self.hand_over.store(HandOver::Begun as u8, Ordering::Release);
    }

    /// Records that the library has written all that it had to.
    pub(super) fn flushed(&self) {
        let (begun, done) = (HandOver::Begun as u8, HandOver::Done as u8);
        let _ = self.hand_over.compare_exchange(begun, done, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(super) fn is_handing_over(&self) -> bool {
        self.hand_over.load(Ordering::Acquire) != HandOver::No as u8
    }

    /// Returns true if the connection can be taken from the library.
    pub fn is_handed_over(&self) -> bool {
        self.hand_over.load(Ordering::Acquire) == HandOver::Done as u8
    }

    /// Lets the connection be read again.
    pub fn end_hand_over(&self) {
        self.hand_over.store(HandOver::No as u8, Ordering::Release);
    }

    /// Returns the number of requests, if every response has been sent to its last byte and nothing
    /// of another request has arrived. Valid only at the moment in which the library has done all
    /// that it can, before it is polled again.
    pub fn at_rest(&self) -> Option<u64> {
        let is_upgrading = self.upgrade.load(Ordering::Acquire) != Upgrade::No as u8;
        (self.is_between() && !self.is_busy() && !is_upgrading).then(|| self.count.load(Ordering::Relaxed))
    }

    /// Returns the state of the connection. Any thread may call this; the result can be outdated at
    /// once.
    pub fn standing(&self) -> ConnectionStanding {
        if self.is_busy() {
            ConnectionStanding::Busy
        } else if self.count.load(Ordering::Relaxed) == 0 || !self.is_between() {
            ConnectionStanding::Unfinished
        } else {
            ConnectionStanding::Idle
        }
    }

    /// Returns true if the client has yet to send what it announced, or has sent bytes that were
    /// not read.
    pub fn is_within_request(&self) -> bool {
        !self.is_between()
    }

    pub(super) fn is_upgrade_undecided(&self) -> bool {
        self.upgrade.load(Ordering::Acquire) == Upgrade::Asked as u8
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.upgrade.load(Ordering::Acquire) == Upgrade::Granted as u8
    }

    /// Returns the body of the request that was handed over last, once. `None`: none was handed
    /// over since the last call.
    pub(super) fn take_body(&self) -> Option<BodyLength> {
        match self.body.swap(0, Ordering::AcqRel) {
            0 => None,
            u64::MAX => Some(BodyLength::Chunked),
            length => Some(BodyLength::Known(length - REPORTED)),
        }
    }

    /// Registers the task to be woken by a report. It has to check once more after this.
    pub(super) fn wait_for_report(&self, context: &Context<'_>) {
        self.reader.register(context.waker());
    }

    pub(super) fn set_reading(&self, reading: ReaderPosition) {
        self.reading.store(reading as u8, Ordering::Release);
    }

    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Release);
    }

    fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) != 0 || self.is_blocked.load(Ordering::Acquire)
    }

    fn is_between(&self) -> bool {
        let reading = self.reading.load(Ordering::Acquire);
        let has_no_body = || self.body.load(Ordering::Acquire) == BodyLength::Known(0).pack();
        reading == ReaderPosition::Between as u8 || (reading == ReaderPosition::Behind as u8 && has_no_body())
    }
}
