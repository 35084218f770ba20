//! The state that requests are answered with: configuration, settings of roles, schema cache.
//!
//! A [`Snapshot`] never changes. A change in the database leads to a new one in the background
//! (`reload`); a request keeps the snapshot that it started with.

mod catalog_digest;
mod reload;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use portico_database::Database;
use portico_database::wire::Pool;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::reload::Reloader;
use crate::config::RestConfig;
use crate::config::database::Roles;
use crate::schema::SchemaCache;

/// The time limit of a request's wait for a newer schema cache, before it fails because of an
/// unknown name.
const LONGEST_RELOAD_WAIT: Duration = Duration::from_secs(10);

/// The state that a request is answered with.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The configuration, with the overrides of the database.
    pub config: Arc<RestConfig>,
    /// The settings of roles.
    pub roles: Arc<Roles>,
    /// The schema cache; `None` until it is loaded for the first time.
    pub cache: Option<Arc<SchemaCache>>,
}

/// The figures of schema cache loads, for the metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadStatistics {
    /// Loads that succeeded.
    pub succeeded: u64,
    /// Loads that failed.
    pub failed: u64,
    /// The duration of the last load.
    pub last: Duration,
    /// A load is running or has failed: the cache may be outdated.
    pub stale: bool,
}

/// The current snapshot. Clones share it.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    shared: Arc<SharedSnapshot>,
    /// Asks the reload task for everything that is committed so far.
    catch_up: mpsc::Sender<oneshot::Sender<()>>,
    /// True after the first load, even if it failed.
    attempted: watch::Receiver<bool>,
}

#[derive(Debug)]
struct SharedSnapshot {
    snapshot: RwLock<Arc<Snapshot>>,
    statistics: RwLock<LoadStatistics>,
}

impl SharedSnapshot {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, snapshot: Snapshot) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    fn update_statistics(&self, update: impl FnOnce(&mut LoadStatistics)) {
        update(&mut self.statistics.write().unwrap_or_else(PoisonError::into_inner));
    }
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
