//! The settings of a pool.

use std::time::Duration;

/// The number of connections and how long they are kept.
#[derive(Debug, Clone)]
pub struct WirePoolSettings {
    /// The maximum number of connections.
    pub max_connections: usize,
    /// The time for which a caller waits for a connection to become free before it gets
    /// [`WireError::Busy`](crate::wire::WireError::Busy).
    pub checkout_timeout: Duration,
    /// A connection older than this is closed when it is returned.
    pub max_lifetime: Duration,
    /// A connection that was idle for this long is closed.
    pub max_idle: Duration,
    /// Keeps parsed statements on the server. This needs a session that stays ours between two
    /// batches, so it must be off behind a connection pooler that shares sessions by transaction.
    pub prepared: bool,
    /// The maximum number of parsed statements of a connection. The least recently used one is
    /// closed to make room.
    pub statements_per_connection: usize,
}

impl Default for WirePoolSettings {
    fn default() -> Self {
        Self {
            max_connections: 10,
            checkout_timeout: Duration::from_secs(10),
            max_lifetime: Duration::from_secs(1800),
            max_idle: Duration::from_secs(30),
            prepared: true,
            statements_per_connection: 256,
        }
    }
}
