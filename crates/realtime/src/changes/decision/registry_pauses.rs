//! The pauses of the subscriptions: which candidates they leave out, and the messages to the
//! channels at their start and their end.

use std::sync::Arc;

use tokio::time::Instant;

use super::verdict::{AccessAnswers, AccessQuestion, Candidate, CandidateOutcome};
use crate::changes::entries::entry::ChangeAction;
use crate::changes::entries::validate::TableName;
use crate::changes::reads::role_reads::{CANCELED, ChangeReader};
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::subscriptions::condition_budgets::FilterOwner;
use crate::changes::subscriptions::group::SubscriptionGroup;
use crate::changes::subscriptions::reader_pauses::{PauseInForce, PausedWork, SlowPolicies};
use crate::changes::subscriptions::registry::{Registry, RegistryState};
use crate::changes::system_message::{EXTENSION, SUBSCRIBED};
use crate::rooms::Subscriber;

impl Registry {
    /// Drops the candidates about which a paused policy would have to decide, or a filter of a
    /// paused subscriber.
    pub fn drop_paused(&self, changes: &[CommittedChange], candidates: &mut [Candidate]) {
        let state = self.state();
        for candidate in candidates.iter_mut().filter(|candidate| candidate.is_undecided()) {
            let Some(change) = changes.get(candidate.change) else { continue };
            let table = change.table.table.oid;
            let is_of_policy =
                change.action() != ChangeAction::Delete && state.pauses.contain_policies(table, candidate.reader());
            let is_of_filter = || {
                candidate.target.filter.needs_database()
                    && state.pauses.contain_filters(candidate.target.group.filter_owner())
            };
            if is_of_policy || is_of_filter() {
                candidate.verdict = CandidateOutcome::Dropped;
            }
        }
    }

    /// Begins pauses for the reads that took too long, and reports them to the channels. Forgets
    /// the earlier pauses of those that were quick.
    pub fn note_times(&self, changes: &[CommittedChange], answers: &AccessAnswers) {
        let mut state = self.state();
        let are_known = state.pauses.are_known();
        for (table, reader, is_slow) in noted(answers, are_known) {
            if !is_slow {
                state.pauses.remove(SlowPolicies::of_reader(table, reader));
                continue;
            }
            // The whole role may have been paused because of an answer before
            if state.pauses.contain_policies(table, reader) {
                continue;
            }
            let change = changes.iter().find(|change| change.table.table.oid == table);
            let Some((schema, name)) = change.map(CommittedChange::table_name) else { continue };
            tracing::warn!(role = &*reader.role, schema, table = name, "changes of a slow policy are paused");
            state.pause(
                PausedWork::Policies(SlowPolicies::of_reader(table, reader)),
                Some(TableName { schema: schema.into(), table: name.into() }),
            );
        }
    }

    /// Begins pauses for filters that took too long, and reports them to the channels.
    pub fn pause_filters(&self, owners: Vec<FilterOwner>) {
        let mut state = self.state();
        for owner in owners {
            if !state.pauses.contain_filters(owner.clone()) {
                tracing::warn!("the filters of a subscriber take too long, and are paused");
                state.pause(PausedWork::Filters(owner), None);
            }
        }
    }

    /// Ends the pauses that are over, and reports it to the channels. Returns the end of the next
    /// one.
    pub fn end_pauses(&self) -> Option<Instant> {
        let mut state = self.state();
        let ended = state.pauses.take_ended(Instant::now());
        ended.iter().for_each(|pause| state.report_end(pause));
        state.pauses.next_end()
    }

    /// Reports to the channels of a group that changes may have been missed.
    pub fn report(&self, group: &SubscriptionGroup) {
        self.report_until(group, u64::MAX);
    }

    /// Like [`report`](Self::report), but to the channels whose subscription has at most the number
    /// `last`.
    pub fn report_until(&self, group: &SubscriptionGroup, last: u64) {
        let state = self.state();
        group.for_each_until(last, |subscriber| state.report_to(subscriber, group));
    }

    /// Reports to every channel that changes may have been missed.
    pub fn report_all(&self) {
        self.groups().iter().for_each(|group| self.report(group));
    }
}

impl RegistryState {
    /// Reports to a channel of a group that it is subscribed, or the pauses of its changes. Those
    /// that it has missed until then are to be loaded when they end.
    pub(in crate::changes) fn report_to(&self, subscriber: &Subscriber, group: &SubscriptionGroup) {
        let errors = self.pauses.errors(group);
        errors.iter().for_each(|error| subscriber.send_system(EXTENSION, "error", error));
        if errors.is_empty() {
            subscriber.send_system(EXTENSION, "ok", SUBSCRIBED);
        }
    }

    /// Begins a pause, and reports it to the channels that had no pause of the same kind before.
    fn pause(&mut self, work: PausedWork, name: Option<TableName>) {
        let is_paused = |group: &SubscriptionGroup| match &work {
            PausedWork::Policies(policies) => self.pauses.contain_policies(policies.table, &group.key.reader),
            PausedWork::Filters(_) => self.pauses.contain_filters(group.filter_owner()),
        };
        let groups: Vec<_> = self.groups.values().filter(|group| !is_paused(group)).cloned().collect();
        let (pause, ended) = self.pauses.begin(work, name);
        for group in groups.iter().filter(|group| pause.concerns(group)) {
            group.send_system(EXTENSION, "error", &pause.error());
        }
        if let Some(ended) = ended {
            self.report_end(&ended);
        }
    }

    /// Reports the end of a pause to its channels.
    fn report_end(&self, pause: &PauseInForce) {
        tracing::info!(name = ?pause.name, "a pause of database changes has ended");
        for group in self.groups.values().filter(|group| pause.concerns(group)) {
            group.for_each_until(u64::MAX, |subscriber| self.report_to(subscriber, group));
        }
    }
}

/// Returns the answers about rows that begin pauses or end what is known of earlier ones: table,
/// reader, and true if the read took too long. While no pause is known, quick reads cost nothing.
fn noted(answers: &AccessAnswers, are_known: bool) -> impl Iterator<Item = (u32, &Arc<ChangeReader>, bool)> {
    answers.iter().filter_map(move |(question, answer)| {
        let AccessQuestion::Rows(table, reader) = question else { return None };
        let is_slow = answer.as_ref().is_err_and(|failure| failure.has_code(CANCELED));
        (is_slow || answer.is_ok() && are_known).then_some((*table, reader, is_slow))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::reads::role_reads::ReadFailure;

    #[test]
    fn quick_reads_are_not_looked_at_while_no_pause_is_known() {
        let reader = |claims: &str| Arc::new(ChangeReader::new("authenticated".into(), claims.into(), None));
        let rejected = |code: &str| Err(ReadFailure::Rejected { code: code.into(), message: "".into() });
        let answers = AccessAnswers::from([
            (AccessQuestion::Rows(1, reader("quick")), Ok(None)),
            (AccessQuestion::Rows(1, reader("slow")), rejected(CANCELED)),
            (AccessQuestion::Rows(1, reader("failed")), rejected("42501")),
            (AccessQuestion::Role(1, "authenticated".into()), Ok(None)),
        ]);
        let noted = |are_known| {
            let mut noted: Vec<_> =
                noted(&answers, are_known).map(|(_, reader, is_slow)| (&*reader.claims, is_slow)).collect();
            noted.sort_unstable();
            noted
        };
        assert_eq!(noted(false), [("slow", true)]);
        assert_eq!(noted(true), [("quick", false), ("slow", true)]);
    }
}
