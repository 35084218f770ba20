//! Groups of subscriptions that receive the same messages, and their entries for tables.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;

use super::condition_budgets::FilterOwner;
use crate::changes::entries::column_test::{CompiledFilter, FieldValue, LocalTest, Test};
use crate::changes::entries::entry::{ChangeAction, ChangeMessageForm, ChangesEntry};
use crate::changes::entries::validate::ValidEntry;
use crate::changes::reads::role_reads::ChangeReader;
use crate::rooms::Subscriber;
use crate::socket::DeferredWakes;
use crate::socket::frame::{Frame, Version};

/// The properties of all subscriptions of a group: everything that a message depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub reader: Arc<ChangeReader>,
    /// The topic without its prefix.
    pub topic: Arc<str>,
    pub version: Version,
    pub form: ChangeMessageForm,
    pub entries: Arc<[Arc<ChangesEntry>]>,
}

/// Subscriptions that receive the same messages.
#[derive(Debug)]
pub(crate) struct SubscriptionGroup {
    id: u64,
    pub key: GroupKey,
    /// The entries of the key, as the database has accepted them for the role.
    pub(in crate::changes) valid: Arc<[ValidEntry]>,
    /// By the number of the subscription.
    members: Mutex<IndexMap<u64, Arc<Subscriber>>>,
}

impl SubscriptionGroup {
    /// Returns a group without members. `valid` are the entries of the key, checked, in the same
    /// order; no other group has the number `id`.
    pub fn new(id: u64, key: GroupKey, valid: Arc<[ValidEntry]>) -> Self {
        Self { id, key, valid, members: Mutex::default() }
    }

    /// Returns a number that no other group has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the one whose filters those of the group are.
    pub fn filter_owner(&self) -> FilterOwner {
        self.key.reader.person.clone().map_or(FilterOwner::Group(self.id), FilterOwner::Person)
    }

    /// Returns true if PostgreSQL has to evaluate conditions of the group.
    pub fn needs_database(&self) -> bool {
        self.valid.iter().flat_map(|entry| entry.filters.values()).any(|filter| filter.needs_database())
    }

    /// Sends frames to every channel that is subscribed now with at most the number `last`, and
    /// leaves the wake-ups of the sockets to `wakes`. Returns the number of deliveries. A channel
    /// that has unsubscribed receives nothing any more.
    pub fn send(&self, frames: &[Frame], last: u64, wakes: &mut DeferredWakes) -> usize {
        let mut channels = 0;
        self.for_each_until(last, |member| {
            member.send_all(frames, wakes);
            channels += 1;
        });
        channels * frames.len()
    }

    /// Sends a `system` message to every channel that is subscribed now.
    pub fn send_system(&self, extension: &str, status: &str, message: &str) {
        self.members().values().for_each(|member| member.send_system(extension, status, message));
    }

    /// Calls `each` with every channel whose subscription has at most the number `last`.
    pub fn for_each_until(&self, last: u64, mut each: impl FnMut(&Subscriber)) {
        let members = self.members();
        members.iter().filter(|(number, _)| **number <= last).for_each(|(_, member)| each(member));
    }

    pub(in crate::changes) fn members(&self) -> MutexGuard<'_, IndexMap<u64, Arc<Subscriber>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry of a group, for one table.
#[derive(Debug)]
pub(crate) struct EntryTarget {
    pub group: Arc<SubscriptionGroup>,
    /// The number of the entry in its group.
    pub entry: usize,
    pub filter: Arc<CompiledFilter>,
}

impl EntryTarget {
    /// Returns the entry.
    pub fn entry(&self) -> &Arc<ChangesEntry> {
        &self.group.key.entries[self.entry]
    }

    /// Returns the group and the number of the entry.
    pub fn key(&self) -> TargetKey {
        (self.group.id, self.entry)
    }

    /// Returns true if the entry is about changes of a kind.
    pub fn accepts(&self, action: ChangeAction) -> bool {
        self.entry().action.is_none_or(|only| only == action)
    }

    /// Returns true if the conditions that the server evaluates hold.
    pub fn holds_locally<'a>(&self, field: &impl Fn(&str) -> FieldValue<'a>) -> bool {
        self.filter.tests.iter().all(|test| match &test.test {
            Test::Local(local) => LocalTest::holds(local, field(&test.column)),
            Test::Database(database) => match field(&test.column) {
                FieldValue::Absent => false,
                FieldValue::Null => database.accepts_null,
                FieldValue::Text(_) => true,
            },
        })
    }
}

/// The group and the number of an entry.
pub(in crate::changes) type TargetKey = (u64, usize);
