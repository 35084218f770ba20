//! Pauses of readers for whom the policies of a table take too long.
//!
//! All changes wait for the answers about the ones before them. So a read that has run into its
//! time limit is not repeated for a while: its reader receives no changes of the table meanwhile.
//! The channels receive `system` messages: an error at the start, or when they join during a pause,
//! and `Subscribed to PostgreSQL` at the end, since changes were missed.
//!
//! A pause is that of a person, whose new tokens are paused too. When many persons of one role are
//! slow, the role is paused as a whole, so that its pauses cost one slow read and not one each.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use super::committed_change::CommittedChange;
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
}

/// The pauses of readers.
#[derive(Debug)]
pub(super) struct ReaderPauses {
    /// Those in force, and those that ended a while ago.
    known: Pauses<SlowPolicies>,
    /// Those in force, with the name of the table when they began, and their end.
    in_force: IndexMap<SlowPolicies, (TableName, Instant)>,
}

impl Default for ReaderPauses {
    fn default() -> Self {
        Self::new(PAUSE)
    }
}

impl ReaderPauses {
    /// Returns none. `pause` is the length of the first pause of a reader and a table.
    pub fn new(pause: Duration) -> Self {
        Self { known: Pauses::new(pause), in_force: IndexMap::new() }
    }

    fn contain(&self, table: u32, reader: &ChangeReader) -> bool {
        if self.in_force.is_empty() {
            return false;
        }
        let policies = SlowPolicies::of_reader(table, reader);
        self.in_force.contains_key(&policies) || self.in_force.contains_key(&policies.of_role())
    }

    /// Returns the errors about the pauses of a group.
    fn errors(&self, group: &SubscriptionGroup) -> Vec<String> {
        let pauses = self.in_force.iter().filter(|(policies, (name, _))| concerns(policies, name, group));
        pauses.map(|(_, (name, _))| error(name)).collect()
    }

    /// Begins a pause, of the whole role if there are many. Returns what is paused, and the pause
    /// that has ended to make room.
    fn begin(&mut self, policies: SlowPolicies, name: TableName) -> (SlowPolicies, Option<(SlowPolicies, TableName)>) {
        let mut end = self.known.begin(policies.clone());
        let is_same_role = |other: &SlowPolicies| {
            (other.table, &other.role) == (policies.table, &policies.role) && other.person.is_some()
        };
        let slow = self.known.known(is_same_role);
        let paused = if slow.len() > MAX_SLOW_PERSONS {
            slow.iter().for_each(|of_person| self.known.forget(of_person));
            self.in_force.retain(|paused, _| !is_same_role(paused));
            end = self.known.begin(policies.of_role());
            policies.of_role()
        } else {
            policies
        };
        let first = self.in_force.iter().min_by_key(|(_, (_, end))| *end).map(|(paused, _)| paused.clone());
        let ended = first
            .filter(|_| self.in_force.len() >= MAX_IN_FORCE)
            .and_then(|first| self.in_force.swap_remove_entry(&first))
            .map(|(policies, (name, _))| (policies, name));
        self.in_force.insert(paused.clone(), (name, end));
        (paused, ended)
    }
}

/// Returns the text for the channels at the start of a pause.
fn error(TableName { schema, table }: &TableName) -> String {
    format!("Changes of {schema}.{table} are paused: its policies take too long")
}

/// Returns true if a group receives no inserts and updates of the table in a pause.
fn concerns(policies: &SlowPolicies, name: &TableName, group: &SubscriptionGroup) -> bool {
    let reader = &*group.key.reader;
    let of_reader = SlowPolicies::of_reader(policies.table, reader);
    let names_table = || {
        group.key.entries.iter().any(|entry| {
            entry.action != Some(ChangeAction::Delete)
                && entry.schema.matches(&name.schema)
                && entry.table.matches(&name.table)
        })
    };
    policies.role == reader.role && (policies.person.is_none() || *policies == of_reader) && names_table()
}

impl Registry {
    /// Drops the candidates about which a paused policy would have to decide.
    pub fn drop_paused(&self, changes: &[CommittedChange], candidates: &mut [Candidate]) {
        let state = self.state();
        for candidate in candidates.iter_mut().filter(|candidate| candidate.is_undecided()) {
            let Some(change) = changes.get(candidate.change) else { continue };
            let table = change.table.table.oid;
            if change.action() != ChangeAction::Delete && state.pauses.contain(table, candidate.reader()) {
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
            match answer {
                Ok(_) => state.pauses.known.forget(&SlowPolicies::of_reader(*table, reader)),
                Err(failure) if failure.has_code(CANCELED) => {
                    tracing::warn!(role = &*reader.role, schema, table = name, "changes of a slow policy are paused");
                    state.pause(*table, reader, TableName { schema: schema.into(), table: name.into() });
                }
                Err(_) => {}
            }
        }
    }

    /// Ends the pauses that are over, and reports it to the channels. Returns the end of the next
    /// one.
    pub fn end_pauses(&self) -> Option<Instant> {
        let mut state = self.state();
        let now = Instant::now();
        let ended: Vec<_> = state.pauses.in_force.extract_if(.., |_, (_, end)| *end <= now).collect();
        for (policies, (name, _)) in ended {
            tracing::info!(role = &*policies.role, schema = &*name.schema, table = &*name.table, "a pause has ended");
            state.report_paused(&policies, &name);
        }
        state.pauses.in_force.values().map(|(_, end)| *end).min()
    }

    /// Reports to the channels of a group that changes may have been missed.
    pub fn report(&self, group: &SubscriptionGroup) {
        self.report_until(group, u64::MAX);
    }

    /// As [`report`](Self::report), to the channels whose subscription has at most the number
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

    /// Begins a pause, and reports it to the channels that were not paused before.
    fn pause(&mut self, table: u32, reader: &ChangeReader, name: TableName) {
        // Several reads of one person, or of many, may have been too slow together
        if self.pauses.contain(table, reader) {
            return;
        }
        let groups = self.groups.values().filter(|group| !self.pauses.contain(table, &group.key.reader));
        let groups: Vec<_> = groups.cloned().collect();
        let (paused, ended) = self.pauses.begin(SlowPolicies::of_reader(table, reader), name.clone());
        for group in groups.iter().filter(|group| concerns(&paused, &name, group)) {
            group.send_system(EXTENSION, "error", &error(&name));
        }
        if let Some((policies, name)) = ended {
            self.report_paused(&policies, &name);
        }
    }

    /// Reports to the channels that were paused.
    fn report_paused(&self, policies: &SlowPolicies, name: &TableName) {
        for group in self.groups.values().filter(|group| concerns(policies, name, group)) {
            group.for_each_until(u64::MAX, |subscriber| self.report_to(subscriber, group));
        }
    }
}
