//! The error events for roles that cannot read a primary key.

use std::collections::HashSet;
use std::sync::Arc;

use super::verdict::{AccessQuestion, Candidate, CandidateOutcome, CohortAnswers, is_keyless};
use crate::changes::entries::entry::ChangeAction;
use crate::changes::reads::role_reads::ChangeReader;
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::slice::event::{ChangeEventError, EventContent};
use crate::changes::subscriptions::group::EntryTarget;

/// The tables and roles that cannot read a whole primary key.
pub(in crate::changes) type RejectedRoles = HashSet<(u32, Box<str>)>;

/// The questions of the cohorts that were sent, which are kept until the last one is. The rows that
/// each reader may see are not: they are many.
#[derive(Debug, Default)]
pub(in crate::changes) struct SentCohorts {
    asked: HashSet<AccessQuestion>,
    pub rejected: RejectedRoles,
}

impl SentCohorts {
    /// Adds a cohort, with the roles that were rejected because of its answers.
    pub fn add(&mut self, answers: CohortAnswers<'_>, rejected: RejectedRoles) {
        self.asked.extend(answers.of_cohort.into_keys());
        self.rejected.extend(rejected);
    }

    /// Returns true if the rows of a table were asked about for a reader.
    pub fn have_asked(&self, table: u32, reader: &Arc<ChangeReader>) -> bool {
        self.asked.contains(&AccessQuestion::Rows(table, Arc::clone(reader)))
    }
}

/// Adds the error events for roles that cannot read the primary key: for every entry of those
/// readers of the role that `is_meant` accepts, whatever its conditions. `audience` returns the
/// entries for a change. It is called for the tables of rejected roles alone: they are copies.
pub(in crate::changes) fn add_unauthorized(
    changes: &[CommittedChange],
    candidates: &mut Vec<Candidate>,
    rejected: &RejectedRoles,
    audience: impl Fn(&CommittedChange) -> Vec<Arc<EntryTarget>>,
    is_meant: impl Fn(u32, &Arc<ChangeReader>) -> bool,
) {
    if rejected.is_empty() {
        return;
    }
    let is_rejected = |change: &CommittedChange, reader: &Arc<ChangeReader>| {
        let oid = change.table.table.oid;
        change.action() != ChangeAction::Delete
            && !is_keyless(change)
            && rejected.contains(&(oid, reader.role.clone()))
            && is_meant(oid, reader)
    };
    candidates.retain(|candidate| {
        changes.get(candidate.change).is_none_or(|change| !is_rejected(change, candidate.reader()))
    });
    for (number, change) in changes.iter().enumerate() {
        if !rejected.iter().any(|(oid, _)| *oid == change.table.table.oid) {
            continue;
        }
        for target in audience(change) {
            if is_rejected(change, &target.group.key.reader) {
                let verdict = CandidateOutcome::Sent(EventContent::Error(ChangeEventError::Unauthorized));
                candidates.push(Candidate { change: number, target, verdict });
            }
        }
    }
    candidates.sort_by_key(|candidate| candidate.change);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::access::TableAccess;
    use super::super::verdict::AccessAnswers;
    use super::*;
    use crate::changes::entries::entry::{ChangeMessageForm, PreparedEntries};
    use crate::changes::slice::slice_keys::SliceKeys;
    use crate::changes::subscriptions::group::{GroupKey, SubscriptionGroup};
    use crate::decode::{CommitTime, described_table, inserted};
    use crate::socket::frame::Version;

    fn reader(claims: &str) -> Arc<ChangeReader> {
        Arc::new(ChangeReader::new("authenticated".into(), claims.into(), None))
    }

    /// Returns an entry for all changes.
    fn target(reader: Arc<ChangeReader>) -> Arc<EntryTarget> {
        let prepared = PreparedEntries::of_entries(&[serde_json::json!({ "schema": "public" })]);
        let entries = Arc::clone(prepared.entries().unwrap());
        let (topic, form) = ("a".into(), ChangeMessageForm::Ids);
        let key = GroupKey { reader, topic, version: Version::V2, form, entries };
        let group = Arc::new(SubscriptionGroup::new(1, key, Arc::new([])));
        Arc::new(EntryTarget { group, entry: 0, filter: Arc::default() })
    }

    #[test]
    fn only_the_entries_for_the_tables_of_rejected_roles_are_copied() {
        let [readable, hidden] = [1, 2].map(|oid| described_table(oid, &["id"]));
        let changes = [&readable, &hidden, &readable].map(|table| CommittedChange {
            commit_time: CommitTime(0),
            table: Arc::clone(table),
            change: inserted(&["1"]),
        });
        let target = target(reader("{}"));
        let undecided =
            |change| Candidate { change, target: Arc::clone(&target), verdict: CandidateOutcome::Undecided };
        let copied = RefCell::new(Vec::new());
        let audience = |change: &CommittedChange| {
            copied.borrow_mut().push(change.table.table.oid);
            vec![Arc::clone(&target)]
        };
        let mut candidates = vec![undecided(0), undecided(1), undecided(2)];
        add_unauthorized(&changes, &mut candidates, &RejectedRoles::new(), audience, |_, _| true);
        assert!(copied.borrow().is_empty());
        let rejected = RejectedRoles::from([(2, "authenticated".into())]);
        add_unauthorized(&changes, &mut candidates, &rejected, audience, |_, _| true);
        assert_eq!(*copied.borrow(), [2]);
        let is_error = |candidate: &Candidate| matches!(&candidate.verdict, CandidateOutcome::Sent(_));
        assert_eq!(candidates.iter().map(is_error).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn the_rows_that_readers_may_see_are_not_kept_for_the_last_cohort() {
        let columns: Arc<[bool]> = Arc::new([true]);
        let access =
            TableAccess { has_row_security: true, columns: Arc::clone(&columns), visible: HashSet::from([0, 1]) };
        let (asked, other) = (reader("{}"), reader("{\"sub\":1}"));
        let (of_slice, keys) = (AccessAnswers::new(), SliceKeys::of(&[]));
        let of_cohort = AccessAnswers::from([(AccessQuestion::Rows(1, Arc::clone(&asked)), Ok(Some(access)))]);
        let answers =
            CohortAnswers { of_slice: &of_slice, of_slice_again: AccessAnswers::new(), of_cohort, keys: &keys };
        let mut sent = SentCohorts::default();
        sent.add(answers, RejectedRoles::new());
        assert_eq!(Arc::strong_count(&columns), 1);
        assert_eq!(
            [(1, &asked), (2, &asked), (1, &other)].map(|(table, reader)| sent.have_asked(table, reader)),
            [true, false, false]
        );
    }
}
