//! The connections that the services share: one pool for each role that acts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Connect, Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime,
    TimeoutType,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;

use crate::acting::{self, AUTH};
use crate::bootstrap::Limitation;
use crate::connection::{self, SessionStart, dial_patiently, is_passing};
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::pooler::cleaning::END_IF_VALUES_ARE_KEPT;
use crate::tls::Tls;
use crate::wire::PoolStatus;

/// A pooled connection; it goes back to its pool when dropped. `prepare_cached` prepares a
/// statement once per connection.
pub type Client = deadpool_postgres::Object;

/// A connection that was in use so recently is taken for whole without asking.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// The time limit of the check of an idle connection, which is discarded after it.
const RECYCLE: Duration = Duration::from_secs(2);

/// The limits of the pools.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Connections at most for the auth service.
    pub auth_connections: usize,
    /// Connections at most for our own upkeep and analytics.
    pub service_connections: usize,
    /// The time that a caller waits for a connection to become free before it gets
    /// [`DatabaseError::Busy`].
    pub wait: Duration,
    /// The longest any statement of a service may run.
    pub statement_timeout: Duration,
    /// The longest a statement waits for a lock.
    pub lock_timeout: Duration,
    /// The time that a transaction may be open without a statement before PostgreSQL ends it.
    pub idle_in_transaction_timeout: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            auth_connections: 10,
            service_connections: 4,
            wait: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(8),
            idle_in_transaction_timeout: Duration::from_secs(60),
        }
    }
}

/// The database: pooled connections in the roles that services act as. Clones share the pools.
#[derive(Debug, Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    auth: Pool,
    service: Pool,
    settings: PoolSettings,
    being_recreated: AtomicBool,
    limitations: Mutex<Vec<Limitation>>,
}

impl Database {
    /// Makes the pools; connections open when they are first asked for. Needs a Tokio runtime only
    /// then.
    ///
    /// On the embedded cluster each role logs in through the socket. On an external server a login
    /// role of our own does, which may only act as the service's role; where the server does not
    /// admit it, the endpoint's login role, which takes on the service's role with `set role`.
    ///
    /// # Errors
    /// When the certificates that the endpoint names cannot be read.
    pub fn open(endpoint: &Endpoint, settings: PoolSettings) -> Result<Self, DatabaseError> {
        let auth = Profile { role: Some(AUTH), search_path: "auth", connections: settings.auth_connections };
        let service = Profile { role: None, search_path: SERVICE_PATH, connections: settings.service_connections };
        Ok(Self {
            inner: Arc::new(Inner {
                auth: auth.pool(endpoint, &settings)?,
                service: service.pool(endpoint, &settings)?,
                endpoint: endpoint.clone(),
                settings,
                being_recreated: AtomicBool::new(false),
                limitations: Mutex::default(),
            }),
        })
    }

    /// A pooled connection of the auth service: role `supabase_auth_admin`, search path `auth`.
    ///
    /// # Errors
    /// [`DatabaseError::is_unavailable`] when the database is down or all connections stay busy.
    pub async fn auth(&self) -> Result<Client, DatabaseError> {
        self.take(&self.inner.auth).await.map_err(|error| self.explain_refused_role(error))
    }

    /// A login that may not act as the service's role is a mistake of the set-up, and has a remedy.
    fn explain_refused_role(&self, error: DatabaseError) -> DatabaseError {
        let refused = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::INVALID_PARAMETER_VALUE];
        match error.sqlstate() {
            Some(code) if refused.contains(code) => DatabaseError::Refused(format!(
                "the login role `{0}` of the database may not act as `{AUTH}` ({error}): as a superuser, run `grant {AUTH} to \
                 \"{0}\"`",
                self.inner.endpoint.user()
            )),
            _ => error,
        }
    }

    /// A pooled connection as the owner of our own schema `portico`, which is the endpoint's login
    /// role: upkeep, analytics.
    ///
    /// # Errors
    /// [`DatabaseError::is_unavailable`] when the database is down or all connections stay busy.
    pub async fn service(&self) -> Result<Client, DatabaseError> {
        self.take(&self.inner.service).await
    }

    /// A connection of its own as the endpoint's login role (the superuser on the embedded
    /// cluster), without the limits of the pools: for changes of the schema and for `listen`.
    ///
    /// # Errors
    /// As [`connect`](crate::connect).
    pub async fn administrator(&self) -> Result<tokio_postgres::Client, DatabaseError> {
        let endpoint = self.inner.endpoint.direct();
        match connection::connect(endpoint).await {
            Err(error) if is_missing(&error) && endpoint.trusts_any_role() => {
                self.create_missing().await?;
                connection::connect(endpoint).await
            }
            outcome => outcome,
        }
    }

    /// As [`administrator`](Self::administrator), for statements that name only the catalog and our
    /// own schemas, and that no object or setting of the project may affect.
    pub(crate) async fn guarded_administrator(&self) -> Result<tokio_postgres::Client, DatabaseError> {
        let endpoint = self.inner.endpoint.direct();
        match connection::connect_guarded(endpoint).await {
            Err(error) if is_missing(&error) && endpoint.trusts_any_role() => {
                self.create_missing().await?;
                connection::connect_guarded(endpoint).await
            }
            outcome => outcome,
        }
    }

    /// Opens a connection of its own that acts as `role`, for statements and functions of the
    /// project. On the embedded cluster it logs in as `role`, elsewhere as a login role that can
    /// only act as it: a session that a superuser has begun returns to the superuser at
    /// `reset role`, which any function can run.
    ///
    /// # Errors
    /// As [`connect`](crate::connect); PostgreSQL's error when the login role may not act as
    /// `role`.
    pub async fn acting_as(&self, role: &str) -> Result<tokio_postgres::Client, DatabaseError> {
        let endpoint = self.inner.endpoint.for_part(role);
        let role = self.inner.endpoint.role_for(role);
        let client = connection::connect(&endpoint).await?;
        if role != endpoint.role() {
            client.batch_execute(&format!("set role \"{}\"", role.replace('"', "\"\""))).await?;
        }
        Ok(client)
    }

    /// Creates the database after an interrupted reset of the embedded cluster. Elsewhere its
    /// operator has to decide.
    async fn create_missing(&self) -> Result<(), DatabaseError> {
        let endpoint = &self.inner.endpoint;
        let elsewhere = connection::connect_guarded(&endpoint.with_database("template1")).await?;
        let name = endpoint.database().replace('"', "\"\"");
        Ok(elsewhere.batch_execute(&format!("create database \"{name}\" template template0")).await?)
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

    /// Finds out whether a connection pooler lends the server sessions. [`bootstrap`](Self::bootstrap)
    /// does so itself; for a command on a database that a server has set up.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn detect_pooler(&self) -> Result<(), DatabaseError> {
        acting::names(&self.inner.endpoint).await.map(drop)
    }

    /// Returns whether a connection pooler lends the server sessions, so that they cannot keep
    /// prepared statements.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.inner.endpoint.is_pooled()
    }

    /// Returns whether an endpoint past the connection pooler was given.
    #[must_use]
    pub fn has_direct_endpoint(&self) -> bool {
        self.inner.endpoint.has_direct()
    }

    /// Returns whether a [`Listener`](crate::Listener) can receive notifications.
    #[must_use]
    pub fn receives_notifications(&self) -> bool {
        self.inner.endpoint.receives_notifications()
    }

    /// The limits in force.
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
        let pools = [self.inner.auth.status(), self.inner.service.status()];
        PoolStatus {
            open: pools.iter().map(|pool| pool.size).sum(),
            idle: pools.iter().map(|pool| pool.available).sum(),
            waiting: pools.iter().map(|pool| pool.waiting).sum(),
        }
    }

    /// Returns whether [`recreate`](Self::recreate) is running. Failures meanwhile are expected.
    #[must_use]
    pub fn is_being_recreated(&self) -> bool {
        self.inner.being_recreated.load(Ordering::Relaxed)
    }

    /// Says that the database is made anew, for as long as the answer lives.
    pub(crate) fn note_recreation(&self) -> Recreation {
        self.inner.being_recreated.store(true, Ordering::Relaxed);
        Recreation { database: self.clone() }
    }

    /// Closes the idle connections. Those in use close at their return only if they are broken.
    /// Used after the schema was recreated, since statements prepared before refer to the old
    /// tables.
    pub fn drop_idle_connections(&self) {
        for pool in [&self.inner.auth, &self.inner.service] {
            pool.retain(|_, _| false);
        }
    }

    /// Closes the pools: no further checkout succeeds, and connections in use close at their
    /// return.
    pub async fn close(&self) {
        for pool in [&self.inner.auth, &self.inner.service] {
            pool.close();
        }
    }

    async fn take(&self, pool: &Pool) -> Result<Client, DatabaseError> {
        pool.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => DatabaseError::Busy(self.inner.settings.wait),
            PoolError::Timeout(_) => DatabaseError::Unreachable {
                place: self.inner.endpoint.place(),
                source: "the connection attempt took too long".into(),
            },
            PoolError::Backend(error) => connection::refusal(&self.inner.endpoint, error),
            PoolError::Closed => DatabaseError::Closed,
            other @ (PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                DatabaseError::Unreachable { place: self.inner.endpoint.place(), source: other.into() }
            }
        })
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

/// The role profile of a pool.
struct Profile {
    /// The role to act as; `None`: the endpoint's login role.
    role: Option<&'static str>,
    search_path: &'static str,
    connections: usize,
}

impl Profile {
    fn pool(&self, endpoint: &Endpoint, settings: &PoolSettings) -> Result<Pool, DatabaseError> {
        let connector = Connector {
            tls: Tls::new(endpoint.tls(), endpoint.host())?,
            endpoint: endpoint.clone(),
            role: self.role,
            set_up: self.set_up(settings),
            preamble: self.preamble(settings),
        };
        // A connection known to be closed is never handed out again. One that lay idle may have
        // broken unnoticed, so it is asked; one that was in use a moment ago need not be.
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let ask_idle = Hook::async_fn(|client: &mut ClientWrapper, metrics| {
            async move {
                if metrics.last_used() > TRUSTED_IDLE && !client.is_closed() {
                    client.simple_query("").await.map_err(HookError::Backend)?;
                }
                Ok(())
            }
            .boxed()
        });
        let manager = Manager::from_connect(endpoint.to_config(), connector, config);
        let pool = Pool::builder(manager)
            .max_size(self.connections.max(1))
            .wait_timeout(Some(settings.wait))
            .create_timeout(Some(endpoint.connect_timeout() + Duration::from_secs(1)))
            .recycle_timeout(Some(RECYCLE))
            .pre_recycle(ask_idle)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| DatabaseError::Refused(error.to_string()))?;
        Ok(pool)
    }

    /// The statements that begin a new connection, in one round trip. Nothing here comes from a
    /// request.
    fn set_up(&self, settings: &PoolSettings) -> String {
        let guard = if self.role.is_none() { GUARD_SERVICE } else { "" };
        format!("{guard} {}", self.settings("set", settings))
    }

    /// As [`set_up`](Self::set_up), for one transaction: behind a pooler each one begins with them.
    fn preamble(&self, settings: &PoolSettings) -> String {
        let guard = match self.role {
            None => GUARD_SERVICE.replace("'replica', false", "'replica', true"),
            Some(_) => format!("{END_IF_VALUES_ARE_KEPT};"),
        };
        format!("{guard} {}", self.settings("set local", settings))
    }

    fn settings(&self, set: &str, settings: &PoolSettings) -> String {
        format!(
            "{set} search_path = {}; {set} statement_timeout = {}; {set} lock_timeout = {}; \
             {set} idle_in_transaction_session_timeout = {}; {set} timezone = 'UTC';",
            self.search_path,
            settings.statement_timeout.as_millis(),
            settings.lock_timeout.as_millis(),
            settings.idle_in_transaction_timeout.as_millis(),
        )
    }
}

/// The search path of the service pool, without any schema that a project can create objects in.
const SERVICE_PATH: &str = "pg_catalog, portico, pg_temp";

/// Prepares a session of the service pool whose login role is a superuser: it fires no triggers,
/// and it requires that schema `portico` belongs to a superuser, since the owner of a database can
/// drop it and prepare another one under its name.
const GUARD_SERVICE: &str = "
    do $$
    declare superuser boolean;
    begin
      select rolsuper into superuser from pg_catalog.pg_roles where rolname = session_user;
      if not superuser then return; end if;
      perform pg_catalog.set_config('session_replication_role', 'replica', false);
      if exists (select from pg_catalog.pg_namespace as schema join pg_catalog.pg_roles as owner on owner.oid = schema.nspowner
                  where schema.nspname = 'portico' and not owner.rolsuper) then
        raise exception 'schema portico belongs to a role that is no superuser' using errcode = '42501';
      end if;
    end $$;";

fn is_missing(error: &DatabaseError) -> bool {
    error.sqlstate() == Some(&SqlState::INVALID_CATALOG_NAME)
}

/// While the project's database is made anew, it is missing for a moment: services wait for it.
fn is_passing_for_services(error: &tokio_postgres::Error) -> bool {
    is_passing(error) || error.code() == Some(&SqlState::INVALID_CATALOG_NAME)
}

/// Opens the connections of one pool.
struct Connector {
    endpoint: Endpoint,
    tls: Tls,
    /// The role to act as; `None`: the endpoint's login role.
    role: Option<&'static str>,
    set_up: String,
    preamble: String,
}

type Opened = (tokio_postgres::Client, JoinHandle<()>);

impl Connector {
    /// Returns the login and the statements that follow it. Found out anew for each connection: the
    /// bootstrap may have created a login role for this part meanwhile.
    fn login(&self) -> (tokio_postgres::Config, String) {
        let Some(part) = self.role else {
            let mut config = self.endpoint.to_config();
            config.options(connection::guarded_options(&self.endpoint));
            return (config, self.set_up.clone());
        };
        let (endpoint, role) = (self.endpoint.for_part(part), self.endpoint.role_for(part));
        let set_up = match endpoint.role() == role {
            true => self.set_up.clone(),
            false => format!("{} set role {role};", self.set_up),
        };
        (endpoint.to_config(), set_up)
    }
}

impl Connector {
    /// As [`login`](Self::login), behind a pooler: the statements begin each transaction.
    fn pooled_login(&self) -> (Endpoint, String) {
        let Some(part) = self.role else {
            let guard = connection::guarded_preamble(&self.endpoint);
            return (self.endpoint.clone(), format!("{guard}; {}", self.preamble));
        };
        let (endpoint, role) = (self.endpoint.for_part(part), self.endpoint.role_for(part));
        let preamble = match endpoint.user() == role {
            true => self.preamble.clone(),
            false => format!("{} set local role {role}", self.preamble),
        };
        (endpoint, preamble)
    }
}

impl Connect for Connector {
    fn connect(&self, _: &tokio_postgres::Config) -> BoxFuture<'_, Result<Opened, tokio_postgres::Error>> {
        async move {
            let patience = self.endpoint.connect_timeout();
            if self.endpoint.is_pooled() {
                let (endpoint, preamble) = self.pooled_login();
                let config = endpoint.to_config();
                let start = SessionStart { endpoint: &endpoint, config: &config, tls: &self.tls, preamble: &preamble };
                let opened = dial_patiently(&start, patience, is_passing_for_services).await?;
                // A login that may not act as the role is noticed here, and not by the first
                // statement of a service
                opened.0.batch_execute("").await?;
                return Ok(opened);
            }
            let (config, set_up) = self.login();
            let start = SessionStart { endpoint: &self.endpoint, config: &config, tls: &self.tls, preamble: "" };
            let (client, driver) = dial_patiently(&start, patience, is_passing_for_services).await?;
            client.batch_execute(&set_up).await?;
            Ok((client, driver))
        }
        .boxed()
    }
}
