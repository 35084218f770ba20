//! Requests whose target holds characters that belong percent-encoded, `?select=data->>name`, or is too long.
//!
//! Command line tools and some HTTP libraries send `"`, `<`, `>` and the backtick as they were typed, and servers take them; the HTTP
//! library refuses the request before anybody else sees it. So a connection's bytes pass through here on their way to it, and these four
//! are encoded where they stand in a request's target. Of a target that is longer than the gateway allows only so much is passed on that the
//! gateway sees it: the library would answer with a status and nothing else.
//!
//! A line of a head that ends with a bare line feed makes the library refuse the request with 400 (RFC 9112, 2.2 allows both): a proxy before
//! us may see one line where the library sees two.
//!
//! What must never happen is that another byte changes: then the end of a request would no longer be where the client put it. A target is
//! looked for only where the HTTP library, too, sees a request begin: at the connection's start, and behind a request whose length the
//! library reported ([`Calls::begins`]). What was read behind a head is passed on only after that report, so the place is always known;
//! what is no body of the announced kind ends the connection. Behind an upgrade everything passes.
//!
//! A head has to arrive within a time limit, which begins with its first byte, or with the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use chunks::{Chunks, Walk};

pub(crate) use calls::{BodyLength, Calls, Standing, UnderWay};

mod calls;
mod chunks;

/// The longest target that the gateway takes, in bytes. The HTTP library takes a little more.
pub(crate) const LONGEST_TARGET: usize = 65_000;

/// Stands where a bare line feed stood. The library refuses it everywhere in a head.
const REFUSED: u8 = 0;

/// A connection, with its requests' targets made acceptable.
#[derive(Debug)]
pub(crate) struct RequestLines<S> {
    stream: S,
    calls: Arc<Calls>,
    place: Place,
    /// Bytes that are to be passed on.
    held: Bytes,
    /// Bytes that were read behind a head and not looked at yet.
    ahead: Bytes,
    head: HeadTime,
}

/// The time that a head has taken to arrive so far.
#[derive(Debug)]
struct HeadTime {
    limit: Duration,
    /// Since when a head is awaited or arriving. `None`: none is.
    since: Option<Instant>,
    /// Set where the reader waits for the rest.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> RequestLines<S> {
    /// At the start of a connection, on which something has been awaited `since` then. A head may take `limit`.
    pub fn new(stream: S, calls: Arc<Calls>, since: Instant, limit: Duration) -> Self {
        let head = HeadTime { limit, since: Some(since), end: None };
        Self { stream, calls, place: Place::Start, held: Bytes::new(), ahead: Bytes::new(), head }
    }

    /// Takes back what was read and not used. It was looked at already.
    pub fn unread(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.held = [bytes, std::mem::take(&mut self.held)].concat().into();
        }
    }

    /// Whether everything that was read has been used.
    pub fn is_used_up(&self) -> bool {
        self.held.is_empty() && self.ahead.is_empty()
    }

    /// What the bytes come from.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns true if the client was cut off: its head took too long, or its body was none.
    pub fn is_cut_off(&self) -> bool {
        self.place == Place::Broken
    }

    /// Gives back what the bytes come from.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Keeps in mind whether the client takes what is written.
    fn written<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.calls.set_blocked(outcome.is_pending());
        outcome
    }

    /// Settles what comes next where the library or a service has to say it. `false`: neither has.
    fn settle(&mut self) -> bool {
        if self.place == Place::Behind {
            self.place = match self.calls.take_body() {
                Some(BodyLength::Known(0)) => Place::Start,
                Some(BodyLength::Known(left)) => Place::Body { left },
                Some(BodyLength::Chunked) => Place::Chunks(Chunks::start()),
                None => return false,
            };
            let is_between = self.place == Place::Start && self.ahead.is_empty();
            self.calls.set_reading(if is_between { calls::Reading::Between } else { calls::Reading::Within });
        }
        if self.place == Place::Start && self.calls.is_upgraded() {
            self.place = Place::Upgraded;
        }
        self.ahead.is_empty() || !self.is_held_by_upgrade()
    }

    /// Returns true if the next bytes may be another protocol's, or the next request's.
    fn is_held_by_upgrade(&self) -> bool {
        self.place == Place::Start && self.calls.is_upgrade_undecided()
    }

    /// Looks at bytes that came: how many of them may be passed on now, and what takes the place of these, if anything changes.
    fn pass(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let (end, changed) = if self.is_held_by_upgrade() { (0, None) } else { self.place.follow(bytes) };
        let reading = match self.place {
            Place::Start if end == bytes.len() => calls::Reading::Between,
            Place::Behind if end == bytes.len() => calls::Reading::Behind,
            _ => calls::Reading::Within,
        };
        self.calls.set_reading(reading);
        if self.place.is_in_head() {
            self.head.since.get_or_insert_with(Instant::now);
        } else if self.place == Place::Behind {
            (self.head.since, self.head.end) = (None, None);
        }
        (end, changed)
    }
}

impl HeadTime {
    /// Ready when a head has taken too long.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(since) = self.since else { return Poll::Pending };
        let limit = self.limit;
        let end = self.end.get_or_insert_with(|| {
            // A limit beyond the end of time is none
            let end = since.checked_add(limit).unwrap_or_else(|| since + Duration::from_secs(86_400));
            Box::pin(tokio::time::sleep_until(end))
        });
        end.as_mut().poll(context)
    }
}

/// Where in the conversation the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a request. Empty lines are skipped there.
    Start,
    /// Behind the carriage return of such a line.
    StartReturn,
    Method,
    /// The target's first byte.
    Target,
    /// Inside a target that is a path, behind so many bytes of it as were passed on.
    Path {
        length: usize,
    },
    /// In the rest of the request's line.
    Line {
        /// The last byte was a carriage return.
        is_return: bool,
    },
    /// At the first byte of a header's line.
    Header,
    /// Within such a line.
    HeaderLine {
        /// The last byte was a carriage return.
        is_return: bool,
    },
    /// Behind the carriage return of the empty line that ends the head.
    HeadEnd,
    /// Behind the head. What comes next is for the HTTP library to say.
    Behind,
    Body {
        /// At least one.
        left: u64,
    },
    Chunks(Chunks),
    /// Another protocol's bytes pass.
    Upgraded,
    /// No request that the library will take: the rest of the head passes, and there is no next one.
    Refused,
    /// The bytes are no body of the kind that was announced, or a head took too long: nothing passes.
    Broken,
}

impl Place {
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
            | Self::Refused => true,
            Self::Start | Self::Behind | Self::Body { .. } | Self::Chunks(_) | Self::Upgraded | Self::Broken => false,
        }
    }

    /// Walks over the bytes, up to the end of a head or body; how many that were, and what takes their place, if anything changes.
    fn follow(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let mut changed = Changes { bytes, copied: 0, made: None };
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self {
                Self::Start => match byte {
                    b'\r' => {
                        *self = Self::StartReturn;
                        at += 1;
                    }
                    b'\n' => self.refuse(&mut changed, &mut at),
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
                Self::StartReturn | Self::Method => *self = Self::Refused,
                // `*`, hosts and whole addresses stay as they are
                Self::Target => {
                    *self = if byte == b'/' { Self::Path { length: 0 } } else { Self::Line { is_return: false } };
                }
                Self::Path { .. } if byte <= b' ' => *self = Self::Line { is_return: false },
                Self::Path { length } if is_refused(byte) || *length > LONGEST_TARGET => {
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
                        self.refuse(&mut changed, &mut at);
                    }
                }
                Self::Header => match byte {
                    b'\r' => {
                        *self = Self::HeadEnd;
                        at += 1;
                    }
                    b'\n' => self.refuse(&mut changed, &mut at),
                    _ => *self = Self::HeaderLine { is_return: false },
                },
                Self::HeadEnd if byte == b'\n' => {
                    *self = Self::Behind;
                    at += 1;
                }
                // The library refuses a carriage return inside a line
                Self::HeadEnd => *self = Self::Refused,
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
                Self::Upgraded | Self::Refused => at = bytes.len(),
                Self::Behind | Self::Broken => break,
            }
        }
        (at, changed.until(at))
    }

    /// Makes the library refuse the request, whose head has a bare line feed here.
    fn refuse(&mut self, changed: &mut Changes<'_>, at: &mut usize) {
        changed.put(*at, &[REFUSED]);
        *at += 1;
        *self = Self::Refused;
    }
}

/// Bytes of which some are replaced.
struct Changes<'b> {
    bytes: &'b [u8],
    copied: usize,
    made: Option<Vec<u8>>,
}

impl Changes<'_> {
    /// Puts `instead` in the place of the byte `at`.
    fn put(&mut self, at: usize, instead: &[u8]) {
        let made = self.made.get_or_insert_with(|| Vec::with_capacity(self.bytes.len() + 64));
        made.extend_from_slice(&self.bytes[self.copied..at]);
        made.extend_from_slice(instead);
        self.copied = at + 1;
    }

    /// All that takes the place of the first `end` bytes.
    fn until(self, end: usize) -> Option<Vec<u8>> {
        let mut made = self.made?;
        made.extend_from_slice(&self.bytes[self.copied..end]);
        Some(made)
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
            if !this.settle() {
                this.calls.wait_for_report(cx);
                if !this.settle() {
                    return Poll::Pending;
                }
            }
            if this.place == Place::Broken {
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
            match Pin::new(&mut this.stream).poll_read(cx, buf) {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => {
                    ready!(this.head.poll_over(cx));
                    this.place = Place::Broken;
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
