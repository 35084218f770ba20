//! The tables that have changed, and the preparation of their filters.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;
use tokio::time::Instant;

use super::group::SubscriptionGroup;
use crate::decode::DescribedTable;

/// The tables that are remembered at most.
pub(in crate::changes) const MAX_TABLES: usize = 5_000;

/// The tables for which the filters were prepared, and those for which they could not be.
#[derive(Debug, Default)]
pub(in crate::changes) struct PreparedTables {
    /// The description of each table, and the generation of the subscriptions then.
    pub prepared: HashMap<u32, (Arc<DescribedTable>, u64)>,
    pub delayed: HashMap<u32, DelayedPreparation>,
}

/// A table whose filters are not prepared for a while. Each attempt may wait for the lock of a
/// migration, and delays the changes of all tables.
#[derive(Debug)]
pub(in crate::changes) struct DelayedPreparation {
    pub retry_at: Instant,
    /// The groups, by their ids, that may have missed changes and have no report about them yet.
    pub missed: MissingGroups,
}

/// Groups, by their ids.
pub(in crate::changes) type MissingGroups = IndexMap<u64, Arc<SubscriptionGroup>>;

impl PreparedTables {
    /// Ends the delays that are over. Returns the groups that may have missed changes meanwhile.
    pub fn end_delays(&mut self) -> MissingGroups {
        let now = Instant::now();
        let ended = self.delayed.extract_if(|_, delayed| delayed.retry_at <= now);
        ended.flat_map(|(_, delayed)| delayed.missed).collect()
    }

    /// Returns the end of the delay that ends next.
    pub fn next_end(&self) -> Option<Instant> {
        self.delayed.values().map(|delayed| delayed.retry_at).min()
    }
}
