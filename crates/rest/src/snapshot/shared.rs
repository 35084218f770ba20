//! The snapshot that requests read and the reload task replaces.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::config::RestConfig;
use crate::config::database::Roles;
use crate::schema::SchemaCache;

/// The state that a request is executed with.
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

/// The current snapshot and its figures, for a store and its task.
#[derive(Debug)]
pub(super) struct SharedSnapshot {
    pub snapshot: RwLock<Arc<Snapshot>>,
    pub statistics: RwLock<LoadStatistics>,
}

impl SharedSnapshot {
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn replace(&self, snapshot: Snapshot) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    pub fn update_statistics(&self, update: impl FnOnce(&mut LoadStatistics)) {
        update(&mut self.statistics.write().unwrap_or_else(PoisonError::into_inner));
    }
}
