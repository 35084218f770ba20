//! Rewrites the targets of requests that the HTTP library would reject, such as
//! `?select=data->>name`, and enforces the framing of requests.
//!
//! Command line tools and some HTTP libraries send `"`, `<`, `>` and the backtick unencoded, and
//! servers accept them; the HTTP library rejects such a request before the gateway sees it. So the
//! bytes of a connection pass through here on their way to the library, and these four characters
//! are percent-encoded in a request's target. Of a target that is longer than the gateway allows,
//! only enough is passed on for the gateway to see that: the library would respond with a status
//! and no body.
//!
//! A line of a head that ends with a bare line feed makes the library reject the request with 400
//! (RFC 9112, 2.2 allows both): a proxy in front of the server may see one line where the library
//! sees two.
//!
//! No other byte must ever change: then the end of a request would no longer be where the client
//! put it. A target is searched only where the HTTP library, too, sees a request begin: at the
//! start of the connection, and behind a request whose length the library reported
//! ([`Calls::begins`]). Bytes behind a head are passed on only after that report, so the position
//! is always known; bytes that are no body of the announced kind end the connection. After an
//! upgrade all bytes pass.
//!
//! A head has to arrive within a time limit, which begins with its first byte, or with the
//! connection. A client that stops reading is cut off as well, so that it does not keep what its
//! response needs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use chunks::{Chunks, Walk};

use super::stall_time::StallTime;
use crate::request::LONGEST_TARGET;

pub(crate) use calls::{BodyLength, Calls, ConnectionStanding, RequestInFlight};

mod calls;
mod chunks;

/// The most bytes that are read at once for the library. It doubles the buffer of a connection
/// whenever a read fills it, up to the size of the longest head, and a body that waits to be
/// written has that size: with many uploads at a time, most of the memory. It has 8 KiB at first,
/// and 16 KiB, which this does not fill, from the first full read on.
const READ_SIZE: u64 = 16 * 1024 - 1;

/// The replacement of a bare line feed. The library rejects this byte everywhere in a head.
const REJECTED_BYTE: u8 = 0;

/// A connection whose requests have targets that the library accepts.
#[derive(Debug)]
pub(crate) struct RequestLines<S> {
    stream: S,
    calls: Arc<Calls>,
    position: Position,
    /// Bytes to pass on.
    held: Bytes,
    /// Bytes that were read behind a head and not processed yet.
    ahead: Bytes,
    /// The most bytes that are read at once.
    read_size: u64,
    head: HeadTime,
    stall: StallTime,
}

/// The time that a head has taken to arrive so far.
#[derive(Debug)]
struct HeadTime {
    limit: Duration,
    /// The time since which a head is awaited or arriving. `None`: no head is.
    since: Option<Instant>,
    /// Set while the reader waits for the rest.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> RequestLines<S> {
    /// Wraps a connection at its start. Its first head has been awaited since `since`. A head may
    /// take the time `head`, and a client may read nothing of what is written for the time `stall`.
    pub fn new(stream: S, calls: Arc<Calls>, since: Instant, (head, stall): (Duration, Duration)) -> Self {
        let head = HeadTime { limit: head, since: Some(since), end: None };
        let (held, ahead) = (Bytes::new(), Bytes::new());
        let (position, stall) = (Position::Start, StallTime::new(stall));
        Self { stream, calls, position, held, ahead, read_size: READ_SIZE, head, stall }
    }

    /// Sets the most bytes that are read at once. `None`: as many as suit the library.
    pub fn limit_reads(&mut self, size: Option<usize>) {
        self.read_size = size.map_or(READ_SIZE, |size| size as u64);
    }

    /// Takes back bytes that were read and not used. They are processed already.
    pub fn unread(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.held = [bytes, std::mem::take(&mut self.held)].concat().into();
        }
    }

    /// Returns true if all bytes that were read have been used.
    pub fn is_used_up(&self) -> bool {
        self.held.is_empty() && self.ahead.is_empty()
    }

    /// Returns the underlying stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns true if the client was cut off: its head took too long, or its body was malformed.
    pub fn is_cut_off(&self) -> bool {
        self.position == Position::Broken
    }

    /// Returns the underlying stream and drops the rest.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Records whether the client reads what is written. Fails if it has not done so for too long.
    fn written<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.calls.set_blocked(outcome.is_pending());
        self.stall.limit(cx, outcome)
    }

    /// Determines what comes next where the library or a service has to report it. Returns false if
    /// neither has.
    fn settle(&mut self) -> bool {
        if self.position == Position::Behind {
            self.position = match self.calls.take_body() {
                Some(BodyLength::Known(0)) => Position::Start,
                Some(BodyLength::Known(left)) => Position::Body { left },
                Some(BodyLength::Chunked) => Position::Chunks(Chunks::start()),
                None => return false,
            };
            let is_between = self.position == Position::Start && self.ahead.is_empty();
            self.calls.set_reading(if is_between {
                calls::ReaderPosition::Between
            } else {
                calls::ReaderPosition::Within
            });
        }
        if self.position == Position::Start && self.calls.is_upgraded() {
            self.position = Position::Upgraded;
        }
        self.ahead.is_empty() || !self.is_held_by_upgrade()
    }

    /// Returns true if the next bytes may belong to another protocol or to the next request.
    fn is_held_by_upgrade(&self) -> bool {
        self.position == Position::Start && self.calls.is_upgrade_undecided()
    }

    /// Processes bytes that arrived: returns how many may be passed on now, and their replacement
    /// if anything changes.
    fn pass(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let (end, changed) = if self.is_held_by_upgrade() { (0, None) } else { self.position.follow(bytes) };
        let reading = match self.position {
            Position::Start if end == bytes.len() => calls::ReaderPosition::Between,
            Position::Behind if end == bytes.len() => calls::ReaderPosition::Behind,
            _ => calls::ReaderPosition::Within,
        };
        self.calls.set_reading(reading);
        if self.position.is_in_head() {
            self.head.since.get_or_insert_with(Instant::now);
        } else if self.position == Position::Behind {
            (self.head.since, self.head.end) = (None, None);
        }
        (end, changed)
    }
}

impl HeadTime {
    /// Polls the time limit of a head. Ready when it has passed.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(since) = self.since else { return Poll::Pending };
        let limit = self.limit;
        let end = self.end.get_or_insert_with(|| {
            // A limit beyond the end of time is no limit
            let end = since.checked_add(limit).unwrap_or_else(|| since + Duration::from_secs(86_400));
            Box::pin(tokio::time::sleep_until(end))
        });
        end.as_mut().poll(context)
    }
}

/// The position of the next byte in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before a request. Empty lines are skipped there.
    Start,
    /// Behind the carriage return of such a line.
    StartReturn,
    Method,
    /// At the first byte of the target.
    Target,
    /// In a target that is a path, with the number of its bytes that were passed on.
    Path {
        length: usize,
    },
    /// In the rest of the request line.
    Line {
        /// The last byte was a carriage return.
        is_return: bool,
    },
    /// At the first byte of a header line.
    Header,
    /// In such a line.
    HeaderLine {
        /// The last byte was a carriage return.
        is_return: bool,
    },
    /// Behind the carriage return of the empty line that ends the head.
    HeadEnd,
    /// Behind the head. The HTTP library reports what comes next.
    Behind,
    Body {
        /// At least one.
        left: u64,
    },
    Chunks(Chunks),
    /// In another protocol, whose bytes pass.
    Upgraded,
    /// In a request that the library will reject: the rest of the head passes, and no request
    /// follows.
    Rejected,
    /// The bytes are no body of the announced kind, or a head took too long: nothing passes.
    Broken,
}

impl Position {
    fn is_in_head(self) -> bool {
        match self {
            Self::StartReturn
            | Self::Method
            | Self::Target
            | Self::Path { .. }
            | Self::Line { .. }
            | Self::Header
            | Self::HeaderLine { .. }
            | Self::HeadEnd
            | Self::Rejected => true,
            Self::Start | Self::Behind | Self::Body { .. } | Self::Chunks(_) | Self::Upgraded | Self::Broken => false,
        }
    }

    /// Walks over the bytes up to the end of a head or body. Returns how many they were, and their
    /// replacement if anything changes.
    fn follow(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let mut changed = ByteEdits { bytes, copied: 0, made: None };
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self {
                Self::Start => match byte {
                    b'\r' => {
                        *self = Self::StartReturn;
                        at += 1;
                    }
                    b'\n' => self.reject(&mut changed, &mut at),
                    _ => *self = Self::Method,
                },
                Self::StartReturn if byte == b'\n' => {
                    *self = Self::Start;
                    at += 1;
                }
                Self::Method if is_token(byte) => at += 1,
                Self::Method if byte == b' ' => {
                    *self = Self::Target;
                    at += 1;
                }
                Self::StartReturn | Self::Method => *self = Self::Rejected,
                // `*`, hosts and absolute addresses are unchanged
                Self::Target => {
                    *self = if byte == b'/' { Self::Path { length: 0 } } else { Self::Line { is_return: false } };
                }
                Self::Path { .. } if byte <= b' ' => *self = Self::Line { is_return: false },
                Self::Path { length } if is_rejected(byte) || *length > LONGEST_TARGET => {
                    let instead: &[u8] = if *length <= LONGEST_TARGET { encoded(byte) } else { b"" };
                    *length += instead.len();
                    changed.put(at, instead);
                    at += 1;
                }
                Self::Path { length } => {
                    *length += 1;
                    at += 1;
                }
                Self::Line { is_return } | Self::HeaderLine { is_return } => {
                    let Some(end) = memchr::memchr(b'\n', &bytes[at..]) else {
                        *is_return = bytes.ends_with(b"\r");
                        at = bytes.len();
                        continue;
                    };
                    let is_whole = if end == 0 { *is_return } else { bytes[at + end - 1] == b'\r' };
                    at += end;
                    if is_whole {
                        *self = Self::Header;
                        at += 1;
                    } else {
                        self.reject(&mut changed, &mut at);
                    }
                }
                Self::Header => match byte {
                    b'\r' => {
                        *self = Self::HeadEnd;
                        at += 1;
                    }
                    b'\n' => self.reject(&mut changed, &mut at),
                    _ => *self = Self::HeaderLine { is_return: false },
                },
                Self::HeadEnd if byte == b'\n' => {
                    *self = Self::Behind;
                    at += 1;
                }
                // The library rejects a carriage return inside a line
                Self::HeadEnd => *self = Self::Rejected,
                Self::Body { left } => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    *left -= here as u64;
                    at += here;
                    if *left == 0 {
                        *self = Self::Start;
                        break;
                    }
                }
                Self::Chunks(chunks) => match chunks.follow(&bytes[at..]) {
                    Walk::Within => at = bytes.len(),
                    Walk::Ends(end) => {
                        *self = Self::Start;
                        at += end;
                        break;
                    }
                    Walk::Broken => *self = Self::Broken,
                },
                Self::Upgraded | Self::Rejected => at = bytes.len(),
                Self::Behind | Self::Broken => break,
            }
        }
        (at, changed.until(at))
    }

    /// Makes the library reject the request, whose head has a bare line feed here.
    fn reject(&mut self, changed: &mut ByteEdits<'_>, at: &mut usize) {
        changed.put(*at, &[REJECTED_BYTE]);
        *at += 1;
        *self = Self::Rejected;
    }
}

/// Bytes of which some are replaced.
struct ByteEdits<'b> {
    bytes: &'b [u8],
    copied: usize,
    made: Option<Vec<u8>>,
}

impl ByteEdits<'_> {
    /// Replaces the byte `at` by `instead`.
    fn put(&mut self, at: usize, instead: &[u8]) {
        let made = self.made.get_or_insert_with(|| Vec::with_capacity(self.bytes.len() + 64));
        made.extend_from_slice(&self.bytes[self.copied..at]);
        made.extend_from_slice(instead);
        self.copied = at + 1;
    }

    /// Returns the replacement of the first `end` bytes.
    fn until(self, end: usize) -> Option<Vec<u8>> {
        let mut made = self.made?;
        made.extend_from_slice(&self.bytes[self.copied..end]);
        Some(made)
    }
}

/// Returns true for a byte of a method (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns true for the printable characters that the HTTP library rejects in some or all parts of
/// a target.
fn is_rejected(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`')
}

fn encoded(byte: u8) -> &'static [u8] {
    match byte {
        b'"' => b"%22",
        b'<' => b"%3C",
        b'>' => b"%3E",
        _ => b"%60",
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RequestLines<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.calls.is_handing_over() {
            // The task of the connection goes on by itself
            return Poll::Pending;
        }
        // A long target may leave nothing to pass on, which would look like the end of the
        // connection
        while this.held.is_empty() {
            if !this.settle() {
                this.calls.wait_for_report(cx);
                if !this.settle() {
                    return Poll::Pending;
                }
            }
            if this.position == Position::Broken {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if !this.ahead.is_empty() {
                let mut bytes = std::mem::take(&mut this.ahead);
                let (end, changed) = this.pass(&bytes);
                this.ahead = bytes.split_off(end);
                this.held = changed.map_or(bytes, Bytes::from);
                continue;
            }
            let before = buf.filled().len();
            let mut part = (&mut this.stream).take(this.read_size);
            match Pin::new(&mut part).poll_read(cx, buf) {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => {
                    ready!(this.head.poll_over(cx));
                    this.position = Position::Broken;
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            let new = &buf.filled()[before..];
            if new.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let (end, changed) = this.pass(new);
            this.ahead = Bytes::copy_from_slice(&new[end..]);
            match changed {
                Some(changed) => {
                    this.held = changed.into();
                    buf.set_filled(before);
                }
                None if end > 0 => {
                    buf.set_filled(before + end);
                    return Poll::Ready(Ok(()));
                }
                None => buf.set_filled(before),
            }
        }
        let fits = this.held.len().min(buf.remaining());
        buf.put_slice(&this.held[..fits]);
        this.held.advance(fits);
        if this.held.is_empty() {
            // Nothing of it keeps its memory
            this.held = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RequestLines<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.written(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.written(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        this.calls.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
