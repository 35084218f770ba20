//! Connections: accepts them, serves HTTP/1.1 or HTTP/2 on each, and closes them gracefully.

pub(crate) mod connection_limit;
pub(crate) mod request_line;
mod stall_time;
mod stream_stall;
pub(crate) mod workers;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::Service;

use self::connection_limit::{AdmittedConnection, ConnectionLimit, ConnectionLimits, PATIENCE};
use self::request_line::{BodyLength, Calls, RequestLines, Standing, UnderWay};
use self::stream_stall::{SlicedBody, StreamExecutor};
use self::workers::{ConnectionCount, Workers};
use crate::gateway::{Gateway, infallible};

/// The first bytes of an HTTP/2 connection without TLS.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The buffer of a request's head, in bytes: above the limit of the gateway, so that the gateway
/// itself rejects a longer head.
const HEAD_BUFFER: usize = 128 * 1024;

/// The time for which a client may go on sending after a response that came before the end of the
/// request, so that it can read the response: a connection that is closed while data arrives loses
/// what was sent last (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(10);
/// The same, without a byte arriving.
const LINGER_SILENCE: Duration = Duration::from_secs(2);

/// The limits of a listener and its connections.
#[derive(Debug, Clone)]
pub struct ServeLimits {
    /// The time that requests in flight have to complete after the shutdown began.
    pub drain: Duration,
    /// The number of connections that may be open. When one more arrives, one is closed for it: the
    /// oldest without a complete head, else the oldest idle one. While requests are in progress on
    /// all, it waits.
    pub max_connections: usize,
    /// The number of connections of one address; of an IPv6 address the /64 network counts. When
    /// one more arrives, one of the same address is closed for it; while requests are in progress
    /// on all of them, it is rejected.
    ///
    /// The address is the other end of the connection. Behind a proxy that is the proxy, so proxies
    /// belong into `unlimited_peers`.
    pub max_connections_per_address: usize,
    /// Addresses without a limit of their own: trusted proxies, which forward many clients, and
    /// this machine.
    pub unlimited_peers: Vec<IpNet>,
    /// The time for a request's head to arrive completely, from its first byte on; for the first
    /// request, from the start of the connection on.
    pub head_timeout: Duration,
    /// The time for which an idle connection is kept.
    pub idle_timeout: Duration,
    /// The time for which a client may read nothing of a response that is being sent. By HTTP/1.1
    /// its connection is closed then, by HTTP/2 its stream is reset.
    pub stall_timeout: Duration,
    /// The time for which a connection is new: its first head may be on its way, so idle ones are
    /// closed before it.
    pub new_for: Duration,
    /// The idle time after which the memory of a connection is released.
    pub rest: Duration,
}

impl ServeLimits {
    /// Returns the addresses of this machine, where a proxy may run that the configuration does not
    /// name.
    pub fn this_machine() -> Vec<IpNet> {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let mut networks = loopback.map(IpNet::from).to_vec();
        networks.extend(IpNet::new(Ipv4Addr::new(127, 0, 0, 0).into(), 8));
        networks
    }
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(10),
            max_connections: 10_000,
            max_connections_per_address: 1_000,
            unlimited_peers: Self::this_machine(),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            new_for: Duration::from_secs(1),
            rest: Duration::from_secs(2),
        }
    }
}

/// The time limits of one connection.
#[derive(Debug, Clone, Copy)]
struct TimeLimits {
    head: Duration,
    idle: Duration,
    rest: Duration,
    stall: Duration,
}

/// A service that answers the requests of a listener.
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

/// Serves `service` on `listener`, each connection on one of the `workers`, until `shutdown`
/// resolves; then accepts no more connections, lets the requests in flight complete, and cuts off
/// what is left after [`ServeLimits::drain`].
///
/// # Errors
/// When the listener itself fails.
pub async fn serve(
    listener: TcpListener,
    service: impl Serve,
    shutdown: impl Future<Output = ()> + Send,
    limits: ServeLimits,
    workers: Workers,
) -> io::Result<()> {
    let mut shutdown = pin!(shutdown);
    let mut limit = ConnectionLimit::new(ConnectionLimits {
        most: limits.max_connections,
        most_per_network: limits.max_connections_per_address,
        unlimited: limits.unlimited_peers.clone(),
        new_for: limits.new_for,
    });
    let times = TimeLimits {
        head: limits.head_timeout,
        idle: limits.idle_timeout,
        rest: limits.rest,
        stall: limits.stall_timeout,
    };
    let mut connections = JoinSet::new();

    let outcome = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break Ok(()),
        };
        // Ended tasks are removed, or the set would grow with every connection
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                let admitted = tokio::select! {
                    admitted = limit.admit_from(peer.ip()) => admitted,
                    () = &mut shutdown => break Ok(()),
                };
                // Dropping the stream closes it
                let Some(admitted) = admitted else { continue };
                let service = service.clone();
                workers.serve(&mut connections, stream, peer, move |stream, peer, counted| async move {
                    let guard = ConnectionGuard(Arc::new((admitted, counted)));
                    connection(stream, peer, service, &guard, times).await;
                });
            }
            Err(error) if is_transient(&error) => {}
            Err(error) if is_exhaustion(&error) => {
                tracing::error!(error = %error, "no connection can be accepted: raise the limit of open files (ulimit -n)");
                // The listener stays readable, so without a pause this would spin until a
                // connection ends
                limit.make_room().await;
            }
            Err(error) => break Err(error),
        }
    };

    drop(listener);
    limit.close();
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

/// Returns true if the client closed the connection before it was accepted.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Returns true if the process or the system is out of file descriptors or memory.
fn is_exhaustion(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    service: impl Serve,
    guard: &ConnectionGuard,
    limits: TimeLimits,
) {
    let connection = guard.0.0.connection();
    let mut end = pin!(connection.close_requested());
    if connection.is_closing() {
        return;
    }
    let since = Instant::now();
    // Responses are written whole, so waiting for more data only delays them
    let _ = stream.set_nodelay(true);
    let is_http2 = tokio::select! {
        found = tokio::time::timeout(limits.head, speaks_http2(&stream)) => match found {
            Ok(Ok(is_http2)) => is_http2,
            Ok(Err(_)) | Err(_) => return,
        },
        // No request has arrived yet
        () = &mut end => return,
    };
    let service = ConnectionService { service, peer, guard: guard.clone() };
    let calls = &connection.calls;
    let result = if is_http2 {
        // On the heap, or every connection would reserve memory for it
        Box::pin(http2_connection(stream, service, end, calls, since + limits.head, limits)).await
    } else {
        let stream = RequestLines::new(stream, Arc::clone(calls), since, (limits.head, limits.stall));
        http1_connection(stream, service, end, calls, limits).await
    };
    if let Err(error) = result {
        // Caused by the client: broken connections, invalid requests, slow heads
        tracing::debug!(error = %error, "connection ended");
    }
}

/// A service with the address of the other end of the connection.
#[derive(Clone)]
struct ConnectionService<S> {
    service: S,
    peer: SocketAddr,
    guard: ConnectionGuard,
}

/// The places of a connection among those of the listener and of its worker, until the last clone
/// is dropped. In the extensions of a request that may upgrade its connection: the service that
/// upgrades it keeps the guard for as long as the connection is open.
#[derive(Clone)]
pub struct ConnectionGuard(Arc<(AdmittedConnection, ConnectionCount)>);

impl<S: Serve> ConnectionService<S> {
    async fn answer(self, request: hyper::Request<Incoming>) -> Response {
        // Most requests have no body, and need no allocation for it
        let request = request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
        self.service.answer(request, self.peer).await
    }
}

/// Serves a connection by HTTP/2. The first request has to arrive before `first_head`.
async fn http2_connection(
    stream: TcpStream,
    service: ConnectionService<impl Serve>,
    mut end: Pin<&mut impl Future<Output = ()>>,
    calls: &Arc<Calls>,
    first_head: Instant,
    limits: TimeLimits,
) -> hyper::Result<()> {
    let answer = hyper::service::service_fn(move |request| {
        let (service, under_way) = (service.clone(), calls.begins_multiplexed());
        async move {
            let answer = service.answer(request).await;
            Ok::<_, Infallible>(answer.map(|body| SlicedBody::new(ResponseBody { body, _under_way: under_way })))
        }
    });
    let mut builder = http2::Builder::new(StreamExecutor::new(limits.stall));
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.idle)
        .max_concurrent_streams(256)
        .max_header_list_size(u32::try_from(HEAD_BUFFER).unwrap_or(u32::MAX));
    let mut http = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        result = &mut http => return result,
        () = &mut end => {}
        () = tokio::time::sleep_until(first_head) => {
            if calls.standing() != Standing::Unfinished {
                tokio::select! {
                    result = &mut http => return result,
                    () = &mut end => {}
                }
            }
        }
    }
    if calls.standing() == Standing::Unfinished {
        return Ok(());
    }
    http.as_mut().graceful_shutdown();
    // A client that does not acknowledge the shutdown keeps the connection only for requests in
    // progress
    while calls.standing() == Standing::Busy {
        if let Ok(result) = tokio::time::timeout(PATIENCE, &mut http).await {
            return result;
        }
    }
    tokio::time::timeout(PATIENCE / 2, http).await.unwrap_or(Ok(()))
}

/// Serves a connection by HTTP/1.1.
///
/// When it has been idle for a while, the memory that the HTTP library keeps for it (two buffers of
/// 8 KiB, room for a response) is released, and only the socket remains. The library starts again
/// when data arrives; between two requests that makes no difference.
async fn http1_connection(
    mut stream: RequestLines<TcpStream>,
    service: ConnectionService<impl Serve>,
    mut end: Pin<&mut impl Future<Output = ()>>,
    calls: &Arc<Calls>,
    limits: TimeLimits,
) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(HEAD_BUFFER);
    loop {
        let answer = {
            let (service, calls) = (service.clone(), Arc::clone(calls));
            hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                let may_upgrade = request.extensions().get::<OnUpgrade>().is_some();
                let under_way = calls.begins(body_length(&request), may_upgrade);
                let (service, calls) = (service.clone(), may_upgrade.then(|| Arc::clone(&calls)));
                let mut request = request;
                if may_upgrade {
                    request.extensions_mut().insert(service.guard.clone());
                }
                async move {
                    let answer = service.answer(request).await;
                    if let Some(calls) = calls {
                        calls.decide_upgrade(answer.status() == StatusCode::SWITCHING_PROTOCOLS);
                    }
                    Ok::<_, Infallible>(answer.map(|body| ResponseBody { body, _under_way: under_way }))
                }
            })
        };
        let mut http = Box::new(builder.serve_connection(TokioIo::new(stream), answer).with_upgrades());
        let mut seen = None;
        loop {
            tokio::select! {
                biased;
                result = http.as_mut() => {
                    if calls.is_within_request()
                        && let Some(parts) = http.into_parts()
                    {
                        // On the heap, since few connections need it
                        let lingering = Box::pin(linger(parts.io.into_inner()));
                        futures_util::future::select(lingering, end).await;
                    }
                    return result;
                }
                () = end.as_mut() => {
                    if calls.standing() != Standing::Busy {
                        return Ok(());
                    }
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
        // An upgraded connection belongs to the service that upgraded it
        let Some(parts) = http.into_parts() else { return Ok(()) };
        stream = parts.io.into_inner();
        stream.unread(parts.read_buf);
        if stream.is_used_up() {
            tracing::trace!("connection rests");
            let idle = limits.idle.saturating_sub(limits.rest * 2);
            tokio::select! {
                // The library detects the end of the connection
                readable = tokio::time::timeout(idle, stream.stream().readable()) => match readable {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return Ok(()),
                },
                () = end.as_mut() => return Ok(()),
            }
        }
    }
}

/// Reads and discards the rest of a request that is answered already, within bounds.
async fn linger(stream: RequestLines<TcpStream>) {
    if stream.is_cut_off() {
        return;
    }
    let mut stream = stream.into_stream();
    let mut scratch = vec![0; 16 * 1024];
    let read =
        async { while let Ok(Ok(1..)) = tokio::time::timeout(LINGER_SILENCE, stream.read(&mut scratch)).await {} };
    let _ = tokio::time::timeout(LINGER, read).await;
}

/// The body of a response. Dropping it ends the request.
struct ResponseBody {
    body: Body,
    _under_way: UnderWay,
}

impl http_body::Body for ResponseBody {
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

/// Returns the length of the request's body on the connection: a body without a length is in chunks
/// (RFC 9112, 6.3).
fn body_length(request: &hyper::Request<Incoming>) -> BodyLength {
    request.body().size_hint().exact().map_or(BodyLength::Chunked, BodyLength::Known)
}

/// Returns true if the client begins with the preface of HTTP/2. Consumes no data, and needs no
/// buffer while the client is silent.
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
        // A part of the preface: `peek` would return it again immediately
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use portico_base::{Clock, Secret};
    use portico_tokens::{ApiKeys, CurrentKeys, KeyRing};

    use super::*;

    #[tokio::test]
    async fn a_waiting_connection_needs_little_memory() {
        let ring = Arc::new(KeyRing::hs256(&Secret::new("a secret of tests that is long enough")));
        let gateway =
            Gateway::builder(CurrentKeys::new(ring, Arc::new(ApiKeys::development())), Clock::system()).build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let mut limit = ConnectionLimit::new(ConnectionLimits {
            most: 1,
            most_per_network: 1,
            unlimited: Vec::new(),
            new_for: Duration::ZERO,
        });
        let admitted = limit.admit_from(peer.ip()).await.unwrap();
        let zero = Duration::ZERO;
        let limits = TimeLimits { head: zero, idle: zero, rest: zero, stall: zero };
        let guard = ConnectionGuard(Arc::new((admitted, Workers::on_current_runtime().count_connection())));
        let size = size_of_val(&connection(stream, peer, gateway, &guard, limits));
        drop(client);
        assert!(size <= 2048, "{size} bytes: ten thousand clients may wait");
    }
}
