//! The subscriptions in memory: by table, and grouped so that subscribers of the same content share
//! the bytes of their messages.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;

use super::group::{EntryTarget, GroupKey, SubscriptionGroup, TargetKey};
use super::reader_pauses::ReaderPauses;
use crate::changes::entries::column_test::{CompiledFilter, FieldValue};
use crate::changes::entries::entry::{ChangeAction, ChangesEntry, NamePattern};
use crate::changes::entries::validate::{TableName, ValidEntry};
use crate::changes::reads::role_reads::ChangeReader;
use crate::rooms::Subscriber;

type Targets = IndexMap<TargetKey, Arc<EntryTarget>>;

/// The entries for one table.
#[derive(Debug, Default)]
struct TableTargets {
    all: Targets,
    /// Those that have to be looked at for each change.
    unindexed: Targets,
    /// Those that need a column to have a certain value, by column and value.
    by_value: HashMap<Box<str>, HashMap<Box<str>, Targets>>,
    /// Entries whose filter does not fit the table.
    unfit: Vec<(Arc<SubscriptionGroup>, usize)>,
    /// The number of entries by role.
    roles: HashMap<Box<str>, usize>,
}

impl TableTargets {
    fn insert(&mut self, target: Arc<EntryTarget>) {
        let key = target.key();
        match target.filter.index_values() {
            Some((column, values)) => {
                let by_value = self.by_value.entry(column.into()).or_default();
                for value in values {
                    by_value.entry(value.clone()).or_default().insert(key, Arc::clone(&target));
                }
            }
            None => {
                self.unindexed.insert(key, Arc::clone(&target));
            }
        }
        *self.roles.entry(target.group.key.reader.role.clone()).or_default() += 1;
        self.all.insert(key, target);
    }

    fn remove(&mut self, key: TargetKey) {
        self.unfit.retain(|(group, number)| (group.id(), *number) != key);
        let Some(target) = self.all.swap_remove(&key) else { return };
        if let MapEntry::Occupied(mut role) = self.roles.entry(target.group.key.reader.role.clone()) {
            *role.get_mut() -= 1;
            if *role.get() == 0 {
                role.remove();
            }
        }
        let Some((column, values)) = target.filter.index_values() else {
            self.unindexed.swap_remove(&key);
            return;
        };
        let Some(by_value) = self.by_value.get_mut(column) else { return };
        for value in values {
            if let MapEntry::Occupied(mut targets) = by_value.entry(value.clone()) {
                targets.get_mut().swap_remove(&key);
                if targets.get().is_empty() {
                    targets.remove();
                }
            }
        }
        if by_value.is_empty() {
            self.by_value.remove(column);
        }
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.unfit.is_empty()
    }
}

/// A new reader of a subscription, which waits for the end of a delivery.
#[derive(Debug)]
pub(in crate::changes) struct PendingRenewal {
    pub reader: Arc<ChangeReader>,
    pub subscriber: Arc<Subscriber>,
}

#[derive(Debug, Default)]
pub(in crate::changes) struct RegistryState {
    pub(in crate::changes) groups: HashMap<GroupKey, Arc<SubscriptionGroup>>,
    /// The group of each subscription, by its number.
    pub(in crate::changes) subscriptions: HashMap<u64, Arc<SubscriptionGroup>>,
    /// The new readers that wait for the end of the delivery in progress, by subscription.
    pub(in crate::changes) renewals: HashMap<u64, PendingRenewal>,
    pub(in crate::changes) is_delivering: bool,
    pub(in crate::changes) pauses: ReaderPauses,
    /// By schema and name. Tables that only wildcards name appear with their first change.
    tables: HashMap<Box<str>, HashMap<Box<str>, TableTargets>>,
    /// Entries that name no table, by group, with their filters for the known tables.
    wildcards: IndexMap<TargetKey, Wildcard>,
    pub(in crate::changes) next: u64,
    /// Changes with every new group.
    generation: u64,
}

#[derive(Debug)]
struct Wildcard {
    group: Arc<SubscriptionGroup>,
    filters: HashMap<TableName, Arc<CompiledFilter>>,
}

/// The subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<RegistryState>);

/// A subscription that can be removed.
#[derive(Debug)]
pub(crate) struct SubscriptionRegistration {
    number: u64,
}

impl SubscriptionRegistration {
    pub(in crate::changes) fn number(&self) -> u64 {
        self.number
    }
}

impl Registry {
    /// Returns no subscriptions. The first pause of a reader will have this length.
    pub fn with_pause(pause: Duration) -> Self {
        Self(Mutex::new(RegistryState { pauses: ReaderPauses::new(pause), ..RegistryState::default() }))
    }

    /// Adds a subscription, and reports it to its channel. The entries are those of the key,
    /// checked, in the same order.
    pub fn insert(
        &self,
        key: GroupKey,
        entries: &[ValidEntry],
        subscriber: Arc<Subscriber>,
    ) -> SubscriptionRegistration {
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        let group = match state.groups.get(&key) {
            Some(group) => Arc::clone(group),
            None => state.add_group(key, entries.into()),
        };
        group.members().insert(number, Arc::clone(&subscriber));
        state.report_to(&subscriber, &group);
        state.subscriptions.insert(number, group);
        SubscriptionRegistration { number }
    }

    /// Removes a subscription. It receives nothing after this.
    pub fn remove(&self, registration: &SubscriptionRegistration) {
        let mut state = self.state();
        state.renewals.remove(&registration.number);
        let Some(group) = state.subscriptions.remove(&registration.number) else { return };
        group.members().swap_remove(&registration.number);
        state.remove_if_empty(&group);
    }

    /// Returns true if an entry names a table.
    pub fn names(&self, (schema, table): (&str, &str)) -> bool {
        self.state().table(schema, table).is_some()
    }

    /// Returns a number that is another one after every new group of subscriptions.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Returns the roles of the entries for a table.
    pub fn roles(&self, (schema, table): (&str, &str)) -> Vec<Box<str>> {
        let mut state = self.state();
        state.table(schema, table).map(|targets| targets.roles.keys().cloned().collect()).unwrap_or_default()
    }

    /// Returns the number of the last subscription. Later ones have higher numbers.
    pub fn last_number(&self) -> u64 {
        self.state().next
    }

    /// Returns the entries for a change whose conditions hold, apart from those that PostgreSQL has
    /// to evaluate. `field` returns the value of a column.
    pub fn matching<'a>(
        &self,
        (schema, table): (&str, &str),
        action: ChangeAction,
        field: impl Fn(&str) -> FieldValue<'a>,
    ) -> Vec<Arc<EntryTarget>> {
        let mut state = self.state();
        let Some(targets) = state.table(schema, table) else { return Vec::new() };
        let indexed = targets.by_value.iter().filter_map(|(column, by_value)| match field(column) {
            FieldValue::Text(text) => by_value.get(text),
            FieldValue::Absent | FieldValue::Null => None,
        });
        let candidates = targets.unindexed.values().chain(indexed.flat_map(Targets::values));
        candidates.filter(|target| target.accepts(action) && target.holds_locally(&field)).cloned().collect()
    }

    /// Returns all entries for a kind of change, whatever their conditions.
    pub fn audience(&self, (schema, table): (&str, &str), action: ChangeAction) -> Vec<Arc<EntryTarget>> {
        let mut state = self.state();
        let Some(targets) = state.table(schema, table) else { return Vec::new() };
        targets.all.values().filter(|target| target.accepts(action)).cloned().collect()
    }

    /// Returns the number of entries for a table.
    pub fn audience_size(&self, (schema, table): (&str, &str)) -> usize {
        self.state().table(schema, table).map_or(0, |targets| targets.all.len())
    }

    /// Returns the entries whose filters do not fit the types of a table's columns, or were not yet
    /// prepared for it. `type_of` returns the type of a column. `again`: also those that did not
    /// fit the table before.
    pub fn outdated(
        &self,
        (schema, table): (&str, &str),
        type_of: impl Fn(&str) -> Option<u32>,
        again: bool,
    ) -> Vec<OutdatedEntry> {
        let mut state = self.state();
        let Some(targets) = state.table(schema, table) else { return Vec::new() };
        // They stay where they are until they have a filter: their preparation may fail
        let unfit = if again { targets.unfit.clone() } else { Vec::new() };
        let Some(targets) = state.tables.get(schema).and_then(|tables| tables.get(table)) else { return Vec::new() };
        let is_outdated = |target: &&Arc<EntryTarget>| {
            target.filter.tests.iter().any(|test| type_of(&test.column) != Some(test.type_oid))
        };
        let changed = targets.all.values().filter(is_outdated).map(|target| (Arc::clone(&target.group), target.entry));
        let unprepared = state.wildcards.iter().filter_map(|((_, number), wildcard)| {
            let entry = &wildcard.group.key.entries[*number];
            let key = (wildcard.group.id(), *number);
            let is_missing = !entry.conditions.is_empty()
                && entry.names(schema, table)
                && !targets.all.contains_key(&key)
                && !targets.unfit.iter().any(|(group, number)| (group.id(), *number) == key);
            is_missing.then(|| (Arc::clone(&wildcard.group), *number))
        });
        changed
            .chain(unprepared)
            .chain(unfit.iter().cloned())
            .map(|(group, entry)| OutdatedEntry { group, entry })
            .collect()
    }

    /// Replaces the filter of an entry for a table. `None`: the entry does not fit the table, whose
    /// changes it does not receive. Returns false if the entry did not fit the table before.
    pub fn refresh(
        &self,
        (schema, table): (&str, &str),
        entry: &OutdatedEntry,
        filter: Option<Arc<CompiledFilter>>,
    ) -> bool {
        let mut state = self.state();
        let group = &entry.group;
        // It may have been removed meanwhile
        if state.groups.get(&group.key).is_none_or(|known| known.id() != group.id()) {
            return true;
        }
        let Some(targets) = state.table(schema, table) else { return true };
        let key = (group.id(), entry.entry);
        let did_fit = !targets.unfit.iter().any(|(group, number)| (group.id(), *number) == key);
        targets.remove(key);
        match filter {
            Some(filter) => {
                targets.insert(Arc::new(EntryTarget { group: Arc::clone(group), entry: entry.entry, filter }))
            }
            None => targets.unfit.push((Arc::clone(group), entry.entry)),
        }
        did_fit
    }

    /// Returns all groups.
    pub fn groups(&self) -> Vec<Arc<SubscriptionGroup>> {
        self.state().groups.values().cloned().collect()
    }

    /// Ends the subscriptions of a group up to the number `last`. Returns their channels.
    pub fn end_until(&self, group: &Arc<SubscriptionGroup>, last: u64) -> Vec<Arc<Subscriber>> {
        let mut state = self.state();
        let ended: Vec<_> = group.members().extract_if(.., |number, _| *number <= last).collect();
        for (number, _) in &ended {
            state.subscriptions.remove(number);
            state.renewals.remove(number);
        }
        state.remove_if_empty(group);
        ended.into_iter().map(|(_, subscriber)| subscriber).collect()
    }

    pub(in crate::changes) fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry whose filter has to be prepared again.
#[derive(Debug, Clone)]
pub(crate) struct OutdatedEntry {
    pub group: Arc<SubscriptionGroup>,
    pub entry: usize,
}

impl OutdatedEntry {
    /// Returns the entry.
    pub fn entry(&self) -> &Arc<ChangesEntry> {
        &self.group.key.entries[self.entry]
    }
}

impl RegistryState {
    pub(in crate::changes) fn add_group(&mut self, key: GroupKey, valid: Arc<[ValidEntry]>) -> Arc<SubscriptionGroup> {
        self.next += 1;
        self.generation += 1;
        let group = Arc::new(SubscriptionGroup::new(self.next, key.clone(), Arc::clone(&valid)));
        self.groups.insert(key, Arc::clone(&group));
        for (number, valid) in valid.iter().enumerate() {
            match (&valid.entry.schema, &valid.entry.table) {
                (NamePattern::Exactly(schema), NamePattern::Exactly(table)) => {
                    let name = TableName { schema: schema.clone(), table: table.clone() };
                    let filter = valid.filters.get(&name).cloned().unwrap_or_default();
                    // So that wildcards are in the list too
                    if self.table(schema, table).is_none() {
                        self.tables.entry(schema.clone()).or_default().entry(table.clone()).or_default();
                    }
                    if let Some(targets) = self.table(schema, table) {
                        targets.insert(Arc::new(EntryTarget { group: Arc::clone(&group), entry: number, filter }));
                    }
                }
                _ => {
                    let wildcard = Wildcard { group: Arc::clone(&group), filters: valid.filters.clone() };
                    for (schema, tables) in &mut self.tables {
                        for (table, targets) in tables {
                            add_wildcard(targets, &wildcard, number, schema, table);
                        }
                    }
                    self.wildcards.insert((group.id(), number), wildcard);
                }
            }
        }
        group
    }

    /// Removes a group without members.
    pub(in crate::changes) fn remove_if_empty(&mut self, group: &SubscriptionGroup) {
        // A group that was emptied before is not in the map any more, but its successor may be
        if group.members().is_empty() && self.groups.get(&group.key).is_some_and(|known| known.id() == group.id()) {
            self.remove_group(group);
        }
    }

    fn remove_group(&mut self, group: &SubscriptionGroup) {
        self.groups.remove(&group.key);
        for (number, entry) in group.key.entries.iter().enumerate() {
            let key = (group.id(), number);
            self.wildcards.swap_remove(&key);
            match (&entry.schema, &entry.table) {
                (NamePattern::Exactly(schema), NamePattern::Exactly(table)) => {
                    let Some(tables) = self.tables.get_mut(schema) else { continue };
                    let Some(targets) = tables.get_mut(table) else { continue };
                    targets.remove(key);
                    if targets.is_empty() {
                        tables.remove(table);
                    }
                }
                _ => {
                    for tables in self.tables.values_mut() {
                        tables.values_mut().for_each(|targets| targets.remove(key));
                        tables.retain(|_, targets| !targets.is_empty());
                    }
                }
            }
        }
        self.tables.retain(|_, tables| !tables.is_empty());
    }

    /// Returns the entries for a table, if there are any.
    fn table(&mut self, schema: &str, table: &str) -> Option<&mut TableTargets> {
        let is_known = self.tables.get(schema).is_some_and(|tables| tables.contains_key(table));
        if !is_known {
            let mut targets = TableTargets::default();
            let mut is_named = false;
            for ((_, number), wildcard) in &self.wildcards {
                is_named |= add_wildcard(&mut targets, wildcard, *number, schema, table);
            }
            if !is_named {
                return None;
            }
            self.tables.entry(schema.into()).or_default().insert(table.into(), targets);
        }
        self.tables.get_mut(schema)?.get_mut(table)
    }
}

/// Adds an entry without a table to the entries of a table. Returns true if it names the table.
fn add_wildcard(targets: &mut TableTargets, wildcard: &Wildcard, number: usize, schema: &str, table: &str) -> bool {
    let entry = &wildcard.group.key.entries[number];
    if !entry.names(schema, table) {
        return false;
    }
    let filter = if entry.conditions.is_empty() {
        Some(Arc::default())
    } else {
        wildcard.filters.get(&TableName { schema: schema.into(), table: table.into() }).cloned()
    };
    if let Some(filter) = filter {
        targets.insert(Arc::new(EntryTarget { group: Arc::clone(&wildcard.group), entry: number, filter }));
    }
    true
}
