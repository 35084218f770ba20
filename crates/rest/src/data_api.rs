//! The state that all requests of the service share.

use portico_base::Clock;
use portico_database::wire::{Pool, ReadCoalescer};
use portico_tokens::CurrentKeys;

use crate::snapshot::{ReloadTask, SnapshotStore};

/// The parts of a running data API.
pub(crate) struct DataApi {
    pub keys: CurrentKeys,
    pub clock: Clock,
    pub pool: Pool,
    /// Runs reads on the connections of the pool.
    pub reads: ReadCoalescer,
    pub snapshots: SnapshotStore,
    /// The address that the OpenAPI document shows when no other is configured.
    pub public_url: String,
    /// The role that the server logs in with, before it assumes the role of a request.
    pub login: String,
    /// The connection limit.
    pub connections: usize,
    /// Stops the reload task when the service is dropped.
    pub _reload_task: ReloadTask,
}
