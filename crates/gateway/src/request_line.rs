//! Requests whose target holds characters that belong percent-encoded, `?select=data->>name`, or is too long.
//!
//! Command line tools and some HTTP libraries send `"`, `<`, `>` and the backtick as they were typed, and servers take them; the HTTP
//! library refuses the request before anybody else sees it. So a connection's bytes pass through here on their way to it, and these four
//! are encoded where they stand in a request's target. Of a target that is longer than the gateway allows only so much is passed on that the
//! gateway sees it: the library would answer with a status and nothing else.
//!
//! What must never happen is that another byte changes: then the end of a request would no longer be where the client put it. A target is
//! looked for only where the HTTP library, too, sees a request begin: at the connection's start, and behind a request whose length the
//! library told us itself ([`Calls::begins`]). Where that is not certain (bodies in chunks, upgrades, requests sent ahead of an answer)
//! the rest of the connection passes untouched.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest target that the gateway takes, in bytes. The HTTP library takes a little more.
pub(crate) const LONGEST_TARGET: usize = 65_000;

/// A connection, with its requests' targets made acceptable.
#[derive(Debug)]
pub(crate) struct RequestLines<S> {
    stream: S,
    calls: Arc<Calls>,
    place: Place,
    /// What grew beyond the room that the reader had.
    held: Bytes,
}

/// What the HTTP library says about the requests it found, and whether anything is still to be done for them.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Where the last request ends: written where it is handed over, read where more bytes are asked for.
    length: AtomicU64,
    /// Requests that were handed over and whose answers the library has not taken whole.
    under_way: AtomicUsize,
    /// Requests that were handed over.
    count: AtomicU64,
    /// How many bytes were read behind the last head; [`PARTIAL`] in the middle of something.
    behind: AtomicU64,
    /// The client did not take all that was written last.
    is_blocked: AtomicBool,
}

/// Something began to arrive that has not arrived whole, or it is not known whether it has.
const PARTIAL: u64 = u64::MAX;

/// A request whose answer is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Calls>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// No request was handed over since somebody asked.
const NONE: u64 = u64::MAX;

/// Where the last request ends can not be known.
const UNKNOWN: u64 = u64::MAX - 1;

impl Calls {
    /// A request was handed over, whose body has so many bytes on the connection. `None`: that many can not be counted.
    pub fn begins(self: &Arc<Self>, body: Option<u64>) -> UnderWay {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let length = body.filter(|length| *length < UNKNOWN).unwrap_or(UNKNOWN);
        // A second one before anybody read: it lay behind the first, and was not looked at
        if self.length.compare_exchange(NONE, length, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.length.store(UNKNOWN, Ordering::Release);
        }
        UnderWay(Arc::clone(self))
    }

    /// How many requests there were, when every answer has gone out to its last byte and nothing of another request has come in. Only
    /// true of the moment in which the library has done all that it can, before it is asked to go on.
    pub fn at_rest(&self) -> Option<u64> {
        let behind = self.behind.load(Ordering::Acquire);
        let length = self.length.load(Ordering::Acquire);
        let is_between = behind != PARTIAL && (behind == length || (behind == 0 && length == NONE));
        let is_done = self.under_way.load(Ordering::Acquire) == 0 && !self.is_blocked.load(Ordering::Acquire);
        (is_between && is_done).then(|| self.count.load(Ordering::Relaxed))
    }

    fn take(&self) -> Option<u64> {
        Some(self.length.swap(NONE, Ordering::AcqRel)).filter(|length| *length < UNKNOWN)
    }
}

impl<S> RequestLines<S> {
    /// At the start of a connection; and where to tell about its requests.
    pub fn new(stream: S) -> (Self, Arc<Calls>) {
        let calls = Arc::new(Calls {
            length: AtomicU64::new(NONE),
            under_way: AtomicUsize::new(0),
            count: AtomicU64::new(0),
            behind: AtomicU64::new(0),
            is_blocked: AtomicBool::new(false),
        });
        (Self { stream, calls: Arc::clone(&calls), place: Place::Start, held: Bytes::new() }, calls)
    }

    /// Takes back what was read and not used. It was looked at already.
    pub fn unread(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.held = [bytes, std::mem::take(&mut self.held)].concat().into();
        }
    }

    /// Whether everything that was read has been used.
    pub fn is_used_up(&self) -> bool {
        self.held.is_empty()
    }

    /// What the bytes come from.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Keeps in mind whether the client takes what is written.
    fn written<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.calls.is_blocked.store(outcome.is_pending(), Ordering::Release);
        outcome
    }

    /// Looks at bytes that came; what takes their place, if anything changes.
    fn pass(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if let Place::Behind { more } = self.place {
            self.place = match self.calls.take() {
                Some(body) if more == body => Place::Start,
                Some(body) if more < body => Place::Body { left: body - more },
                _ => Place::Lost,
            };
        }
        let changed = self.place.follow(bytes);
        let behind = match self.place {
            Place::Start => 0,
            Place::Behind { more } => more,
            _ => PARTIAL,
        };
        self.calls.behind.store(behind, Ordering::Release);
        changed
    }
}

/// Where in the conversation the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a request. Empty lines are skipped there.
    Start,
    Method,
    /// The target's first byte.
    Target,
    /// Inside a target that is a path, behind so many bytes of it as were passed on.
    Path {
        length: usize,
    },
    /// In the rest of the request's line.
    Line,
    /// In the headers.
    Headers(Header),
    /// Behind the head, with so many bytes more; what these are is for the HTTP library to say.
    Behind {
        more: u64,
    },
    Body {
        /// At least one.
        left: u64,
    },
    /// Everything passes.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    /// The line's first byte.
    Begin,
    /// Behind a carriage return that is its line's first byte.
    Return,
    Within,
}

impl Place {
    /// Walks over the bytes; what takes their place, if anything changes.
    fn follow(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut changed: Option<Vec<u8>> = None;
        let mut copied = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self {
                Self::Start if matches!(byte, b'\r' | b'\n') => at += 1,
                Self::Start => *self = Self::Method,
                Self::Method if is_token(byte) => at += 1,
                Self::Method if byte == b' ' => {
                    *self = Self::Target;
                    at += 1;
                }
                Self::Method => *self = Self::Lost,
                // `*`, hosts and whole addresses stay as they are
                Self::Target => *self = if byte == b'/' { Self::Path { length: 0 } } else { Self::Line },
                Self::Path { .. } if byte <= b' ' => *self = Self::Line,
                Self::Path { length } if is_refused(byte) || *length > LONGEST_TARGET => {
                    let changed = changed.get_or_insert_with(|| Vec::with_capacity(bytes.len() + 64));
                    changed.extend_from_slice(&bytes[copied..at]);
                    if *length <= LONGEST_TARGET {
                        changed.extend_from_slice(encoded(byte));
                        *length += encoded(byte).len();
                    }
                    at += 1;
                    copied = at;
                }
                Self::Path { length } => {
                    *length += 1;
                    at += 1;
                }
                Self::Line | Self::Headers(Header::Within) => match memchr::memchr(b'\n', &bytes[at..]) {
                    Some(end) => {
                        *self = Self::Headers(Header::Begin);
                        at += end + 1;
                    }
                    None => at = bytes.len(),
                },
                Self::Headers(header) => {
                    *self = match (*header, byte) {
                        (_, b'\n') => Self::Behind { more: 0 },
                        (Header::Begin, b'\r') => Self::Headers(Header::Return),
                        // The library refuses a carriage return inside a line
                        (Header::Return, _) => Self::Lost,
                        _ => Self::Headers(Header::Within),
                    };
                    at += 1;
                }
                Self::Behind { more } => {
                    *more += (bytes.len() - at) as u64;
                    break;
                }
                Self::Body { left } => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    *left -= here as u64;
                    if *left == 0 {
                        *self = Self::Start;
                    }
                    at += here;
                }
                Self::Lost => break,
            }
        }
        changed.map(|mut changed| {
            changed.extend_from_slice(&bytes[copied..]);
            changed
        })
    }
}

/// What a method consists of (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What the HTTP library takes nowhere or not everywhere in a target, among the characters that can be typed.
fn is_refused(byte: u8) -> bool {
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
        // Of a long target there may be nothing to pass on, which would look like the end of the connection
        while this.held.is_empty() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            let new = &buf.filled()[before..];
            if new.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let Some(changed) = this.pass(new) else { return Poll::Ready(Ok(())) };
            this.held = changed.into();
            buf.set_filled(before);
        }
        let fits = this.held.len().min(buf.remaining());
        buf.put_slice(&this.held[..fits]);
        this.held.advance(fits);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RequestLines<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.written(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.written(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
