//! The times of a cluster.

use std::time::Duration;

/// The times of a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterTimes {
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// The time without a message after which a server is gone.
    pub gone_after: Duration,
}

impl Default for ClusterTimes {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(1), gone_after: Duration::from_secs(5) }
    }
}
