//! The filters of entries for tables whose columns have changed since the entries were checked, and
//! for tables that only wildcards name.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use indexmap::IndexMap;
use tokio::time::Instant;

use super::deliver::ChangeDelivery;
use crate::changes::entries::entry::ChangesEntry;
use crate::changes::entries::validate::{SubscribeError, TableName, ValidEntry};
use crate::changes::reads::role_reads::{ReadFailure, retrying};
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::subscriptions::prepared_tables::{DelayedPreparation, MAX_TABLES, MissingGroups, PreparedTables};
use crate::changes::subscriptions::registry::OutdatedEntry;
use crate::changes::system_message::EXTENSION;

/// The time after which the filters of a table are prepared again, when the database has not
/// answered.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

impl ChangeDelivery {
    /// Prepares the filters of tables whose columns have changed, or that no entry names. Once the
    /// database does not answer it is not asked again for these changes, and for a while not about
    /// these tables: each wait for the lock of a migration would delay all tables. Returns the
    /// groups whose filters are not prepared, by their ids; those of a delayed table are returned
    /// at the end of the delay.
    pub(in crate::changes) async fn prepare_filters(
        &self,
        tables: &mut PreparedTables,
        changes: &[CommittedChange],
    ) -> MissingGroups {
        let generation = self.registry.generation();
        let (mut seen, mut unprepared) = (HashSet::new(), tables.end_delays());
        let mut is_answering = true;
        for change in changes {
            let table = &change.table;
            let oid = table.table.oid;
            let known = tables.prepared.get(&oid);
            let is_prepared = known.is_some_and(|(known, at)| Arc::ptr_eq(known, table) && *at == generation);
            if is_prepared || !seen.insert(oid) {
                continue;
            }
            // A filter that did not fit the table before may fit it now
            let again = known.is_none_or(|(known, _)| !Arc::ptr_eq(known, table));
            let type_of = |name: &str| {
                table.table.columns.iter().find(|column| *column.name == *name).map(|column| column.type_oid)
            };
            let outdated = self.registry.outdated(change.table_name(), type_of, again);
            if let Some(delayed) = tables.delayed.get_mut(&oid) {
                delayed.missed.extend(outdated.into_iter().map(|entry| (entry.group.id(), entry.group)));
                continue;
            }
            if tables.prepared.len() >= MAX_TABLES {
                // They are prepared again, and tables that were dropped are never named again
                tables.prepared.clear();
            }
            tables.prepared.insert(oid, (Arc::clone(table), generation));
            for entry in outdated {
                is_answering = is_answering && self.prepare(change.table_name(), &entry).await;
                if !is_answering {
                    tables.prepared.remove(&oid);
                    let retry_at = Instant::now() + self.times.pause.min(RETRY_PAUSE);
                    tables.delayed.insert(oid, DelayedPreparation { retry_at, missed: IndexMap::new() });
                    unprepared.insert(entry.group.id(), entry.group);
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
