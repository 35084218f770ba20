//! Serves a connection by HTTP/2.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::connection_limit::PATIENCE;
use super::limits::{HEAD_BUFFER, TimeLimits};
use super::request_line::{Calls, ConnectionStanding};
use super::serve::Serve;
use super::service::{ConnectionService, ResponseBody};
use super::stream_stall::{SlicedBody, StreamExecutor};

/// The first bytes of an HTTP/2 connection without TLS.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection by HTTP/2. The first request has to arrive before `first_head`.
pub(super) async fn http2_connection(
    stream: TcpStream,
    service: ConnectionService<impl Serve>,
    mut end: Pin<&mut impl Future<Output = ()>>,
    calls: &Arc<Calls>,
    first_head: Instant,
    limits: TimeLimits,
) -> hyper::Result<()> {
    let respond = hyper::service::service_fn(move |request| {
        let (service, in_flight) = (service.clone(), calls.begins_multiplexed());
        async move {
            let response = service.respond(request).await;
            Ok::<_, Infallible>(response.map(|body| SlicedBody::new(ResponseBody { body, _in_flight: in_flight })))
        }
    });
    let mut builder = http2::Builder::new(StreamExecutor::new(limits.stall));
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.idle)
        .max_concurrent_streams(256)
        .max_header_list_size(u32::try_from(HEAD_BUFFER).unwrap_or(u32::MAX));
    let mut http = pin!(builder.serve_connection(TokioIo::new(stream), respond));
    let mut idle = pin!(idle_time(calls, limits.idle));
    tokio::select! {
        result = &mut http => return result,
        () = &mut end => {}
        () = tokio::time::sleep_until(first_head) => {
            if calls.standing() != ConnectionStanding::Unfinished {
                tokio::select! {
                    result = &mut http => return result,
                    () = &mut end => {}
                    () = &mut idle => {}
                }
            }
        }
    }
    if calls.standing() == ConnectionStanding::Unfinished {
        return Ok(());
    }
    http.as_mut().graceful_shutdown();
    // A client that does not acknowledge the shutdown keeps the connection only for requests in
    // progress
    while calls.standing() == ConnectionStanding::Busy {
        if let Ok(result) = tokio::time::timeout(PATIENCE, &mut http).await {
            return result;
        }
    }
    tokio::time::timeout(PATIENCE / 2, http).await.unwrap_or(Ok(()))
}

/// Returns when no request has been in progress for `idle`, and at most twice as long.
async fn idle_time(calls: &Calls, idle: Duration) {
    let mut seen = None;
    loop {
        tokio::time::sleep(idle).await;
        let now = calls.at_rest();
        if now.is_some() && now == seen {
            return;
        }
        seen = now;
    }
}

/// Returns true if the client begins with the preface of HTTP/2. Consumes no data, and needs no
/// buffer while the client is silent.
pub(super) async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
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
