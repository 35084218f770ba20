//! Connections: accepting them, HTTP/1.1 or HTTP/2 on each, and ending them gracefully.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::Service;

use crate::gateway::{Gateway, infallible};
use crate::lanes::Lanes;
use crate::places::{Leaving, Places};
use crate::request_line::{RequestLines, UnderWay};

/// The first bytes of an HTTP/2 connection without TLS.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Room for a request's head in memory: above what the gateway allows, so that it can answer in its own words.
const HEAD_BUFFER: usize = 128 * 1024;

/// Limits of the listening side.
#[derive(Debug, Clone)]
pub struct ServeLimits {
    /// How long requests in flight may take to end after the shutdown began.
    pub drain: Duration,
    /// Connections open at a time. Where one more comes, those that came first are ended as soon as nothing is under way on them; it
    /// waits for that.
    pub max_connections: usize,
    /// Time for a request's head to arrive completely; also how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long nothing may happen on a connection before its memory is let go.
    pub rest: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(10),
            max_connections: 10_000,
            header_timeout: Duration::from_secs(60),
            rest: Duration::from_secs(2),
        }
    }
}

/// What can be served.
pub trait Serve: Clone + Send + Sync + 'static {
    /// Answers a request that came from `peer`.
    fn answer(&self, request: Request, peer: SocketAddr) -> impl Future<Output = Response> + Send;
}

impl Serve for Gateway {
    fn answer(&self, request: Request, peer: SocketAddr) -> impl Future<Output = Response> + Send {
        Gateway::answer(self, request, peer)
    }
}

impl Serve for Router {
    async fn answer(&self, mut request: Request, peer: SocketAddr) -> Response {
        request.extensions_mut().insert(ConnectInfo(peer));
        infallible(Service::call(&mut self.clone(), request).await)
    }
}

/// Serves `service` on `listener`, each connection on one of the `lanes`, until `shutdown` resolves; then accepts nothing more, lets
/// the requests in flight end, and cuts off what is left after [`ServeLimits::drain`].
///
/// An error only when the listener itself is broken.
pub async fn serve(
    listener: TcpListener,
    service: impl Serve,
    shutdown: impl Future<Output = ()> + Send,
    limits: ServeLimits,
    lanes: Lanes,
) -> io::Result<()> {
    let mut shutdown = pin!(shutdown);
    let mut places = Places::new(limits.max_connections);
    let mut connections = JoinSet::new();

    let outcome = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break Ok(()),
        };
        // Ended ones are forgotten, or the set would grow with every connection there ever was
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                let place = tokio::select! {
                    place = places.take() => place,
                    () = &mut shutdown => break Ok(()),
                };
                let service = service.clone();
                let leaving = places.leaving();
                let limits = limits.clone();
                lanes.serve(&mut connections, stream, peer, move |stream, peer| async move {
                    connection(stream, peer, service, &leaving, limits).await;
                    drop(place);
                });
            }
            Err(error) if is_passing(&error) => {}
            Err(error) if is_exhaustion(&error) => {
                tracing::error!(%error, "no connection can be accepted: raise the limit of open files (ulimit -n)");
                // The listener stays readable, so without a pause this would spin until a connection ends
                places.make_room().await;
            }
            Err(error) => break Err(error),
        }
    };

    drop(listener);
    places.close();
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain, ended).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "requests were still running after {:?} and are cut off",
            limits.drain
        );
        connections.shutdown().await;
    }
    outcome
}

/// The client went away before we took it.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Out of file descriptors (process, system) or memory.
fn is_exhaustion(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}

async fn connection(stream: TcpStream, peer: SocketAddr, service: impl Serve, leaving: &Leaving, limits: ServeLimits) {
    let mut told = pin!(leaving.told());
    told.as_mut().enable();
    if leaving.is_over() {
        return;
    }
    // Answers are written whole, so waiting for more to send only delays them
    let _ = stream.set_nodelay(true);
    let is_http2 = tokio::select! {
        found = tokio::time::timeout(limits.header_timeout, speaks_http2(&stream)) => match found {
            Ok(Ok(is_http2)) => is_http2,
            Ok(Err(_)) | Err(_) => return,
        },
        // Nothing was asked yet
        () = &mut told => return,
    };
    let service = ConnectionService { service, peer };
    let result = if is_http2 {
        // On the heap, or every connection would have room for one of these
        Box::pin(async {
            let answer = hyper::service::service_fn(move |request| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(service.answer(request).await) }
            });
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .keep_alive_interval(limits.header_timeout)
                .max_concurrent_streams(256)
                .max_header_list_size(u32::try_from(HEAD_BUFFER).unwrap_or(u32::MAX));
            let mut http = pin!(builder.serve_connection(TokioIo::new(stream), answer));
            tokio::select! {
                result = &mut http => result,
                () = &mut told => {
                    http.as_mut().graceful_shutdown();
                    http.await
                }
            }
        })
        .await
    } else {
        http1_connection(stream, service, told, limits).await
    };
    if let Err(error) = result {
        // The client's doing: cut connections, nonsense, slow heads
        tracing::debug!(%error, "connection ended");
    }
}

/// A service, told who is at the other end of the connection.
#[derive(Clone)]
struct ConnectionService<S> {
    service: S,
    peer: SocketAddr,
}

impl<S: Serve> ConnectionService<S> {
    async fn answer(self, request: hyper::Request<Incoming>) -> Response {
        // Most requests have no body, and need no box for it
        let request = request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
        self.service.answer(request, self.peer).await
    }
}

/// Serves a connection by HTTP/1.1.
///
/// Whenever it has rested for a while, what the HTTP library keeps for it (two buffers of 8 KiB, room for an answer under way) is let
/// go, and only the socket stays. The library begins anew when something comes; between two requests that makes no difference.
async fn http1_connection(
    stream: TcpStream,
    service: ConnectionService<impl Serve>,
    mut told: Pin<&mut impl Future<Output = ()>>,
    limits: ServeLimits,
) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(HEAD_BUFFER);
    let (mut stream, calls) = RequestLines::new(stream);
    loop {
        let answer = {
            let (service, calls) = (service.clone(), Arc::clone(&calls));
            hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                let under_way = calls.begins(length_on_wire(&request));
                let service = service.clone();
                async move {
                    let answer = service.answer(request).await;
                    Ok::<_, Infallible>(answer.map(|body| AnswerBody { body, _under_way: under_way }))
                }
            })
        };
        let mut http = Box::new(builder.serve_connection(TokioIo::new(stream), answer).with_upgrades());
        let mut seen = None;
        loop {
            tokio::select! {
                biased;
                result = http.as_mut() => return result,
                () = told.as_mut() => {
                    Pin::new(http.as_mut()).graceful_shutdown();
                    return http.await;
                }
                () = tokio::time::sleep(limits.rest) => {}
            }
            let now = calls.at_rest();
            if now.is_some() && now == seen {
                break;
            }
            seen = now;
        }
        // An upgraded connection belongs to somebody else
        let Some(parts) = http.into_parts() else { return Ok(()) };
        stream = parts.io.into_inner();
        stream.unread(parts.read_buf);
        if stream.is_used_up() {
            tracing::trace!("connection rests");
            let idle = limits.header_timeout.saturating_sub(limits.rest * 2);
            tokio::select! {
                // An end of the connection is for the library to find
                readable = tokio::time::timeout(idle, stream.stream().readable()) => match readable {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return Ok(()),
                },
                () = told.as_mut() => return Ok(()),
            }
        }
    }
}

/// An answer's body, which says when it is done with.
struct AnswerBody {
    body: Body,
    _under_way: UnderWay,
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// How many bytes of the connection are the request's body, where that is certain: not of bodies in chunks, nor before another protocol.
fn length_on_wire(request: &hyper::Request<Incoming>) -> Option<u64> {
    let may_upgrade = request.extensions().get::<OnUpgrade>().is_some();
    request.body().size_hint().exact().filter(|_| !may_upgrade)
}

/// Whether the client starts with HTTP/2's preface. Reads nothing away and needs no buffer while the client is silent.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; HTTP2_PREFACE.len()];
    loop {
        let seen = stream.peek(&mut start).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if start[..seen] != HTTP2_PREFACE[..seen] {
            return Ok(false);
        }
        if seen == start.len() {
            return Ok(true);
        }
        // A part of the preface: `peek` would return it again at once
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use portico_tokens::{ApiKeys, Clock, KeyRing, Secret};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_waits_takes_little_memory() {
        let ring = Arc::new(KeyRing::hs256(&Secret::new("a secret of tests that is long enough")));
        let gateway = Gateway::builder(ring, Arc::new(ApiKeys::development()), Clock::system()).build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let leaving = Leaving::default();
        let size = size_of_val(&connection(stream, peer, gateway, &leaving, ServeLimits::default()));
        drop(client);
        assert!(size <= 2048, "{size} bytes: ten thousand clients may wait");
    }
}
