//! Connections: accepts them, serves HTTP/1.1 or HTTP/2 on each, and closes them gracefully.

pub(crate) mod connection_limit;
mod http1;
mod http2;
mod limits;
mod long_request;
mod read_blocks;
pub(crate) mod request_line;
mod serve;
mod service;
mod stall_time;
mod stream_stall;
pub(crate) mod workers;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::connection_limit::{ConnectionLimit, ConnectionLimits};
use self::http1::http1_connection;
use self::http2::{http2_connection, speaks_http2};
use self::limits::TimeLimits;
use self::read_blocks::ReadBlocks;
use self::request_line::RequestLines;
use self::service::ConnectionService;
use self::workers::Workers;

pub use self::limits::ServeLimits;
pub use self::serve::Serve;
pub use self::service::ConnectionGuard;

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
    let blocks = ReadBlocks::default();
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
                let (service, blocks) = (service.clone(), blocks.clone());
                workers.serve(&mut connections, stream, peer, move |stream, peer, counted| async move {
                    let guard = ConnectionGuard(Arc::new((admitted, counted)));
                    connection(stream, peer, (service, blocks), &guard, times).await;
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
            drain = ?limits.drain,
            "requests were still running at the end of the drain and are cut off"
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
    (service, blocks): (impl Serve, ReadBlocks),
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
    let service = ConnectionService { service, peer, guard: guard.clone(), blocks };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portico_base::{Clock, Secret};
    use portico_tokens::{ApiKeys, CurrentKeys, KeyRing};

    use super::*;
    use crate::gateway::Gateway;

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
        let size = size_of_val(&connection(stream, peer, (gateway, ReadBlocks::default()), &guard, limits));
        drop(client);
        assert!(size <= 2048, "{size} bytes: ten thousand clients may wait");
    }
}
