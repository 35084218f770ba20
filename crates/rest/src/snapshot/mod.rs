//! The state that requests are executed with: configuration, settings of roles, schema cache.
//!
//! A [`Snapshot`] never changes. A change in the database leads to a new one in the background
//! (`reload`); a request keeps the snapshot that it started with.

mod catalog_digest;
mod reload;
mod shared;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use portico_database::Database;
use portico_database::wire::Pool;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use self::shared::{LoadStatistics, Snapshot};

use self::reload::Reloader;
use self::shared::SharedSnapshot;
use crate::config::RestConfig;

/// The time limit of a request's wait for a newer schema cache, before it fails because of an
/// unknown name.
const LONGEST_RELOAD_WAIT: Duration = Duration::from_secs(10);

/// The current snapshot. Clones share it.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    shared: Arc<SharedSnapshot>,
    /// Asks the reload task for everything that is committed so far.
    catch_up: mpsc::Sender<oneshot::Sender<()>>,
    /// True after the first load, even if it failed.
    attempted: watch::Receiver<bool>,
}

/// The task that keeps a [`SnapshotStore`] current. It stops when this is dropped.
#[derive(Debug)]
pub struct ReloadTask(JoinHandle<()>);

impl Drop for ReloadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SnapshotStore {
    /// Starts the reload task. `server` is the server's own configuration, which the database may
    /// override.
    pub fn start(database: Database, pool: Pool, server: RestConfig) -> (Self, ReloadTask) {
        let snapshot = Snapshot { config: Arc::new(server.clone()), roles: Arc::default(), cache: None };
        let shared =
            Arc::new(SharedSnapshot { snapshot: RwLock::new(Arc::new(snapshot)), statistics: RwLock::default() });
        let (catch_up, requests) = mpsc::channel(1024);
        let (set_attempted, attempted) = watch::channel(false);
        let reloader = Reloader {
            database,
            pool,
            server,
            shared: Arc::clone(&shared),
            requests,
            attempted: set_attempted,
            unannounced_digest: Mutex::default(),
        };
        (Self { shared, catch_up, attempted }, ReloadTask(tokio::spawn(reloader.run())))
    }

    /// Returns the current snapshot. Right after the start, waits until the schema cache is loaded
    /// or its load has failed.
    pub async fn current(&self) -> Arc<Snapshot> {
        if !*self.attempted.borrow() {
            let mut attempted = self.attempted.clone();
            // An error means that the task has ended: the snapshot stays as it is
            let _ = attempted.wait_for(|attempted| *attempted).await;
        }
        self.now()
    }

    /// Returns the current snapshot, without waiting for the first load.
    pub fn now(&self) -> Arc<Snapshot> {
        self.shared.snapshot()
    }

    /// Waits until the snapshot contains everything that was committed before this call, as far as
    /// PostgreSQL announces it. A request right after a migration must not fail while the cache is
    /// reloaded. Returns `None` if the snapshot is still `known`.
    pub async fn newer_than(&self, known: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let (done, settled) = oneshot::channel();
        self.catch_up.send(done).await.ok()?;
        tokio::time::timeout(LONGEST_RELOAD_WAIT, settled).await.ok()?.ok()?;
        let current = self.current().await;
        (!Arc::ptr_eq(known, &current)).then_some(current)
    }

    /// Returns the figures of the loads so far.
    pub fn statistics(&self) -> LoadStatistics {
        *self.shared.statistics.read().unwrap_or_else(PoisonError::into_inner)
    }
}
