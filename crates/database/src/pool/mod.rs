//! The connections that services share: one pool for each role profile.

mod connector;
mod profile;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime, Status,
    TimeoutType,
};
use futures_util::FutureExt;
use tokio_postgres::error::SqlState;

use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::{DatabaseError, explain_rejected_role};
use crate::tls::Tls;
use connector::PoolConnector;

pub use profile::RoleProfile;

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
    /// Connections at most in each pool that acts as the role of a service.
    pub role_connections: usize,
    /// Connections at most in the pool of the login role, for work on our own schema.
    pub login_connections: usize,
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
            role_connections: 10,
            login_connections: 4,
            wait: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(8),
            idle_in_transaction_timeout: Duration::from_secs(60),
        }
    }
}

/// The connections of one role profile. Clones share them.
#[derive(Debug, Clone)]
pub struct RolePool {
    shared: Arc<SharedRolePool>,
}

#[derive(Debug)]
struct SharedRolePool {
    profile: RoleProfile,
    endpoint: Endpoint,
    wait: Duration,
    being_recreated: Arc<AtomicBool>,
    pool: Pool,
}

/// The properties that all pools of a database have in common.
pub(crate) struct PoolStart<'a> {
    pub endpoint: &'a Endpoint,
    pub tls: &'a Tls,
    pub settings: &'a PoolSettings,
    /// Set while the database is made anew.
    pub being_recreated: &'a Arc<AtomicBool>,
}

impl RolePool {
    /// Makes a pool; connections open when they are first asked for.
    pub(crate) fn new(start: &PoolStart<'_>, profile: RoleProfile) -> Self {
        let (endpoint, settings) = (start.endpoint, start.settings);
        let connector = PoolConnector {
            tls: start.tls.clone(),
            endpoint: endpoint.clone(),
            role: profile.role,
            set_up: profile.set_up(settings),
            preamble: profile.preamble(settings),
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
            .max_size(profile.connections(settings))
            .wait_timeout(Some(settings.wait))
            .create_timeout(Some(endpoint.connect_timeout() + Duration::from_secs(1)))
            .recycle_timeout(Some(RECYCLE))
            .pre_recycle(ask_idle)
            .runtime(Runtime::Tokio1)
            .build()
            .expect("the runtime is named");
        let shared = SharedRolePool {
            profile,
            endpoint: endpoint.clone(),
            wait: settings.wait,
            being_recreated: Arc::clone(start.being_recreated),
            pool,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the profile of the connections.
    pub(crate) fn profile(&self) -> RoleProfile {
        self.shared.profile
    }

    /// Takes a connection.
    ///
    /// # Errors
    /// [`DatabaseError::is_unavailable`] when the database is down or all connections stay busy.
    pub async fn client(&self) -> Result<Client, DatabaseError> {
        let endpoint = &self.shared.endpoint;
        let error = match self.shared.pool.get().await {
            Ok(client) => return Ok(client),
            Err(PoolError::Timeout(TimeoutType::Wait)) => DatabaseError::Busy(self.shared.wait),
            Err(PoolError::Timeout(_)) => DatabaseError::Unreachable {
                server: endpoint.description(),
                source: "the connection attempt took too long".into(),
            },
            Err(PoolError::Backend(error)) => connection::rejection(endpoint, error),
            Err(PoolError::Closed) => DatabaseError::Closed,
            Err(other @ (PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_))) => {
                DatabaseError::Unreachable { server: endpoint.description(), source: other.into() }
            }
        };
        Err(self.explain_rejected_role(error))
    }

    /// Adds the remedy to the error of a login that may not act as the pool's role, which is a
    /// mistake of the set-up.
    fn explain_rejected_role(&self, error: DatabaseError) -> DatabaseError {
        let rejected = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::INVALID_PARAMETER_VALUE];
        match (self.shared.profile.role, error.sqlstate()) {
            (Some(role), Some(code)) if rejected.contains(code) => {
                DatabaseError::Refused(explain_rejected_role(self.shared.endpoint.user(), role, &error))
            }
            _ => error,
        }
    }

    /// Returns true if the database is being made anew. Failures meanwhile are expected.
    #[must_use]
    pub fn is_being_recreated(&self) -> bool {
        self.shared.being_recreated.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> Status {
        self.shared.pool.status()
    }

    /// Closes the idle connections.
    pub(crate) fn drop_idle_connections(&self) {
        self.shared.pool.retain(|_, _| false);
    }

    /// Closes the pool: no further checkout succeeds, and connections in use close at their return.
    pub(crate) fn close(&self) {
        self.shared.pool.close();
    }
}
