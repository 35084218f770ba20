//! Requests with long bodies, which do not pass through the HTTP library.
//!
//! The library reads a body into blocks of its own, 16 KiB at a time and one ahead of its reader:
//! with many uploads at a time, that is most of the memory of the server and a fifth of its work.
//! So it only reads the head of such a request. The connection is then taken from it, between two
//! bytes, and the service reads the body from the connection itself. The response is written by the
//! library again: it gets the connection back with a short request in place of the one that it
//! knows nothing more of, and the response is there when it asks for it.
//!
//! A response to such a request begins when the body was read or dropped, which not every service
//! can promise: see [`AccessRules::reads_before_responding`].
//!
//! [`AccessRules::reads_before_responding`]: crate::AccessRules::reads_before_responding

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Method, Version, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncRead as _, AsyncWrite as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::read_blocks::{BLOCK_SIZE, ReadBlocks};
use super::request_line::{RequestInFlight, RequestLines};
use super::serve::Serve;
use super::service::{ConnectionService, ResponseBody};

/// The size from which on a body is long, in bytes.
const LONG_BODY: u64 = 64 * 1024;

/// The interim response with which a client that expects it is asked for the body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The requests in place of those whose responses are written. Their method has no meaning for the
/// response, and whether the connection stays open is the same.
const STAYS_OPEN: &str = "POST / HTTP/1.1\r\n\r\n";
const STAYS_OPEN_1_0: &str = "POST / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
const CLOSES: &str = "POST / HTTP/1.1\r\nconnection: close\r\n\r\n";
const CLOSES_1_0: &str = "POST / HTTP/1.0\r\n\r\n";

/// A request whose body the library does not read.
pub(super) struct LongRequest {
    /// Dropping its body would make the library read on.
    request: hyper::Request<Incoming>,
    size: u64,
    in_flight: RequestInFlight,
}

/// The requests and responses that the library and the task of its connection pass to each other.
#[derive(Default)]
pub(super) struct LongRequests {
    /// On the heap, since few connections need it.
    request: Mutex<Option<Box<LongRequest>>>,
    response: Mutex<Option<Response<ResponseBody>>>,
}

impl LongRequests {
    /// Returns true if a request with a body of this size is to be read without the library.
    pub fn takes(
        &self,
        size: u64,
        service: &ConnectionService<impl Serve>,
        request: &hyper::Request<Incoming>,
    ) -> bool {
        let has_plain_response = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
        size >= LONG_BODY && has_plain_response && service.service.reads_before_responding(request.uri().path())
    }

    /// Takes a request from the library.
    pub fn begin(&self, request: hyper::Request<Incoming>, size: u64, in_flight: RequestInFlight) {
        *lock(&self.request) = Some(Box::new(LongRequest { request, size, in_flight }));
    }

    /// Returns the request that was taken last.
    pub fn take(&self) -> Option<Box<LongRequest>> {
        lock(&self.request).take()
    }

    /// Keeps a response for the next request that the library reads, which is the one in place of
    /// the request that was taken.
    fn respond(&self, response: Response<ResponseBody>) {
        *lock(&self.response) = Some(response);
    }

    /// Returns that response.
    pub fn take_response(&self) -> Option<Response<ResponseBody>> {
        lock(&self.response).take()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LongRequest {
    /// Lets the service respond. Returns the connection with the request in place of this one, and
    /// keeps the response for it; `None` if the connection is lost.
    pub async fn respond(
        self: Box<Self>,
        stream: RequestLines<TcpStream>,
        service: ConnectionService<impl Serve>,
        long_requests: Arc<LongRequests>,
    ) -> Option<Box<RequestLines<TcpStream>>> {
        let Self { request, size, in_flight } = *self;
        let version = request.version();
        let (stays_open, expects) = (stays_open(version, request.headers()), expects_continue(request.headers()));
        let (back, returned) = oneshot::channel();
        let blocks = service.blocks.clone();
        let interim = if expects && version == Version::HTTP_11 { CONTINUE } else { b"" };
        let body = LongBody { stream: Some(Box::new(stream)), back: Some(back), blocks, position: 0, size, interim };
        let guard = service.guard.clone();
        let response = service.service.respond(request.map(|_| Body::new(body)), service.peer).await;
        // The body was read or dropped, so it is there
        let (mut stream, is_whole) = returned.await.ok()?;
        let stays_open = stays_open && is_whole && !guard.0.0.connection().is_closing();
        let head = match (version == Version::HTTP_10, stays_open) {
            (false, true) => STAYS_OPEN,
            (false, false) => CLOSES,
            (true, true) => STAYS_OPEN_1_0,
            (true, false) => CLOSES_1_0,
        };
        stream.limit_reads(None);
        stream.unread(Bytes::from_static(head.as_bytes()));
        long_requests.respond(response.map(|body| ResponseBody { body, _in_flight: in_flight }));
        Some(stream)
    }
}

/// Returns true if a connection stays open behind a request (RFC 9112, 9.3).
fn stays_open(version: Version, headers: &HeaderMap) -> bool {
    let has = |option: &str| {
        let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(option))
    };
    if version == Version::HTTP_10 { has("keep-alive") && !has("close") } else { !has("close") }
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A body that is read from its connection. Dropping it gives the connection back, and whether the
/// body was read to its end.
struct LongBody {
    stream: Option<Box<RequestLines<TcpStream>>>,
    back: Option<oneshot::Sender<(Box<RequestLines<TcpStream>>, bool)>>,
    blocks: ReadBlocks,
    /// The bytes that were read.
    position: u64,
    size: u64,
    /// The rest of the interim response.
    interim: &'static [u8],
}

impl LongBody {
    /// Reads what has arrived, as far as there is memory.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(ErrorKind::BrokenPipe.into())) };
        while !self.interim.is_empty() {
            match ready!(Pin::new(&mut **stream).poll_write(context, self.interim))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.interim = &self.interim[written..],
            }
        }
        stream.limit_reads(Some(BLOCK_SIZE));
        let mut outcome = Poll::Pending;
        let bytes = self.blocks.read(self.position, self.size - self.position, |buffer| {
            // Small packets are joined
            while buffer.remaining() > 0 {
                let before = buffer.filled().len();
                outcome = match Pin::new(&mut **stream).poll_read(context, buffer) {
                    Poll::Ready(Ok(())) if buffer.filled().len() == before => {
                        Poll::Ready(Err(ErrorKind::UnexpectedEof.into()))
                    }
                    outcome => outcome,
                };
                if !matches!(outcome, Poll::Ready(Ok(()))) {
                    break;
                }
            }
        });
        match outcome {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if bytes.is_empty() => Poll::Pending,
            Poll::Pending | Poll::Ready(Ok(())) => {
                self.position += bytes.len() as u64;
                Poll::Ready(Ok(bytes))
            }
        }
    }
}

impl http_body::Body for LongBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.is_end_stream() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(ready!(this.poll_read(context)).map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.position == self.size
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size - self.position)
    }
}

impl Drop for LongBody {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.back.take()) {
            // The receiver is gone when the connection is
            let _ = back.send((stream, self.is_end_stream()));
        }
    }
}
