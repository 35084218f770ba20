//! The service: what it is made of, and its face.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::HeaderMap;
use portico_base::Clock;
use portico_database::wire::{Pool, WirePoolSettings};
use portico_database::{Database, DatabaseError};
use portico_tokens::KeyRing;

use crate::config::Config;
use crate::snapshot::{LOGIN, ReloadTask, SnapshotStore};
use crate::{admin, handler};

/// For each processor: with fewer connections PostgreSQL would wait for us, with more its processes would for each other (`bench/README.md`).
const QUICK_CONNECTIONS: usize = 4;

/// What the operator decides about the service itself; what the database may override is in [`Config`].
#[derive(Debug, Clone)]
pub struct RestSettings {
    /// The server's own settings.
    pub config: Config,
    /// Connections to the database at most (`db-pool`).
    pub connections: usize,
    /// How long a request waits for one (`db-pool-acquisition-timeout`).
    pub wait: Duration,
    /// The address that the root shows when no other is configured, with the service's prefix.
    pub public_url: String,
}

impl Default for RestSettings {
    fn default() -> Self {
        Self {
            config: Config::default(),
            connections: 10,
            wait: Duration::from_secs(10),
            public_url: "http://127.0.0.1:54321/rest/v1".into(),
        }
    }
}

/// The data API. Clones share everything.
#[derive(Clone)]
pub struct Rest {
    pub(crate) inner: Arc<Service>,
}

pub(crate) struct Service {
    pub keys: Arc<KeyRing>,
    pub clock: Clock,
    pub pool: Pool,
    pub state: SnapshotStore,
    pub public_url: String,
    /// The role that logs in, before it takes on that of requests.
    pub login: String,
    /// Connections at most.
    pub connections: usize,
    /// Ends with the service.
    _keeper: ReloadTask,
}

impl Rest {
    /// Makes the service and begins to read the schema, in the background; the first requests wait for it. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the certificates that the database's endpoint names can not be read.
    pub fn new(
        settings: RestSettings,
        database: Database,
        keys: Arc<KeyRing>,
        clock: Clock,
    ) -> Result<Self, DatabaseError> {
        let pool_settings = WirePoolSettings {
            max_connections: settings.connections,
            checkout_timeout: settings.wait,
            prepared: settings.config.prepared_statements,
            max_quick_reads: QUICK_CONNECTIONS * std::thread::available_parallelism().map_or(1, NonZero::get),
            ..WirePoolSettings::default()
        };
        let pool = Pool::open(database.endpoint(), LOGIN, pool_settings)?;
        let login = database.endpoint().user().to_owned();
        let (state, keeper) = SnapshotStore::keep(database, pool.clone(), settings.config.clone());
        let RestSettings { public_url, connections, .. } = settings;
        let inner = Service { keys, clock, pool, state, public_url, login, connections, _keeper: keeper };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Answers a request below `/rest/v1`, whose path comes without that prefix. `outside` adds to its headers what SQL is to see besides:
    /// where the request came from and what was called.
    pub async fn answer(self, request: Request, outside: impl Fn(&mut HeaderMap) + Send + Sync) -> Response {
        handler::answer(self, request, &outside).await
    }

    /// Everything below `/rest-admin/v1`, without that prefix: whether the service is alive and ready, and its figures.
    pub fn admin_router(&self) -> Router {
        admin::router(self.clone())
    }

    /// Whether the configuration lets pages of this origin read answers (`server-cors-allowed-origins`); `None`: it lists no
    /// origins, and all may.
    pub fn admits_page(&self, origin: &str) -> Option<bool> {
        let listed = self.inner.state.now().config.cors_origins.clone()?;
        Some(listed.iter().any(|each| each == origin))
    }

    /// Closes the connections to the database.
    pub fn close(&self) {
        self.inner.pool.close();
    }
}
