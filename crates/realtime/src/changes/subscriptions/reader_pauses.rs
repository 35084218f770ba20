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

use super::condition_budgets::FilterOwner;
use super::group::SubscriptionGroup;
use crate::changes::entries::entry::ChangeAction;
use crate::changes::entries::validate::TableName;
use crate::changes::reads::pauses::{PAUSE, Pauses};
use crate::changes::reads::role_reads::ChangeReader;

/// The number of slow persons of a table and a role above which the role is paused.
const MAX_SLOW_PERSONS: usize = 32;
/// The largest number of pauses in force. The one that ends first makes room for a further one.
const MAX_IN_FORCE: usize = 10_000;

/// The policies of a table, for a person or for everyone with a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::changes) struct SlowPolicies {
    pub table: u32,
    role: Box<str>,
    /// The person, or the claims of a reader without a subject. `None`: everyone.
    person: Option<Arc<str>>,
}

impl SlowPolicies {
    /// Returns the policies of a table for the person of a reader.
    pub fn of_reader(table: u32, reader: &ChangeReader) -> Self {
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
pub(in crate::changes) enum PausedWork {
    Policies(SlowPolicies),
    Filters(FilterOwner),
}

/// A pause that has not ended.
#[derive(Debug, Clone)]
pub(in crate::changes) struct PauseInForce {
    work: PausedWork,
    /// The table of the policies, under its name when the pause began.
    pub name: Option<TableName>,
}

impl PauseInForce {
    /// Returns the text for the channels.
    pub fn error(&self) -> String {
        match &self.name {
            Some(TableName { schema, table }) => {
                format!("Changes of {schema}.{table} are paused: its policies take too long")
            }
            None => "Changes for filters that the database evaluates are paused: they take too long".to_owned(),
        }
    }

    /// Returns true if it is about changes of a group. Policies do not decide about deletions.
    pub fn concerns(&self, group: &SubscriptionGroup) -> bool {
        let reader = &*group.key.reader;
        match (&self.work, &self.name) {
            (PausedWork::Policies(policies), Some(name)) => {
                let is_reader =
                    || policies.person.is_none() || *policies == SlowPolicies::of_reader(policies.table, reader);
                let mut entries = group.key.entries.iter();
                policies.role == reader.role
                    && is_reader()
                    && entries.any(|entry| {
                        entry.action != Some(ChangeAction::Delete) && entry.names(&name.schema, &name.table)
                    })
            }
            (PausedWork::Filters(owner), _) => group.filter_owner() == *owner && group.needs_database(),
            (PausedWork::Policies(_), None) => false,
        }
    }
}

/// The pauses of readers.
#[derive(Debug)]
pub(in crate::changes) struct ReaderPauses {
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

    /// Returns true while the policies of a table are paused for a reader.
    pub fn contain_policies(&self, table: u32, reader: &ChangeReader) -> bool {
        if self.in_force.is_empty() {
            return false;
        }
        let policies = SlowPolicies::of_reader(table, reader);
        let of_role = PausedWork::Policies(policies.of_role());
        self.in_force.contains_key(&PausedWork::Policies(policies)) || self.in_force.contains_key(&of_role)
    }

    /// Returns true while the filters of an owner are paused.
    pub fn contain_filters(&self, owner: FilterOwner) -> bool {
        !self.in_force.is_empty() && self.in_force.contains_key(&PausedWork::Filters(owner))
    }

    /// Returns true if there was a pause that is not forgotten.
    pub fn are_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// Removes the earlier pauses of policies that were quick.
    pub fn remove(&mut self, policies: SlowPolicies) {
        self.known.remove(&PausedWork::Policies(policies));
    }

    /// Ends the pauses that are over, and returns them.
    pub fn take_ended(&mut self, now: Instant) -> Vec<PauseInForce> {
        let ended = self.in_force.extract_if(.., |_, (_, end)| *end <= now);
        ended.map(|(_, (pause, _))| pause).collect()
    }

    /// Returns the end of the pause that ends next.
    pub fn next_end(&self) -> Option<Instant> {
        self.in_force.values().map(|(_, end)| *end).min()
    }

    /// Returns the errors about the pauses of a group.
    pub fn errors(&self, group: &SubscriptionGroup) -> Vec<String> {
        let pauses = self.in_force.values().filter(|(pause, _)| pause.concerns(group));
        pauses.map(|(pause, _)| pause.error()).collect()
    }

    /// Begins a pause of policies, of the whole role if there are many, or of filters. Returns it,
    /// and the one that has ended to make room.
    pub fn begin(&mut self, work: PausedWork, name: Option<TableName>) -> (PauseInForce, Option<PauseInForce>) {
        let (mut work, mut end) = (work.clone(), self.known.begin(work));
        if let PausedWork::Policies(policies) = &work {
            let slow = self.known.known(|other| policies.is_person_of_role(other));
            if slow.len() > MAX_SLOW_PERSONS {
                slow.iter().for_each(|of_person| self.known.remove(of_person));
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
