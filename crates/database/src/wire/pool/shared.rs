//! The state that the clones of a pool and its connections share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::time::Instant;

use super::checkout_queue::{CheckoutGrant, CheckoutQueue, IdleConnection, ReturnedConnection};
use super::settings::WirePoolSettings;
use crate::wire::protocol::batch::Statement;
use crate::wire::protocol::error::WireError;
use crate::wire::session::connection::WireConnection;
use crate::wire::session::connector::Connector;
use crate::wire::session::function_traits::FunctionTraits;
use crate::wire::session::mode::SessionMode;

/// The state of a pool.
#[derive(Debug)]
pub(crate) struct SharedPool {
    pub connector: Connector,
    pub settings: WirePoolSettings,
    prepared: AtomicBool,
    traits: RwLock<FunctionTraits>,
    queue: Mutex<CheckoutQueue>,
    /// Increased by every renewal. Connections of an older generation are not used again.
    generation: AtomicU64,
    timeouts: AtomicU64,
    /// The task that closes idle connections is running.
    pub has_sweeper: AtomicBool,
}

impl SharedPool {
    /// Returns the state of a pool without connections.
    pub fn new(connector: Connector, settings: WirePoolSettings) -> Self {
        Self {
            connector,
            prepared: AtomicBool::new(settings.prepared),
            traits: RwLock::new(FunctionTraits::UNKNOWN),
            queue: Mutex::new(CheckoutQueue::new(settings.max_connections)),
            generation: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            has_sweeper: AtomicBool::new(false),
            settings,
        }
    }

    /// Locks the checkout queue.
    pub fn queue(&self) -> MutexGuard<'_, CheckoutQueue> {
        // The queue stays consistent when a panic poisons the lock: it changes by single pushes and
        // pops
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a checkout that has timed out, and returns its error.
    pub fn checkout_timed_out(&self) -> WireError {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        WireError::Busy(self.settings.checkout_timeout)
    }

    /// Opens a connection. Also returns its generation.
    pub async fn open_connection(&self) -> Result<(Box<WireConnection>, u64), WireError> {
        // Read before the connection is opened: after a renewal meanwhile, the settings of its role
        // may be outdated
        let generation = self.generation();
        let prepared = self.prepared.load(Ordering::Acquire);
        Ok((Box::new(self.connector.connect(prepared).await?), generation))
    }

    /// Returns the current generation.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Starts a new generation and closes the idle connections of the older ones.
    pub fn renew(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.close_idle_connections();
    }

    /// Turns prepared statements on or off. Returns true if that is a change.
    pub fn set_prepared(&self, prepared: bool) -> bool {
        self.prepared.swap(prepared, Ordering::AcqRel) != prepared
    }

    /// Returns how batches run at the moment.
    pub fn mode(&self) -> SessionMode {
        let pooled = self.connector.is_pooled();
        let runs_project_code = !self.connector.runs_fixed_statements();
        let traits = match runs_project_code {
            true => *self.traits.read().unwrap_or_else(PoisonError::into_inner),
            false => FunctionTraits::NONE,
        };
        SessionMode { prepared: self.prepared.load(Ordering::Relaxed) && !pooled, pooled, runs_project_code, traits }
    }

    /// Returns the key of a statement, which is the same on all connections of the pool.
    pub fn statement_key(&self, statement: &Statement<'_>) -> u64 {
        self.connector.texts().key(statement.text, statement.scope)
    }

    /// Sets the known properties of the functions in the database.
    pub fn set_function_traits(&self, traits: FunctionTraits) {
        *self.traits.write().unwrap_or_else(PoisonError::into_inner) = traits;
    }

    /// Treats the functions of the database as unknown until their properties are set again.
    pub fn evict_function_traits(&self) {
        let mut traits = self.traits.write().unwrap_or_else(PoisonError::into_inner);
        *traits = traits.with_unknown();
    }

    /// Returns the number of checkouts that have timed out.
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Returns true if a connection is older than the maximum lifetime.
    pub fn is_expired(&self, connection: &WireConnection) -> bool {
        connection.opened_at().elapsed() > self.settings.max_lifetime
    }

    /// Closes the idle connections.
    pub fn close_idle_connections(&self) {
        let idle = self.queue().take_all_idle();
        for mut idle in idle {
            idle.connection.terminate();
        }
    }

    /// Drops the idle connections that have ended. Called after a connection broke: when the server
    /// restarts, all of them break.
    pub fn drop_dead_connections(&self) {
        self.queue().retain_idle(|idle| idle.connection.is_alive());
    }

    /// Ends a checkout. Its connection is passed to the next caller or becomes idle, if it is
    /// reusable.
    pub fn give_back(self: &Arc<Self>, connection: Option<Box<WireConnection>>, generation: u64, mut is_limited: bool) {
        let mut kept = match connection {
            // A connection reaches another caller only through here
            Some(mut connection) if !connection.is_reusable() || self.is_expired(&connection) => {
                connection.terminate();
                None
            }
            connection => connection.map(|connection| IdleConnection { connection, since: Instant::now(), generation }),
        };
        loop {
            let (returned, outdated) = {
                let mut queue = self.queue();
                // Checked under the lock: closing or renewing the pool first announces it, then
                // empties the queue
                let is_outdated = queue.is_closed() || generation != self.generation();
                let outdated = kept.take_if(|_| is_outdated);
                (queue.give_back(kept, is_limited), outdated)
            };
            if let Some(mut outdated) = outdated {
                outdated.connection.terminate();
            }
            match returned {
                ReturnedConnection::Idle => return self.start_sweeper(),
                ReturnedConnection::Absent => return,
                ReturnedConnection::Granted { waiter, is_limited: limited, idle } => {
                    match waiter.send(CheckoutGrant::Connection(idle)) {
                        // The caller has just been cancelled
                        Err(CheckoutGrant::Connection(idle)) => (kept, is_limited) = (idle, limited),
                        Ok(()) | Err(CheckoutGrant::Results(_)) => return,
                    }
                }
            }
        }
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        self.close_idle_connections();
    }
}
