//! Readers for whom the policies of a table take too long.
//!
//! All changes wait for the answers about the ones before them. So a read that has run into its
//! time limit is not repeated for a while: the reader receives no changes of the table meanwhile,
//! and learns of it by `system` messages, one at the start and one after the end.

use std::sync::Arc;
use std::time::Duration;

use super::committed_change::CommittedChange;
use super::entry::ChangeAction;
use super::pauses::Pauses;
use super::registry::Registry;
use super::role_reads::{CANCELED, ChangeReader};
use super::system_message::{EXTENSION, SUBSCRIBED};
use super::verdict::{AccessAnswers, AccessQuestion, Candidate, CandidateOutcome};

/// The readers and tables whose changes are paused.
#[derive(Debug)]
pub(crate) struct SlowPolicies(Pauses<(u32, Arc<ChangeReader>)>);

impl SlowPolicies {
    /// Returns none. `pause` is the length of the first pause of a reader and a table.
    pub fn new(pause: Duration) -> Self {
        Self(Pauses::new(pause))
    }

    /// Drops the candidates about which a paused policy would have to decide.
    pub fn drop_paused(&self, changes: &[CommittedChange], candidates: &mut [Candidate]) {
        for candidate in candidates.iter_mut().filter(|candidate| candidate.is_undecided()) {
            let Some(change) = changes.get(candidate.change) else { continue };
            let key = (change.table.table.oid, Arc::clone(candidate.reader()));
            if change.action() != ChangeAction::Delete && self.0.contain(&key) {
                candidate.verdict = CandidateOutcome::Dropped;
            }
        }
    }

    /// Begins and ends pauses by what the reads have answered, and reports it to the channels.
    pub fn note(&mut self, registry: &Registry, changes: &[CommittedChange], answers: &AccessAnswers) {
        for (question, answer) in answers {
            let AccessQuestion::Rows(oid, reader) = question else { continue };
            let key = (*oid, Arc::clone(reader));
            let (status, is_first) = match answer {
                Ok(_) => ("ok", self.0.end(&key)),
                Err(failure) if failure.has_code(CANCELED) => ("error", self.0.begin(key)),
                Err(_) => continue,
            };
            let Some(change) = changes.iter().find(|change| change.table.table.oid == *oid).filter(|_| is_first) else {
                continue;
            };
            let (schema, table) = change.table_name();
            let text = match status {
                // Changes were missed, as after a gap of the stream
                "ok" => SUBSCRIBED.to_owned(),
                _ => format!("Changes of {schema}.{table} are paused: its policies take too long"),
            };
            tracing::warn!(
                role = &*reader.role,
                schema,
                table,
                status,
                "changes of a slow policy are paused or resumed"
            );
            for group in registry.groups_of((schema, table), reader) {
                group.send_system(EXTENSION, status, &text);
            }
        }
    }
}
