//! The database: its pools, connections of their own, and what is known about its server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_postgres::error::SqlState;

use crate::acting;
use crate::bootstrap::Limitation;
use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::pool::{Client, PoolSettings, PoolStart, RolePool, RoleProfile};
use crate::quote;
use crate::tls::Tls;
use crate::wire::{FunctionTraits, PoolStatus};

/// The database: pooled connections in the roles that services act as. Clones share the pools.
#[derive(Debug, Clone)]
pub struct Database {
    inner: Arc<DatabaseState>,
}

#[derive(Debug)]
struct DatabaseState {
    endpoint: Endpoint,
    tls: Tls,
    settings: PoolSettings,
    pools: Mutex<Pools>,
    being_recreated: Arc<AtomicBool>,
    limitations: Mutex<Vec<Limitation>>,
}

/// The pools that are in use.
#[derive(Debug, Default)]
struct Pools {
    open: Vec<RolePool>,
    is_closed: bool,
}

impl Database {
    /// Prepares the pools; connections open when they are first asked for. Needs a Tokio runtime
    /// only then.
    ///
    /// On the embedded cluster each role logs in through the socket. On an external server a login
    /// role of our own does, which may only act as the service's role; where the server does not
    /// admit it, the endpoint's login role, which takes on the service's role with `set role`.
    ///
    /// # Errors
    /// When the certificates that the endpoint names cannot be read.
    pub fn open(endpoint: &Endpoint, settings: PoolSettings) -> Result<Self, DatabaseError> {
        Ok(Self {
            inner: Arc::new(DatabaseState {
                tls: Tls::new(endpoint.tls(), endpoint.host())?,
                endpoint: endpoint.clone(),
                settings,
                pools: Mutex::default(),
                being_recreated: Arc::default(),
                limitations: Mutex::default(),
            }),
        })
    }

    /// Returns the pool of a role profile, and makes it the first time.
    #[must_use]
    pub fn pool(&self, profile: RoleProfile) -> RolePool {
        let mut pools = self.pools();
        if let Some(known) = pools.open.iter().find(|pool| pool.profile() == profile) {
            return known.clone();
        }
        let DatabaseState { endpoint, tls, settings, being_recreated, .. } = &*self.inner;
        let pool = RolePool::new(&PoolStart { endpoint, tls, settings, being_recreated }, profile);
        if pools.is_closed {
            pool.close();
        }
        pools.open.push(pool.clone());
        pool
    }

    fn pools(&self) -> MutexGuard<'_, Pools> {
        self.inner.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a pooled connection as the owner of our own schema `portico`, which is the
    /// endpoint's login role.
    ///
    /// # Errors
    /// [`DatabaseError::is_unavailable`] when the database is down or all connections stay busy.
    pub async fn login_client(&self) -> Result<Client, DatabaseError> {
        self.pool(RoleProfile::LOGIN).client().await
    }

    /// Returns a connection of its own as the endpoint's login role (the superuser on the embedded
    /// cluster), without the limits of the pools: for changes of the schema and for `listen`.
    ///
    /// # Errors
    /// Those of [`connect`](crate::connect).
    pub async fn administrator(&self) -> Result<tokio_postgres::Client, DatabaseError> {
        self.connected(connection::connect).await
    }

    /// Like [`administrator`](Self::administrator), but for statements that name only the catalog
    /// and our own schemas, and that no object or setting of the project may affect.
    pub(crate) async fn guarded_administrator(&self) -> Result<tokio_postgres::Client, DatabaseError> {
        self.connected(connection::connect_guarded).await
    }

    /// Connects past the pools. Creates the database first if it is missing on a cluster of ours.
    async fn connected(
        &self,
        connect: impl AsyncFn(&Endpoint) -> Result<tokio_postgres::Client, DatabaseError>,
    ) -> Result<tokio_postgres::Client, DatabaseError> {
        let endpoint = self.inner.endpoint.direct();
        match connect(endpoint).await {
            Err(error) if is_missing(&error) && endpoint.trusts_any_role() => {
                self.create_missing().await?;
                connect(endpoint).await
            }
            outcome => outcome,
        }
    }

    /// Records in the database, where no event trigger does, whether its expressions keep values.
    /// Behind a connection pooler, the sessions that share a login read it.
    ///
    /// # Errors
    /// When the database cannot be reached, or PostgreSQL's error.
    pub async fn record_function_traits(&self, traits: FunctionTraits) -> Result<(), DatabaseError> {
        if traits.unwatched.is_some() && self.is_pooled() {
            let client = self.guarded_administrator().await?;
            client.batch_execute("select portico_session.note_version()").await?;
        }
        Ok(())
    }

    /// Opens a connection of its own that acts as `role`, for statements and functions of the
    /// project. On the embedded cluster it logs in as `role`, elsewhere as a login role that can
    /// only act as it: a session that a superuser has begun returns to the superuser at
    /// `reset role`, which any function can run.
    ///
    /// # Errors
    /// Those of [`connect`](crate::connect); PostgreSQL's error when the login role may not act as
    /// `role`.
    pub async fn acting_as(&self, role: &str) -> Result<tokio_postgres::Client, DatabaseError> {
        let endpoint = self.inner.endpoint.for_part(role);
        let role = self.inner.endpoint.role_for(role);
        let client = connection::connect(&endpoint).await?;
        if role != endpoint.role() {
            client.batch_execute(&format!("set role {}", quote::identifier(&role))).await?;
        }
        Ok(client)
    }

    /// Creates the database after an interrupted reset of the embedded cluster. Elsewhere its
    /// operator has to decide.
    async fn create_missing(&self) -> Result<(), DatabaseError> {
        let endpoint = &self.inner.endpoint;
        let elsewhere = connection::connect_guarded(&endpoint.with_database("template1")).await?;
        let name = quote::identifier(endpoint.database());
        Ok(elsewhere.batch_execute(&format!("create database {name} template template0")).await?)
    }

    /// Returns the role that has the part of `role`. It has another name on an external server
    /// where a role of this name belongs to others.
    #[must_use]
    pub fn role_for(&self, role: &str) -> String {
        self.inner.endpoint.role_for(role)
    }

    /// Returns the endpoint of the database.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// Finds out whether a connection pooler lends the server sessions.
    /// [`bootstrap`](Self::bootstrap) does so itself; for a command on a database that a server has
    /// set up.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn detect_pooler(&self) -> Result<(), DatabaseError> {
        acting::names_of(&self.inner.endpoint).await.map(drop)
    }

    /// Returns true if a connection pooler lends the server sessions, so that they cannot keep
    /// prepared statements.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.inner.endpoint.is_pooled()
    }

    /// Returns true if an endpoint past the connection pooler was given.
    #[must_use]
    pub fn has_direct_endpoint(&self) -> bool {
        self.inner.endpoint.has_direct()
    }

    /// Returns true if a [`Listener`](crate::Listener) can receive notifications.
    #[must_use]
    pub fn receives_notifications(&self) -> bool {
        self.inner.endpoint.receives_notifications()
    }

    /// Returns the limits in force.
    pub fn settings(&self) -> &PoolSettings {
        &self.inner.settings
    }

    /// Returns what the last bootstrap could not set up, since the login role lacks rights for it.
    #[must_use]
    pub fn limitations(&self) -> Vec<Limitation> {
        self.inner.limitations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_limitations(&self, limitations: Vec<Limitation>) {
        *self.inner.limitations.lock().unwrap_or_else(PoisonError::into_inner) = limitations;
    }

    /// Connections of all pools together.
    pub fn status(&self) -> PoolStatus {
        let pools: Vec<_> = self.pools().open.iter().map(RolePool::status).collect();
        PoolStatus {
            open: pools.iter().map(|pool| pool.size).sum(),
            idle: pools.iter().map(|pool| pool.available).sum(),
            waiting: pools.iter().map(|pool| pool.waiting).sum(),
        }
    }

    /// Returns true if [`recreate`](Self::recreate) is running. Failures meanwhile are expected.
    #[must_use]
    pub fn is_being_recreated(&self) -> bool {
        self.inner.being_recreated.load(Ordering::Relaxed)
    }

    /// Marks the database as being recreated until the returned guard is dropped.
    pub(crate) fn note_recreation(&self) -> Recreation {
        self.inner.being_recreated.store(true, Ordering::Relaxed);
        Recreation { database: self.clone() }
    }

    /// Closes the idle connections. Those in use close at their return only if they are broken.
    /// Used after the schema was recreated, since statements prepared before refer to the old
    /// tables.
    pub fn drop_idle_connections(&self) {
        self.pools().open.iter().for_each(RolePool::drop_idle_connections);
    }

    /// Closes the pools: no further checkout succeeds, and connections in use close at their
    /// return.
    pub async fn close(&self) {
        let mut pools = self.pools();
        pools.is_closed = true;
        pools.open.iter().for_each(RolePool::close);
    }
}

/// See [`Database::note_recreation`].
pub(crate) struct Recreation {
    database: Database,
}

impl Drop for Recreation {
    fn drop(&mut self) {
        self.database.inner.being_recreated.store(false, Ordering::Relaxed);
    }
}

fn is_missing(error: &DatabaseError) -> bool {
    error.sqlstate() == Some(&SqlState::INVALID_CATALOG_NAME)
}
