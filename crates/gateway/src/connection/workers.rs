//! Workers: the threads that serve connections, one for each processor, each with its own runtime.
//!
//! All work for a connection runs on its worker, so no part of a request wakes another thread:
//! neither its socket nor those of the database, which are registered where they are used. A
//! runtime that moves tasks between threads pays for that at every request, in wake-ups by the
//! system (`bench/README.md`).
//!
//! In return, work that keeps a thread busy delays the worker's other connections. Work that takes
//! longer than about a millisecond belongs into `spawn_blocking`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The workers of a server. Clones share the threads, which end with the last clone.
#[derive(Debug, Clone)]
pub struct Workers {
    workers: Arc<[Arc<Worker>]>,
    _ending: Option<Arc<DropGuard>>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// The number of connections that are served there.
    connections: AtomicUsize,
}

impl Workers {
    /// Returns the current runtime as the only worker.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn on_current_runtime() -> Self {
        let worker = Worker { runtime: Handle::current(), connections: AtomicUsize::new(0) };
        Self { workers: Arc::new([Arc::new(worker)]), _ending: None }
    }

    /// Starts `count` threads (minimum 1). Each thread calls `at_rest` whenever it is idle, before
    /// it waits.
    ///
    /// # Errors
    /// When the system has no threads or files left.
    pub fn start(count: usize, at_rest: impl Fn() + Clone + Send + Sync + 'static) -> io::Result<Self> {
        let ending = CancellationToken::new();
        let guard = ending.clone().drop_guard();
        let start = |number: usize| -> io::Result<Arc<Worker>> {
            let runtime = Builder::new_current_thread().enable_all().on_thread_park(at_rest.clone()).build()?;
            let worker = Worker { runtime: runtime.handle().clone(), connections: AtomicUsize::new(0) };
            let (ended, at_rest) = (ending.clone(), at_rest.clone());
            std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                runtime.block_on(ended.cancelled());
                at_rest();
                // Work that still runs (a blocked hash) must not delay the shutdown
                runtime.shutdown_background();
            })?;
            Ok(Arc::new(worker))
        };
        let workers = (0..count.max(1)).map(start).collect::<io::Result<_>>()?;
        Ok(Self { workers, _ending: Some(Arc::new(guard)) })
    }

    /// Counts a connection that is not served.
    #[cfg(test)]
    pub(crate) fn count_connection(&self) -> WorkerConnection {
        WorkerConnection::new(&self.workers[0])
    }

    /// Serves a connection on the worker that has the fewest, as one of `connections`. It counts
    /// until `serve` drops its count.
    pub(crate) fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        connections: &mut JoinSet<()>,
        stream: TcpStream,
        peer: SocketAddr,
        serve: impl FnOnce(TcpStream, SocketAddr, WorkerConnection) -> F + Send + 'static,
    ) {
        let Some(worker) = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed)) else {
            return;
        };
        let counted = WorkerConnection::new(worker);
        // Deregistered from the listener's runtime, to be registered with the worker's
        let Ok(stream) = stream.into_std() else { return };
        connections.spawn_on(
            async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => serve(stream, peer, counted).await,
                    Err(error) => tracing::error!(error = %error, "a connection could not be served"),
                }
            },
            &worker.runtime,
        );
    }
}

/// Counts a connection of a worker until it is dropped.
pub(crate) struct WorkerConnection(Arc<Worker>);

impl WorkerConnection {
    fn new(worker: &Arc<Worker>) -> Self {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(worker))
    }
}

impl Drop for WorkerConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread::ThreadId;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_are_spread_over_workers_and_stay_on_theirs() {
        let rests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&rests);
        let workers = Workers::start(2, move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let seen = Arc::new(Mutex::new(Vec::<ThreadId>::new()));
        let mut connections = JoinSet::new();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (stream, peer) = listener.accept().await.unwrap();
            let seen = Arc::clone(&seen);
            workers.serve(&mut connections, stream, peer, |stream, _, counted| async move {
                let begun = std::thread::current().id();
                let _ = stream.readable().await;
                assert_eq!(begun, std::thread::current().id());
                seen.lock().unwrap().push(begun);
                drop(counted);
            });
        }
        drop(clients);
        while let Some(ended) = connections.join_next().await {
            ended.unwrap();
        }
        let mut seen = seen.lock().unwrap().clone();
        assert_eq!(seen.len(), 4);
        seen.sort_by_key(|id| format!("{id:?}"));
        assert!(seen[0] == seen[1] && seen[1] != seen[2] && seen[2] == seen[3], "two on each: {seen:?}");
        assert!(!seen.contains(&std::thread::current().id()));
        assert!(rests.load(Ordering::Relaxed) > 0);
        assert!(workers.workers.iter().all(|worker| worker.connections.load(Ordering::Relaxed) == 0));
    }
}
