//! The connection pool: few connections, checked out in a fair order, the most recently used first.

pub(crate) mod checkout_queue;
mod clean_up;
mod idle_sweeper;
pub(crate) mod pooled_connection;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod waiting;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::Instant;

use self::checkout_queue::{CheckoutGrant, CheckoutRequest, CheckoutResponse, IdleConnection, PoolStatus};
use self::pooled_connection::PooledConnection;
use self::settings::WirePoolSettings;
use self::shared::SharedPool;
use self::waiting::WaitingCaller;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::wire::protocol::error::WireError;
use crate::wire::session::batch_copy::BatchCopy;
use crate::wire::session::connector::Connector;
use crate::wire::session::function_traits::FunctionTraits;

/// The outcome of a checkout that did not fail.
pub(crate) enum StartedCheckout {
    /// Permission to use a connection: this one, or a new one.
    Granted(Option<IdleConnection>),
    /// The caller has to wait.
    Waiting(WaitingCaller),
}

/// A pool of connections that act as one role. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Pool {
    pub(crate) shared: Arc<SharedPool>,
}

impl Pool {
    /// Makes a pool. Connections are opened when they are needed, which requires a Tokio runtime
    /// only then.
    ///
    /// On the embedded cluster the role logs in through the socket. On an external server the login
    /// role of the endpoint does, and assumes the role: as its session user where the login role is
    /// a superuser, with `set role` otherwise. The settings of the role (`alter role .. set`) are
    /// in force either way.
    ///
    /// # Errors
    /// When the certificates that the endpoint names cannot be read.
    pub fn open(endpoint: &Endpoint, role: &str, settings: WirePoolSettings) -> Result<Self, DatabaseError> {
        let connector = Connector::new(endpoint, role, settings.statements_per_connection)?;
        Ok(Self::with_connector(connector, settings))
    }

    /// Makes a pool of a connector.
    pub(in crate::wire) fn with_connector(connector: Connector, settings: WirePoolSettings) -> Self {
        Self { shared: Arc::new(SharedPool::new(connector, settings)) }
    }

    /// Checks out a connection for one caller, until it is dropped: the most recently used one, or
    /// a new one. Callers that have to wait are served in their order, with a short exception:
    /// callers on the runtime that a connection is registered with come first for it.
    ///
    /// # Errors
    /// [`WireError::Busy`] when none becomes free in time; [`WireError::Unreachable`] when the
    /// server does not answer; [`WireError::Postgres`] or [`WireError::Refused`] when it does not
    /// accept the connection; [`WireError::Closed`] after [`close`](Self::close).
    pub async fn checkout(&self) -> Result<PooledConnection, WireError> {
        let deadline = Instant::now() + self.shared.settings.checkout_timeout;
        let granted = match self.start_checkout(None, None)? {
            StartedCheckout::Granted(granted) => granted,
            StartedCheckout::Waiting(mut waiting) => match waiting.granted(deadline, deadline).await {
                Ok(Some(CheckoutGrant::Connection(granted))) => granted,
                // Results are only sent to a caller that has left its batch in the queue
                Ok(Some(CheckoutGrant::Results(_)) | None) => return Err(WireError::Closed),
                Err(_) => return Err(self.shared.checkout_timed_out()),
            },
        };
        self.connection_for(granted, false).await
    }

    /// Requests a connection for a caller on the current runtime.
    ///
    /// # Errors
    /// [`WireError::Closed`] when the pool is closed.
    pub(crate) fn start_checkout(
        &self,
        limit: Option<usize>,
        batch: Option<BatchCopy>,
    ) -> Result<StartedCheckout, WireError> {
        let request = CheckoutRequest { runtime: Handle::current().id(), limit, batch };
        let response = self.shared.queue().request(request).ok_or(WireError::Closed)?;
        match response {
            CheckoutResponse::Granted(idle) => Ok(StartedCheckout::Granted(idle)),
            CheckoutResponse::Queued(id, receiver) => Ok(StartedCheckout::Waiting(WaitingCaller::new(
                Arc::clone(&self.shared),
                id,
                limit.is_some(),
                receiver,
            ))),
        }
    }

    /// Turns a granted checkout into a connection: the granted one or another idle one that is
    /// still usable, or else a new one.
    pub(crate) async fn connection_for(
        &self,
        granted: Option<IdleConnection>,
        is_limited: bool,
    ) -> Result<PooledConnection, WireError> {
        let runtime = Handle::current().id();
        // Dropped without a connection, it ends the checkout
        let mut pooled = PooledConnection::without_connection(Arc::clone(&self.shared), is_limited);
        let mut candidate = granted;
        while let Some(mut idle) = candidate {
            let is_current = idle.generation == self.shared.generation();
            if is_current
                && !self.shared.is_expired(&idle.connection)
                && idle.connection.move_to_runtime(runtime)
                && idle.connection.is_alive()
            {
                pooled.connection = Some(idle.connection);
                pooled.generation = idle.generation;
                return Ok(pooled);
            }
            idle.connection.terminate();
            candidate = self.shared.queue().take_idle(runtime);
        }
        pooled.connect().await?;
        Ok(pooled)
    }

    /// Replaces all connections: idle ones are closed, those in use are closed when they are
    /// returned. For changes of the schema or of the settings of the role.
    pub fn renew(&self) {
        self.shared.renew();
    }

    /// Returns the numbers of connections and waiting callers.
    pub fn status(&self) -> PoolStatus {
        self.shared.queue().status()
    }

    /// Returns how many checkouts have timed out since the pool was made.
    pub fn timeouts(&self) -> u64 {
        self.shared.timeouts()
    }

    /// Turns prepared statements on or off ([`WirePoolSettings::prepared`]), from the next batch
    /// on. A change renews the connections.
    pub fn set_prepared(&self, prepared: bool) {
        if self.shared.set_prepared(prepared) {
            self.renew();
        }
    }

    /// Sets the known properties of the functions in the database. Until the first call, and
    /// whenever PostgreSQL reports more than is known, they count as unknown.
    pub fn set_function_traits(&self, traits: FunctionTraits) {
        self.shared.set_function_traits(traits);
    }

    /// Treats the functions of the database as unknown until their properties are set again.
    pub fn evict_function_traits(&self) {
        self.shared.evict_function_traits();
    }

    /// Returns the known properties of the functions in the database.
    pub fn function_traits(&self) -> FunctionTraits {
        self.shared.mode().traits
    }

    /// Closes the pool: checkouts are rejected, and connections in use are closed when they are
    /// returned.
    pub fn close(&self) {
        self.shared.queue().close();
        self.shared.close_idle_connections();
    }
}
