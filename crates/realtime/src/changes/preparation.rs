//! The filters of entries for tables whose columns have changed since the entries were checked, and
//! for tables that only wildcards name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::FutureExt as _;
use indexmap::IndexMap;

use super::committed_change::CommittedChange;
use super::deliver::{ChangeDelivery, MAX_TABLES};
use super::entry::ChangesEntry;
use super::group::SubscriptionGroup;
use super::registry::OutdatedEntry;
use super::role_reads::{ReadFailure, retrying};
use super::system_message::EXTENSION;
use super::validate::{SubscribeError, TableName, ValidEntry};
use crate::decode::DescribedTable;

/// The description of each table for which the filters were prepared, and the generation of the
/// subscriptions then.
#[derive(Debug, Default)]
pub(super) struct PreparedTables(HashMap<u32, (Arc<DescribedTable>, u64)>);

impl ChangeDelivery {
    /// Prepares the filters of tables whose columns have changed, or that no entry names. Once the
    /// database does not answer it is not asked again for these changes: each wait for the lock of
    /// a migration would delay all tables. Returns the groups whose filters are not prepared, by
    /// their ids.
    pub(super) async fn prepare_filters(
        &self,
        prepared: &mut PreparedTables,
        changes: &[CommittedChange],
    ) -> IndexMap<u64, Arc<SubscriptionGroup>> {
        let generation = self.registry.generation();
        let (mut seen, mut unprepared) = (HashSet::new(), IndexMap::new());
        for change in changes {
            let table = &change.table;
            let known = prepared.0.get(&table.table.oid);
            let is_prepared = known.is_some_and(|(known, at)| Arc::ptr_eq(known, table) && *at == generation);
            if is_prepared || !seen.insert(table.table.oid) {
                continue;
            }
            let name = change.table_name();
            // A filter that did not fit the table before may fit it now
            let again = known.is_none_or(|(known, _)| !Arc::ptr_eq(known, table));
            if prepared.0.len() >= MAX_TABLES {
                // They are prepared again, and tables that were dropped are never named again
                prepared.0.clear();
            }
            prepared.0.insert(table.table.oid, (Arc::clone(table), generation));
            let type_of = |name: &str| {
                table.table.columns.iter().find(|column| *column.name == *name).map(|column| column.type_oid)
            };
            for outdated in self.registry.outdated(name, type_of, again) {
                // The database has not answered before
                if !unprepared.is_empty() || !self.prepare(name, &outdated).await {
                    // Tried again with the next change
                    prepared.0.remove(&table.table.oid);
                    unprepared.insert(outdated.group.id(), outdated.group);
                }
            }
        }
        unprepared
    }

    /// Prepares the filter of an entry for a table. Reports to the channels if the entry does not
    /// fit the table any more, and if it does again. Returns false if the database does not answer.
    async fn prepare(&self, name: (&str, &str), outdated: &OutdatedEntry) -> bool {
        let role = &*outdated.group.key.reader.role;
        let entry = Arc::new(outdated.entry().for_table(name.0, name.1));
        let filter = match retrying(|| self.validate(role, Arc::clone(&entry)).boxed()).await {
            Ok(Ok(valid)) => {
                let name = TableName { schema: name.0.into(), table: name.1.into() };
                Ok(valid.filters.get(&name).cloned().unwrap_or_default())
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %error, role, "an entry does not fit its table any more");
                Err(error)
            }
            Err(error) => {
                tracing::warn!(error = %error, role, "the filter of an entry could not be prepared");
                return false;
            }
        };
        let did_fit = self.registry.refresh(name, outdated, filter.as_ref().ok().cloned());
        match filter {
            Err(error) if did_fit => outdated.group.send_system(EXTENSION, "error", &error.to_string()),
            Ok(_) if !did_fit => self.registry.report(&outdated.group),
            _ => {}
        }
        true
    }

    async fn validate(
        &self,
        role: &str,
        entry: Arc<ChangesEntry>,
    ) -> Result<Result<ValidEntry, SubscribeError>, ReadFailure> {
        match self.validator.validate(role, entry).await {
            Err(SubscribeError::Unavailable(text)) => Err(ReadFailure::Unavailable(text)),
            outcome => Ok(outcome),
        }
    }
}
