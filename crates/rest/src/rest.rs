//! The public interface of the service.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::HeaderMap;
use portico_base::{Clock, ForwardedHeaders};
use portico_database::wire::{CoalescingSettings, Pool, ReadCoalescer, WirePoolSettings};
use portico_database::{Database, DatabaseError};
use portico_tokens::{CurrentKeys, LOGIN_ROLE};

use crate::config::RestConfig;
use crate::data_api::DataApi;
use crate::snapshot::SnapshotStore;
use crate::{admin, handler};

/// Connections for quick reads per processor. With fewer, PostgreSQL would wait for this server;
/// with more, its processes would compete with each other (`bench/README.md`).
const QUICK_READS_PER_PROCESSOR: NonZero<usize> = NonZero::new(4).expect("it is not zero");

/// The operator's settings of the service itself. Settings that the database may override are in
/// [`RestConfig`].
#[derive(Debug, Clone)]
pub struct RestSettings {
    /// The server's own configuration.
    pub config: RestConfig,
    /// The connection limit (`db-pool`).
    pub connections: usize,
    /// The time limit of a request's wait for a connection (`db-pool-acquisition-timeout`).
    pub wait: Duration,
    /// The address that the OpenAPI document shows when no other is configured, with the service's
    /// prefix.
    pub public_url: String,
}

impl Default for RestSettings {
    fn default() -> Self {
        Self {
            config: RestConfig::default(),
            connections: 10,
            wait: Duration::from_secs(10),
            public_url: "http://127.0.0.1:54321/rest/v1".into(),
        }
    }
}

/// The data API. Clones share all state.
#[derive(Clone)]
pub struct Rest {
    service: Arc<DataApi>,
}

impl Rest {
    /// Makes the service and starts to load the schema cache in the background. The first requests
    /// wait for the cache. Needs a Tokio runtime.
    ///
    /// # Errors
    /// The certificates that the database's endpoint names cannot be read.
    pub fn new(
        settings: RestSettings,
        database: Database,
        keys: CurrentKeys,
        clock: Clock,
    ) -> Result<Self, DatabaseError> {
        let pool_settings = WirePoolSettings {
            max_connections: settings.connections,
            checkout_timeout: settings.wait,
            prepared: settings.config.prepared_statements,
            ..WirePoolSettings::default()
        };
        let pool = Pool::open(database.endpoint(), LOGIN_ROLE, pool_settings)?;
        let processors = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let coalescing = CoalescingSettings {
            max_quick_reads: Some(QUICK_READS_PER_PROCESSOR.saturating_mul(processors)),
            ..CoalescingSettings::default()
        };
        let reads = ReadCoalescer::new(pool.clone(), &coalescing);
        let login = database.endpoint().user().to_owned();
        let (snapshots, reload_task) = SnapshotStore::start(database, pool.clone(), settings.config.clone());
        let RestSettings { public_url, connections, .. } = settings;
        let service =
            DataApi { keys, clock, pool, reads, snapshots, public_url, login, connections, _reload_task: reload_task };
        Ok(Self { service: Arc::new(service) })
    }

    /// Responds to a request below `/rest/v1`; its path comes without that prefix. `forwarded` adds
    /// the headers that SQL sees in addition: the client's address and the original URL.
    pub async fn respond(self, request: Request, forwarded: impl Fn(&mut HeaderMap) + Send + Sync) -> Response {
        handler::respond(&self.service, request, ForwardedHeaders::new(&forwarded)).await
    }

    /// Returns the routes below `/rest-admin/v1`, without that prefix: liveness, readiness and
    /// metrics.
    pub fn admin_router(&self) -> Router {
        admin::router(Arc::clone(&self.service))
    }

    /// Returns true if the configuration lets pages of this origin read responses
    /// (`server-cors-allowed-origins`); `None` if it lists no origins, which allows all.
    pub fn admits_page(&self, origin: &str) -> Option<bool> {
        let listed = self.service.snapshots.now().config.cors_origins.clone()?;
        Some(listed.iter().any(|each| each == origin))
    }

    /// Returns the connections to the database, so that another service can share them: with the
    /// schema, this service keeps what is known of the functions there up to date.
    pub fn reads(&self) -> ReadCoalescer {
        self.service.reads.clone()
    }

    /// Closes the connections to the database.
    pub fn close(&self) {
        self.service.pool.close();
    }
}
