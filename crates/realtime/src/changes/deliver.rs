//! The way of committed changes to the channels: match, authorise, render, send.
//!
//! One task takes all batches that wait, so that changes reach every channel in the order of their
//! commits. While it works on them, the next ones gather. PostgreSQL is asked once for each set of
//! questions: which conditions hold, by role and expression; which rows are visible, by reader and
//! table. All questions are asked at the same time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use indexmap::IndexMap;
use portico_database::{Database, DatabaseError, RoleProfile};
use tokio::sync::mpsc;

use super::access::{RowKey, TableAccess, role_access, row_access};
use super::column_test::{FieldValue, Test};
use super::committed_change::CommittedChange;
use super::database_tests::{SlowConditions, TestQuestion, failing_tests};
use super::entry::{ChangeAction, ChangesEntry};
use super::event::{ChangeEventError, ChangeMessages, EventContent, MessageTarget};
use super::registry::{EntryTarget, Registry};
use super::role_reads::{ReadFailure, RoleReads, retrying};
use super::system_message::{EXTENSION, SUBSCRIBED};
use super::validate::{SubscribeError, TableName, ValidEntry, Validator};
use super::verdict::{
    AccessAnswers, AccessQuestion, AccessQuestions, Candidate, CandidateOutcome, ask, decide, is_keyless,
};
use crate::decode::{DescribedTable, TransactionId};
use crate::meter::Meter;
use crate::settings::ChangesSettings;
use crate::stream::{ChangeBatch, wait_until_visible};

/// The largest number of batches that are taken at once.
const MAX_BATCHES: usize = 64;
/// The largest number of changes that are worked on at once.
const MAX_CHANGES: usize = 1_000;
/// The largest size of the changes that are worked on at once, in bytes; a single change may be
/// larger.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The largest number of reads that wait at once.
const MAX_READS: usize = 128;
/// The role that renders values. It has no right that the project lacks.
const RENDERER: RoleProfile = RoleProfile::acting_as("supabase_realtime_admin", "pg_catalog, pg_temp");

/// Delivers changes.
#[derive(Debug)]
pub(crate) struct ChangeDelivery {
    pub registry: Arc<Registry>,
    pub reads: RoleReads,
    pub validator: Validator,
    pub database: Database,
    pub settings: ChangesSettings,
    /// Counts the deliveries.
    pub meter: Arc<Meter>,
    pub max_per_second: Option<u32>,
}

/// The state that the task keeps between batches.
#[derive(Debug, Default)]
struct Memory {
    /// The description of each table for which the filters were prepared, and the generation of the
    /// subscriptions then.
    prepared: HashMap<u32, (Arc<DescribedTable>, u64)>,
    /// The roles that could read the whole primary key of a table when it was last looked at.
    key_readers: HashSet<(u32, Box<str>)>,
    slow: SlowConditions,
}

/// Returns the number of changes that are worked on at once: a bounded number and size, and never
/// two descriptions of one table. What a role may read is asked for one description, and must not
/// be applied to the columns or keys of another.
fn slice_end(changes: &[CommittedChange]) -> usize {
    let mut tables: HashMap<u32, &Arc<DescribedTable>> = HashMap::new();
    let mut bytes = 0;
    for (number, change) in changes.iter().enumerate() {
        bytes += change.size();
        let known = *tables.entry(change.table.table.oid).or_insert(&change.table);
        let is_other = !Arc::ptr_eq(known, &change.table);
        if number > 0 && (number == MAX_CHANGES || bytes > MAX_BYTES || is_other) {
            return number;
        }
    }
    changes.len()
}

impl ChangeDelivery {
    /// Delivers the batches until their sender is dropped.
    pub async fn run(self, mut batches: mpsc::Receiver<ChangeBatch>) {
        let mut memory = Memory::default();
        let mut waiting = Vec::new();
        while batches.recv_many(&mut waiting, MAX_BATCHES).await > 0 {
            if waiting.iter().any(|batch: &ChangeBatch| batch.after_gap) {
                self.registry
                    .for_each_until(u64::MAX, |subscriber| subscriber.send_system(EXTENSION, "ok", SUBSCRIBED));
            }
            let transactions: Vec<TransactionId> = waiting.iter().map(|batch| batch.transaction).collect();
            let changes = waiting.drain(..).flat_map(|batch: ChangeBatch| {
                let commit_time = batch.commit_time;
                batch.changes.into_iter().map(move |change| CommittedChange {
                    commit_time,
                    table: change.table,
                    change: change.change,
                })
            });
            let mut wanted: Vec<CommittedChange> =
                changes.filter(|change| self.registry.names(change.table_name())).collect();
            if self.meter.exceeds(self.max_per_second) {
                tracing::warn!(
                    error_code = "MessagePerSecondRateLimitReached",
                    changes = wanted.len(),
                    "changes are discarded because more are delivered each second than the limit allows"
                );
                continue;
            }
            if !wanted.is_empty()
                && let Err(error) = self.wait_until_visible(&transactions).await
            {
                tracing::error!(error = %error, changes = wanted.len(), "changes are discarded: who may read them is not known");
                self.registry
                    .for_each_until(u64::MAX, |subscriber| subscriber.send_system(EXTENSION, "ok", SUBSCRIBED));
                continue;
            }
            while !wanted.is_empty() {
                let rest = wanted.split_off(slice_end(&wanted));
                self.deliver(&mut memory, &wanted).await;
                wanted = rest;
            }
        }
    }

    /// Waits until reads find what the transactions have written. Nothing about their changes is read
    /// before, neither a permission nor a condition.
    async fn wait_until_visible(&self, transactions: &[TransactionId]) -> Result<(), ReadFailure> {
        let wait = || {
            async {
                let unavailable = |error: DatabaseError| ReadFailure::Unavailable(error.to_string().into());
                let client = self.database.login_client().await.map_err(unavailable)?;
                wait_until_visible(&client, transactions).await.map_err(|error| unavailable(error.into()))
            }
            .boxed()
        };
        retrying(wait).await
    }

    async fn deliver(&self, memory: &mut Memory, changes: &[CommittedChange]) {
        let _in_progress = self.registry.begin_delivery();
        self.prepare_filters(memory, changes).await;
        let mut candidates = self.matching(&mut memory.slow, changes).await;
        let answers = self.authorise(memory, changes, &candidates).await;
        decide(&self.settings, changes, &mut candidates, &answers);
        self.add_unauthorized(memory, changes, &mut candidates, &answers);
        self.send(changes, candidates).await;
    }

    /// Prepares the filters of tables whose columns have changed, or that no entry names.
    async fn prepare_filters(&self, memory: &mut Memory, changes: &[CommittedChange]) {
        let generation = self.registry.generation();
        for change in changes {
            let table = &change.table;
            let known = memory.prepared.get(&table.table.oid);
            if known.is_some_and(|(known, at)| Arc::ptr_eq(known, table) && *at == generation) {
                continue;
            }
            let name = change.table_name();
            // What did not fit the table before may fit it now
            let again = known.is_none_or(|(known, _)| !Arc::ptr_eq(known, table));
            memory.prepared.insert(table.table.oid, (Arc::clone(table), generation));
            let type_of = |name: &str| {
                table.table.columns.iter().find(|column| *column.name == *name).map(|column| column.type_oid)
            };
            for outdated in self.registry.outdated(name, type_of, again) {
                let role = &*outdated.group.key.reader.role;
                let entry = Arc::new(outdated.entry().for_table(name.0, name.1));
                let validated = retrying(|| self.validate(role, Arc::clone(&entry)).boxed()).await;
                let filter = match validated {
                    Ok(Ok(valid)) => {
                        let name = TableName { schema: name.0.into(), table: name.1.into() };
                        Some(valid.filters.get(&name).cloned().unwrap_or_default())
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(error = %error, role, "an entry does not fit its table any more");
                        None
                    }
                    Err(error) => {
                        tracing::warn!(error = %error, role, "the filter of an entry could not be prepared");
                        // Tried again with the next change
                        memory.prepared.remove(&table.table.oid);
                        continue;
                    }
                };
                self.registry.refresh(name, &outdated, filter);
            }
        }
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

    /// Returns the entries whose conditions hold, for all changes in their order.
    async fn matching(&self, slow: &mut SlowConditions, changes: &[CommittedChange]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut questions: IndexMap<TestQuestion, Vec<usize>> = IndexMap::new();
        for (number, change) in changes.iter().enumerate() {
            let (name, action) = (change.table_name(), change.action());
            if is_keyless(change) {
                let verdict = CandidateOutcome::Sent(EventContent::Error(ChangeEventError::NoPrimaryKey));
                let audience = self.registry.audience(name, action).into_iter();
                candidates.extend(audience.map(|target| Candidate {
                    change: number,
                    target,
                    verdict: verdict.clone(),
                }));
                continue;
            }
            let mut values = HashMap::new();
            let fields = change.fields();
            let field = |name: &str| fields.get(name).copied().unwrap_or(FieldValue::Absent);
            for target in self.registry.matching(name, action, field) {
                for test in &target.filter.tests {
                    let Test::Database(database) = &test.test else { continue };
                    let value = shared_value(&mut values, &test.column, field(&test.column));
                    let role = target.group.key.reader.role.clone();
                    let question = TestQuestion { role, test: database.clone(), value };
                    questions.entry(question).or_default().push(candidates.len());
                }
                candidates.push(Candidate { change: number, target, verdict: CandidateOutcome::Undecided });
            }
        }
        let asked: Vec<TestQuestion> = questions.keys().cloned().collect();
        for failing in failing_tests(&self.reads, slow, asked).await {
            for candidate in questions.get(&failing).into_iter().flatten() {
                if let Some(candidate) = candidates.get_mut(*candidate) {
                    candidate.verdict = CandidateOutcome::Dropped;
                }
            }
        }
        candidates
    }

    /// Asks PostgreSQL what the readers of the candidates may read.
    async fn authorise(&self, memory: &Memory, changes: &[CommittedChange], candidates: &[Candidate]) -> AccessAnswers {
        let tables: HashMap<u32, &Arc<DescribedTable>> =
            changes.iter().map(|change| (change.table.table.oid, &change.table)).collect();
        let mut questions: AccessQuestions = IndexMap::new();
        for candidate in candidates.iter().filter(|candidate| candidate.is_undecided()) {
            let Some(change) = changes.get(candidate.change) else { continue };
            let has_row_security = change.table.table.has_row_security;
            ask(&mut questions, change, candidate.reader(), has_row_security);
        }
        // A role that cannot read the key receives an error for every change, whatever its filters
        let mut looked_at = HashSet::new();
        let written = changes.iter().filter(|change| change.action() != ChangeAction::Delete && !is_keyless(change));
        for change in written {
            let oid = change.table.table.oid;
            if !looked_at.insert(oid) {
                continue;
            }
            for role in self.registry.roles(change.table_name()) {
                if !memory.key_readers.contains(&(oid, role.clone())) {
                    questions.entry(AccessQuestion::Role(oid, role)).or_default();
                }
            }
        }
        let mut answers = self.ask_all(&tables, questions).await;

        // What has changed since the table was described, and the reads that the role may not make
        let mut questions: AccessQuestions = IndexMap::new();
        for candidate in candidates.iter().filter(|candidate| candidate.is_undecided()) {
            let Some(change) = changes.get(candidate.change) else { continue };
            let (oid, reader) = (change.table.table.oid, candidate.reader());
            let of_role = AccessQuestion::Role(oid, reader.role.clone());
            match answers.get(&AccessQuestion::Rows(oid, Arc::clone(reader))) {
                None => {
                    if let Some(Ok(Some(access))) = answers.get(&of_role)
                        && access.has_row_security
                    {
                        ask(&mut questions, change, reader, true);
                    }
                }
                Some(Err(failure)) if failure.has_code("42501") && !answers.contains_key(&of_role) => {
                    questions.entry(of_role).or_default();
                }
                Some(_) => {}
            }
        }
        questions.retain(|question, _| !answers.contains_key(question));
        answers.extend(self.ask_all(&tables, questions).await);
        answers
    }

    async fn ask_all(&self, tables: &HashMap<u32, &Arc<DescribedTable>>, questions: AccessQuestions) -> AccessAnswers {
        let mut reads: Vec<BoxFuture<'_, _>> = Vec::with_capacity(questions.len());
        for (question, keys) in questions {
            let oid = match &question {
                AccessQuestion::Role(oid, _) | AccessQuestion::Rows(oid, _) => oid,
            };
            if let Some(table) = tables.get(oid) {
                reads.push(self.ask_one(table, question, keys.into_iter().collect()).boxed());
            }
        }
        stream::iter(reads).buffer_unordered(MAX_READS).collect().await
    }

    async fn ask_one(
        &self,
        table: &DescribedTable,
        question: AccessQuestion,
        keys: Vec<RowKey>,
    ) -> (AccessQuestion, Result<Option<TableAccess>, ReadFailure>) {
        let answer = retrying(|| match &question {
            AccessQuestion::Role(_, role) => role_access(&self.reads, role, table).boxed(),
            AccessQuestion::Rows(_, reader) => row_access(&self.reads, reader, table, &keys).boxed(),
        })
        .await;
        (question, answer)
    }

    /// Adds the error events for roles that cannot read the primary key: for every entry of the
    /// role, whatever its conditions.
    fn add_unauthorized(
        &self,
        memory: &mut Memory,
        changes: &[CommittedChange],
        candidates: &mut Vec<Candidate>,
        answers: &AccessAnswers,
    ) {
        let mut rejected: HashSet<(u32, &str)> = HashSet::new();
        for (question, answer) in answers {
            let (AccessQuestion::Role(oid, role), Ok(Some(access))) = (question, answer) else { continue };
            let Some(change) = changes.iter().find(|change| change.table.table.oid == *oid) else { continue };
            if access.reads_key(&change.table) {
                memory.key_readers.insert((*oid, role.clone()));
            } else {
                memory.key_readers.remove(&(*oid, role.clone()));
                rejected.insert((*oid, role));
            }
        }
        if rejected.is_empty() {
            return;
        }
        let is_rejected = |change: &CommittedChange, role: &str| {
            change.action() != ChangeAction::Delete
                && !is_keyless(change)
                && rejected.contains(&(change.table.table.oid, role))
        };
        candidates.retain(|candidate| {
            changes.get(candidate.change).is_none_or(|change| !is_rejected(change, &candidate.reader().role))
        });
        for (number, change) in changes.iter().enumerate() {
            for target in self.registry.audience(change.table_name(), change.action()) {
                if is_rejected(change, &target.group.key.reader.role) {
                    let verdict = CandidateOutcome::Sent(EventContent::Error(ChangeEventError::Unauthorized));
                    candidates.push(Candidate { change: number, target, verdict });
                }
            }
        }
        candidates.sort_by_key(|candidate| candidate.change);
    }

    /// Sends the events, in the order of the changes.
    async fn send(&self, changes: &[CommittedChange], candidates: Vec<Candidate>) {
        let mut by_change: IndexMap<usize, Receivers> = IndexMap::new();
        for candidate in candidates {
            if let CandidateOutcome::Sent(content) = candidate.verdict {
                by_change.entry(candidate.change).or_default().push((candidate.target, content));
            }
        }
        let numbered = by_change.into_iter().filter_map(|(number, sent)| Some((changes.get(number)?, sent)));
        let mut messages: Vec<_> = numbered.map(|(change, sent)| (ChangeMessages::new(change), sent)).collect();
        self.render_waiting(&mut messages).await;
        for (mut messages, sent) in messages {
            messages.limit(self.settings.max_record_bytes);
            let mut by_group: IndexMap<(u64, usize), MessagePart> = IndexMap::new();
            for (target, content) in sent {
                // One message for all entries of a channel with the same columns
                let entries = &target.group.key.entries;
                let first = entries.iter().position(|entry| entry.select == target.entry().select).unwrap_or_default();
                let id = target.entry().id;
                let part = by_group.entry((target.group.id(), first)).or_insert_with(|| MessagePart {
                    target,
                    content,
                    ids: Vec::new(),
                });
                if !part.ids.contains(&id) {
                    part.ids.push(id);
                }
            }
            for part in by_group.into_values() {
                let group = &part.target.group;
                let place = MessageTarget {
                    topic: Arc::clone(&group.key.topic),
                    version: group.key.version,
                    form: group.key.form,
                    ids: part.ids,
                };
                let sent = group.send(messages.frame(&part.content, place));
                self.meter.add(sent as u64);
            }
        }
    }

    /// Renders the values that only PostgreSQL can render.
    async fn render_waiting(&self, messages: &mut [(ChangeMessages<'_>, Receivers)]) {
        let mut tables: IndexMap<u32, Arc<DescribedTable>> = IndexMap::new();
        for (messages, _) in messages.iter_mut() {
            let table = &messages.change().table;
            if messages.waiting_rows().iter().any(|row| row.as_ref().is_some_and(|row| row.is_waiting())) {
                tables.insert(table.table.oid, Arc::clone(table));
            }
        }
        for (oid, table) in tables {
            let mut rows = Vec::new();
            let mut places = Vec::new();
            let of_table = messages.iter_mut().filter(|(messages, _)| messages.change().table.table.oid == oid);
            for place in of_table.flat_map(|(messages, _)| messages.waiting_rows()) {
                if let Some(row) = place.take() {
                    rows.push(row);
                    places.push(place);
                }
            }
            if let Err(error) = self.render(&table, &mut rows).await {
                tracing::warn!(error = %error, "values that only the database can render are missing in changes");
            }
            for (place, row) in places.into_iter().zip(rows) {
                *place = Some(row);
            }
        }
    }

    async fn render(
        &self,
        table: &DescribedTable,
        rows: &mut [crate::decode::RenderedRow],
    ) -> Result<(), DatabaseError> {
        let client = self.database.pool(RENDERER).client().await?;
        Ok(table.render_by_server(&client, rows).await?)
    }
}

/// The entries that receive a change, and what they are shown.
type Receivers = Vec<(Arc<EntryTarget>, EventContent)>;

/// A message to the channels of one group.
struct MessagePart {
    target: Arc<EntryTarget>,
    content: EventContent,
    ids: Vec<u32>,
}

/// Returns the value of a column, whose text all questions about a change share.
fn shared_value(values: &mut HashMap<Box<str>, Arc<str>>, column: &str, field: FieldValue<'_>) -> Option<Arc<str>> {
    let FieldValue::Text(text) = field else { return None };
    if let Some(value) = values.get(column) {
        return Some(Arc::clone(value));
    }
    let value: Arc<str> = text.into();
    values.insert(column.into(), Arc::clone(&value));
    Some(value)
}
