//! Pauses of readers for whom the policies of a table take too long, and of subscribers whose
//! filters do.
//!
//! All changes wait for the answers about the ones before them. So a read that has run into its
//! time limit is not repeated for a while: its reader receives no changes of the table meanwhile,
//! or the subscriber none for its filters. The channels receive `system` messages: an error at the
//! start, or when they join during a pause, and `Subscribed to PostgreSQL` at the end, since
//! changes were missed.
//!
//! A pause is that of a person, whose new tokens are paused too. When the policies are slow for
//! many persons of one role, the role is paused as a whole, so that its pauses cost one slow read
//! and not one each.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use super::committed_change::CommittedChange;
use super::condition_budgets::FilterOwner;
use super::entry::ChangeAction;
use super::pauses::{PAUSE, Pauses};
use super::registry::{Registry, RegistryState, SubscriptionGroup};
use super::role_reads::{CANCELED, ChangeReader};
use super::system_message::{EXTENSION, SUBSCRIBED};
use super::validate::TableName;
use super::verdict::{AccessAnswers, AccessQuestion, Candidate, CandidateOutcome};
use crate::rooms::Subscriber;

/// The number of slow persons of a table and a role above which the role is paused.
const MAX_SLOW_PERSONS: usize = 32;
/// The largest number of pauses in force. The one that ends first makes room for a further one.
const MAX_IN_FORCE: usize = 10_000;

/// The policies of a table, for a person or for everyone with a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SlowPolicies {
    table: u32,
    role: Box<str>,
    /// The person, or the claims of a reader without a subject. `None`: everyone.
    person: Option<Arc<str>>,
}

impl SlowPolicies {
    fn of_reader(table: u32, reader: &ChangeReader) -> Self {
        let person = reader.person.clone().unwrap_or_else(|| (&*reader.claims).into());
        Self { table, role: reader.role.clone(), person: Some(person) }
    }

    fn of_role(&self) -> Self {
        Self { person: None, ..self.clone() }
    }

    fn is_person_of_role(&self, work: &PausedWork) -> bool {
        let PausedWork::Policies(other) = work else { return false };
        (other.table, &other.role) == (self.table, &self.role) && other.person.is_some()
    }
}

/// The work that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PausedWork {
    Policies(SlowPolicies),
    Filters(FilterOwner),
}

/// A pause that has not ended.
#[derive(Debug, Clone)]
struct PauseInForce {
    work: PausedWork,
    /// The table of the policies, under its name when the pause began.
    name: Option<TableName>,
}

impl PauseInForce {
    /// Returns the text for the channels.
    fn error(&self) -> String {
        match &self.name {
            Some(TableName { schema, table }) => {
                format!("Changes of {schema}.{table} are paused: its policies take too long")
            }
            None => "Changes for filters that the database evaluates are paused: they take too long".to_owned(),
        }
    }

    /// Returns true if it is about changes of a group. Policies do not decide about deletions.
    fn concerns(&self, group: &SubscriptionGroup) -> bool {
        let reader = &*group.key.reader;
        match (&self.work, &self.name) {
            (PausedWork::Policies(policies), Some(name)) => {
                let is_reader =
                    || policies.person.is_none() || *policies == SlowPolicies::of_reader(policies.table, reader);
                let mut entries = group.key.entries.iter();
                policies.role == reader.role
                    && is_reader()
                    && entries.any(|entry| {
                        entry.action != Some(ChangeAction::Delete)
                            && entry.schema.matches(&name.schema)
                            && entry.table.matches(&name.table)
                    })
            }
            (PausedWork::Filters(owner), _) => group.filter_owner() == *owner && group.needs_database(),
            (PausedWork::Policies(_), None) => false,
        }
    }
}

/// The pauses of readers.
#[derive(Debug)]
pub(super) struct ReaderPauses {
    /// Those in force, and those that ended a while ago.
    known: Pauses<PausedWork>,
    /// Those in force, and their end.
    in_force: IndexMap<PausedWork, (PauseInForce, Instant)>,
}

impl Default for ReaderPauses {
    fn default() -> Self {
        Self::new(PAUSE)
    }
}

impl ReaderPauses {
    /// Returns none. `pause` is the length of the first pause of each work.
    pub fn new(pause: Duration) -> Self {
        Self { known: Pauses::new(pause), in_force: IndexMap::new() }
    }

    fn contain_policies(&self, table: u32, reader: &ChangeReader) -> bool {
        if self.in_force.is_empty() {
            return false;
        }
        let policies = SlowPolicies::of_reader(table, reader);
        let of_role = PausedWork::Policies(policies.of_role());
        self.in_force.contains_key(&PausedWork::Policies(policies)) || self.in_force.contains_key(&of_role)
    }

    fn contain_filters(&self, group: &SubscriptionGroup) -> bool {
        !self.in_force.is_empty() && self.in_force.contains_key(&PausedWork::Filters(group.filter_owner()))
    }

    /// Returns the errors about the pauses of a group.
    fn errors(&self, group: &SubscriptionGroup) -> Vec<String> {
        let pauses = self.in_force.values().filter(|(pause, _)| pause.concerns(group));
        pauses.map(|(pause, _)| pause.error()).collect()
    }

    /// Begins a pause of policies, of the whole role if there are many, or of filters. Returns it,
    /// and the one that has ended to make room.
    fn begin(&mut self, work: PausedWork, name: Option<TableName>) -> (PauseInForce, Option<PauseInForce>) {
        let (mut work, mut end) = (work.clone(), self.known.begin(work));
        if let PausedWork::Policies(policies) = &work {
            let slow = self.known.known(|other| policies.is_person_of_role(other));
            if slow.len() > MAX_SLOW_PERSONS {
                slow.iter().for_each(|of_person| self.known.forget(of_person));
                self.in_force.retain(|paused, _| !policies.is_person_of_role(paused));
                work = PausedWork::Policies(policies.of_role());
                end = self.known.begin(work.clone());
            }
        }
        let first = self.in_force.iter().min_by_key(|(_, (_, end))| *end).map(|(work, _)| work.clone());
        let first = first.filter(|_| self.in_force.len() >= MAX_IN_FORCE);
        let ended = first.and_then(|first| self.in_force.swap_remove(&first));
        let pause = PauseInForce { work: work.clone(), name };
        self.in_force.insert(work, (pause.clone(), end));
        (pause, ended.map(|(pause, _)| pause))
    }
}

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
            let is_of_filter =
                || candidate.target.filter.needs_database() && state.pauses.contain_filters(&candidate.target.group);
            if is_of_policy || is_of_filter() {
                candidate.verdict = CandidateOutcome::Dropped;
            }
        }
    }

    /// Begins pauses for the reads that took too long, and reports them to the channels. Forgets
    /// the earlier pauses of those that were quick.
    pub fn note_times(&self, changes: &[CommittedChange], answers: &AccessAnswers) {
        let mut state = self.state();
        for (question, answer) in answers {
            let AccessQuestion::Rows(table, reader) = question else { continue };
            let change = changes.iter().find(|change| change.table.table.oid == *table);
            let Some((schema, name)) = change.map(CommittedChange::table_name) else { continue };
            let work = || PausedWork::Policies(SlowPolicies::of_reader(*table, reader));
            match answer {
                Ok(_) => state.pauses.known.forget(&work()),
                // The whole role may have been paused because of an answer before
                Err(failure) if failure.has_code(CANCELED) && !state.pauses.contain_policies(*table, reader) => {
                    tracing::warn!(role = &*reader.role, schema, table = name, "changes of a slow policy are paused");
                    state.pause(work(), Some(TableName { schema: schema.into(), table: name.into() }));
                }
                Err(_) => {}
            }
        }
    }

    /// Begins pauses for filters that took too long, and reports them to the channels.
    pub fn pause_filters(&self, owners: Vec<FilterOwner>) {
        let mut state = self.state();
        for owner in owners {
            let work = PausedWork::Filters(owner);
            if !state.pauses.in_force.contains_key(&work) {
                tracing::warn!("the filters of a subscriber take too long, and are paused");
                state.pause(work, None);
            }
        }
    }

    /// Ends the pauses that are over, and reports it to the channels. Returns the end of the next
    /// one.
    pub fn end_pauses(&self) -> Option<Instant> {
        let mut state = self.state();
        let now = Instant::now();
        let ended: Vec<_> = state.pauses.in_force.extract_if(.., |_, (_, end)| *end <= now).collect();
        ended.iter().for_each(|(_, (pause, _))| state.report_end(pause));
        state.pauses.in_force.values().map(|(_, end)| *end).min()
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
    pub(super) fn report_to(&self, subscriber: &Subscriber, group: &SubscriptionGroup) {
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
            PausedWork::Filters(_) => self.pauses.contain_filters(group),
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
