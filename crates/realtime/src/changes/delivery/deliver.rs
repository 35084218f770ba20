//! The way of committed changes to the channels: match, authorise, compare, render, send.
//!
//! One task takes all batches that wait, so that changes reach every channel in the order of their
//! commits. While it works on them, the next ones gather. PostgreSQL is asked once for each set of
//! questions: which rows are visible, by reader and table; then, for the visible ones alone, which
//! conditions hold. All questions of a step are asked at the same time.
//!
//! A channel has one reader. So the changes are decided and sent for one cohort of readers after
//! the other: while the sockets of the first ones write, PostgreSQL decides for the others. A
//! cohort has its turn until its changes are sent, so that its answers do not become old. The reads
//! go on meanwhile, and never stop in the middle: a read that waits in the checkout queue may be
//! granted a connection at any time, which others would miss while it is not used.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use indexmap::IndexMap;
use portico_database::{Database, DatabaseError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cohort_turns::CohortTurns;
use super::outgoing::OutgoingChanges;
use super::reader_cohorts::ReaderCohorts;
use super::slice_messages::SliceMessages;
use crate::changes::decision::authorise::{KeyReaders, RowAccess, read_tables};
use crate::changes::decision::database_tests::{ConditionMemory, ConditionScope, TestQuestion, failing_tests};
use crate::changes::decision::unauthorized::{RejectedRoles, SentCohorts, add_unauthorized};
use crate::changes::decision::verdict::{
    self, AccessAnswers, AccessQuestion, Candidate, CandidateOutcome, CohortAnswers, decide, is_keyless,
};
use crate::changes::entries::column_test::{FieldValue, Test};
use crate::changes::entries::entry::ChangeAction;
use crate::changes::entries::validate::Validator;
use crate::changes::reads::pauses::Pauses;
use crate::changes::reads::role_reads::{ChangeReader, ReadFailure, RoleReads, retrying};
use crate::changes::reads::times::DeliveryTimes;
use crate::changes::slice::committed_change::CommittedChange;
use crate::changes::slice::event::{ChangeEventError, EventContent, MessageTarget};
use crate::changes::slice::slice_keys::SliceKeys;
use crate::changes::slice::slices::slice_end;
use crate::changes::subscriptions::group::{EntryTarget, SubscriptionGroup};
use crate::changes::subscriptions::prepared_tables::{MAX_TABLES, PreparedTables};
use crate::changes::subscriptions::registry::Registry;
use crate::decode::TransactionId;
use crate::meter::Meter;
use crate::settings::ChangesSettings;
use crate::socket::FrameMemory;
use crate::stream::{ChangeBatch, wait_until_visible};

/// The largest number of batches that are taken at once.
const MAX_BATCHES: usize = 64;
/// The number of messages after which other tasks of the thread, and the reads of other cohorts,
/// get their turn.
const MESSAGES_AT_ONCE: usize = 256;

/// Delivers changes.
#[derive(Debug)]
pub(crate) struct ChangeDelivery {
    pub registry: Arc<Registry>,
    pub reads: RoleReads,
    pub access: RowAccess,
    pub validator: Validator,
    pub database: Database,
    pub settings: ChangesSettings,
    /// The memory of the frames that wait for clients.
    pub memory: Arc<FrameMemory>,
    /// Counts the deliveries.
    pub meter: Arc<Meter>,
    pub max_per_second: Option<u32>,
    pub times: DeliveryTimes,
}

/// The state that the task keeps between batches.
#[derive(Debug)]
struct Memory {
    prepared: PreparedTables,
    /// The roles that could read the whole primary key of a table when it was last looked at.
    key_readers: KeyReaders,
    conditions: ConditionMemory,
    /// The tables with values whose rendering took too long.
    paused_renderings: Pauses<u32>,
}

impl Memory {
    fn new(pause: Duration) -> Self {
        Self {
            prepared: PreparedTables::default(),
            key_readers: HashSet::new(),
            conditions: ConditionMemory::new(pause),
            paused_renderings: Pauses::new(pause),
        }
    }

    /// Notes which roles can read the whole primary keys of tables, as PostgreSQL has answered.
    /// Returns those that cannot.
    fn note_key_readers(&mut self, changes: &[CommittedChange], answers: &AccessAnswers) -> RejectedRoles {
        let mut rejected = RejectedRoles::new();
        for (question, answer) in answers {
            let (AccessQuestion::Role(oid, role), Ok(Some(access))) = (question, answer) else { continue };
            let Some(change) = changes.iter().find(|change| change.table.table.oid == *oid) else { continue };
            if access.reads_key(&change.table) {
                self.key_readers.insert((*oid, role.clone()));
            } else {
                self.key_readers.remove(&(*oid, role.clone()));
                rejected.insert((*oid, role.clone()));
            }
        }
        rejected
    }

    /// Evicts what can be found out again when there is much of it: tables that were dropped are
    /// never named again.
    fn bound(&mut self) {
        if self.key_readers.len() >= 4 * MAX_TABLES {
            self.key_readers.clear();
        }
    }
}

impl ChangeDelivery {
    /// Delivers the batches until their sender is dropped.
    pub async fn run(self, mut batches: mpsc::Receiver<ChangeBatch>) {
        let mut memory = Memory::new(self.times.pause);
        let mut waiting = Vec::new();
        loop {
            memory.prepared.end_delays().values().for_each(|group| self.registry.report(group));
            let ends = [self.registry.end_pauses(), memory.prepared.next_end()];
            let end = ends.into_iter().flatten().min();
            tokio::select! {
                received = batches.recv_many(&mut waiting, MAX_BATCHES) => if received == 0 { return },
                () = wait_for_end(end) => continue,
            }
            if waiting.iter().any(|batch: &ChangeBatch| batch.after_gap) {
                self.registry.report_all();
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
                self.registry.report_all();
                continue;
            }
            while !wanted.is_empty() {
                let rest =
                    wanted.split_off(slice_end(&wanted, |change| self.registry.audience_size(change.table_name())));
                self.deliver(&mut memory, &wanted).await;
                wanted = rest;
            }
        }
    }

    /// Waits until reads find what the transactions have written. Nothing about their changes is
    /// read before, neither a permission nor a condition. A server whose transactions have lower
    /// numbers, as after the restoration of an older state, would never show them.
    async fn wait_until_visible(&self, transactions: &[TransactionId]) -> Result<(), ReadFailure> {
        let wait = || {
            async {
                let unavailable = |error: DatabaseError| ReadFailure::Unavailable(error.to_string().into());
                let client = self.database.login_client().await.map_err(unavailable)?;
                wait_until_visible(&client, transactions).await.map_err(|error| unavailable(error.into()))
            }
            .boxed()
        };
        match tokio::time::timeout(self.times.visible, retrying(wait)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ReadFailure::Unavailable("their transactions are not visible yet".into())),
        }
    }

    async fn deliver(&self, memory: &mut Memory, changes: &[CommittedChange]) {
        let delivery = self.registry.begin_delivery();
        memory.bound();
        let mut unanswered = self.prepare_filters(&mut memory.prepared, changes).await;
        let mut candidates = self.matching(changes);
        self.registry.drop_paused(changes, &mut candidates);
        let (tables, keys) = (read_tables(changes), SliceKeys::of(changes));
        let of_roles = self.access.ask_about_roles(&memory.key_readers, &tables, &keys, changes, &candidates).await;
        let rejected = memory.note_key_readers(changes, of_roles.answers());
        self.add_unauthorized(changes, &mut candidates, &rejected, |_, _| true);
        let mut messages = SliceMessages::new(changes, &candidates, self.settings.max_record_bytes, &self.memory);
        // The values are rendered once, with one time limit
        let cohorts = match messages.are_waiting() {
            true => ReaderCohorts::all_at_last(candidates),
            false => ReaderCohorts::of(changes, candidates),
        };
        let turns = CohortTurns::new(cohorts.at_once());
        let ReaderCohorts { first, mut last, topics, .. } = cohorts;
        messages.share(topics);
        let count = first.len().max(1);
        let (answered, mut to_send) = mpsc::unbounded_channel();
        let mut reads = stream::iter(first)
            .map(async |mut cohort| {
                let decision = async {
                    // A cohort before may have begun a pause
                    self.registry.drop_paused(changes, &mut cohort);
                    self.access.authorise(&tables, changes, cohort, &keys, &of_roles).await
                };
                turns.decide(decision).await
            })
            .buffer_unordered(count)
            .boxed();
        let ask = async move {
            while let Some(cohort) = reads.next().await {
                let _ = answered.send(cohort);
            }
        };
        let mut sent = SentCohorts::default();
        let send = async {
            while let Some(((mut cohort, answers), _turn)) = to_send.recv().await {
                unanswered.extend(self.decide(memory, changes, &mut cohort, &answers).await);
                let of_cohort = memory.note_key_readers(changes, &answers.of_cohort);
                self.add_unauthorized(changes, &mut cohort, &of_cohort, |oid, reader| answers.has_asked(oid, reader));
                self.send(&mut memory.paused_renderings, &mut messages, cohort, delivery.last).await;
                sent.add(answers, of_cohort);
            }
        };
        tokio::join!(ask, send);
        // Asked for now, so that the answers are not older than the time that the others took
        self.registry.drop_paused(changes, &mut last);
        let (mut last, answers) = self.access.authorise(&tables, changes, last, &keys, &of_roles).await;
        unanswered.extend(self.decide(memory, changes, &mut last, &answers).await);
        sent.rejected.extend(memory.note_key_readers(changes, &answers.of_cohort));
        self.add_unauthorized(changes, &mut last, &sent.rejected, |oid, reader| !sent.have_asked(oid, reader));
        self.send(&mut memory.paused_renderings, &mut messages, last, delivery.last).await;
        if !unanswered.is_empty() {
            tracing::warn!(groups = unanswered.len(), "changes are discarded: the database has not answered");
        }
        // Changes were missed, as after a gap of the stream
        unanswered.values().for_each(|group| self.registry.report(group));
    }

    /// Decides on some candidates. Returns the groups about which the database has not answered, by
    /// their ids.
    async fn decide(
        &self,
        memory: &mut Memory,
        changes: &[CommittedChange],
        candidates: &mut [Candidate],
        answers: &CohortAnswers<'_>,
    ) -> IndexMap<u64, Arc<SubscriptionGroup>> {
        self.registry.note_times(changes, &answers.of_cohort);
        let mut unanswered = verdict::unanswered(changes, candidates, answers);
        decide(&self.settings, changes, candidates, answers);
        unanswered.extend(self.compare(&mut memory.conditions, changes, candidates).await);
        unanswered
    }

    /// Returns the entries for all changes, in their order, apart from those with a condition that
    /// the server can evaluate and that does not hold.
    fn matching(&self, changes: &[CommittedChange]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            let (name, action) = (change.table_name(), change.action());
            let (targets, verdict) = if is_keyless(change) {
                let error = EventContent::Error(ChangeEventError::NoPrimaryKey);
                (self.registry.audience(name, action), CandidateOutcome::Sent(error))
            } else {
                let fields = change.fields();
                let field = |name: &str| fields.get(name).copied().unwrap_or(FieldValue::Absent);
                (self.registry.matching(name, action, field), CandidateOutcome::Undecided)
            };
            let candidate = |target| Candidate { change: number, target, verdict: verdict.clone() };
            candidates.extend(targets.into_iter().map(candidate));
        }
        candidates
    }

    /// Drops those of the permitted candidates that have a condition which PostgreSQL evaluates and
    /// which does not hold. Comes after the decision about permission: the time and the errors of a
    /// condition would tell about rows that are hidden. Returns the groups of those that were
    /// dropped without an answer, by their ids.
    async fn compare(
        &self,
        memory: &mut ConditionMemory,
        changes: &[CommittedChange],
        candidates: &mut [Candidate],
    ) -> IndexMap<u64, Arc<SubscriptionGroup>> {
        let mut questions: IndexMap<TestQuestion, Vec<usize>> = IndexMap::new();
        let mut values: HashMap<(usize, &str), Arc<str>> = HashMap::new();
        for (number, candidate) in candidates.iter().enumerate() {
            let CandidateOutcome::Sent(EventContent::Row { has_row_security, .. }) = &candidate.verdict else {
                continue;
            };
            let Some(change) = changes.get(candidate.change) else { continue };
            let reader = candidate.reader();
            // Policies do not decide about deletions, which everyone of the role receives
            let scope = if *has_row_security && change.action() != ChangeAction::Delete {
                ConditionScope::Reader(Arc::clone(reader))
            } else {
                ConditionScope::Role(reader.role.clone())
            };
            for test in &candidate.target.filter.tests {
                let Test::Database(database) = &test.test else { continue };
                let value = match change.named_field(&test.column) {
                    Some((column, FieldValue::Text(text))) => {
                        let shared = values.entry((candidate.change, column)).or_insert_with(|| text.into());
                        Some(Arc::clone(shared))
                    }
                    _ => None,
                };
                let question = TestQuestion { scope: scope.clone(), test: database.clone(), value };
                questions.entry(question).or_default().push(number);
            }
        }
        let owners = |numbers: &[usize]| {
            let owners = numbers.iter().filter_map(|number| Some(candidates.get(*number)?.target.group.filter_owner()));
            owners.collect::<BTreeSet<_>>().into_iter().collect()
        };
        let asked = questions.iter().map(|(question, numbers)| (question.clone(), owners(numbers))).collect();
        let answers = failing_tests(&self.reads, memory, asked).await;
        self.registry.pause_filters(answers.slow);
        let mut missed = IndexMap::new();
        for (failing, is_unanswered) in
            answers.failing.iter().map(|test| (test, false)).chain(answers.unanswered.iter().map(|test| (test, true)))
        {
            for candidate in questions.get(failing).into_iter().flatten() {
                if let Some(candidate) = candidates.get_mut(*candidate) {
                    candidate.verdict = CandidateOutcome::Dropped;
                    if is_unanswered {
                        missed.insert(candidate.target.group.id(), Arc::clone(&candidate.target.group));
                    }
                }
            }
        }
        missed
    }

    /// Adds the error events for roles that cannot read the primary key.
    fn add_unauthorized(
        &self,
        changes: &[CommittedChange],
        candidates: &mut Vec<Candidate>,
        rejected: &RejectedRoles,
        is_meant: impl Fn(u32, &Arc<ChangeReader>) -> bool,
    ) {
        let audience = |change: &CommittedChange| self.registry.audience(change.table_name(), change.action());
        add_unauthorized(changes, candidates, rejected, audience, is_meant);
    }

    /// Sends the events, to each channel in the order of the changes. `last` is the number of the
    /// last subscription that receives them.
    async fn send(
        &self,
        paused: &mut Pauses<u32>,
        messages: &mut SliceMessages<'_>,
        candidates: Vec<Candidate>,
        last: u64,
    ) {
        let mut by_change: IndexMap<usize, Receivers> = IndexMap::new();
        for candidate in candidates {
            if let CandidateOutcome::Sent(content) = candidate.verdict {
                by_change.entry(candidate.change).or_default().push((candidate.target, content));
            }
        }
        messages.render(&self.reads, paused, self.times.rendering, |number| by_change.contains_key(&number)).await;
        let mut outgoing = OutgoingChanges::new(last);
        let mut count = 0_usize;
        for (number, sent) in by_change {
            let mut by_group: IndexMap<(u64, usize), GroupMessage> = IndexMap::new();
            for (target, content) in sent {
                // One message for all entries of a channel with the same columns
                let entries = &target.group.key.entries;
                let first = entries.iter().position(|entry| entry.select == target.entry().select).unwrap_or_default();
                let id = target.entry().id;
                let message = by_group.entry((target.group.id(), first)).or_insert_with(|| GroupMessage {
                    target,
                    content,
                    ids: Vec::new(),
                });
                if !message.ids.contains(&id) {
                    message.ids.push(id);
                }
            }
            for message in by_group.into_values() {
                let group = &message.target.group;
                let place = MessageTarget {
                    topic: Arc::clone(&group.key.topic),
                    version: group.key.version,
                    form: group.key.form,
                    ids: message.ids,
                };
                let Some(frame) = messages.frame(number, &message.content, place) else { continue };
                let sent = outgoing.add(group, frame);
                self.meter.add(sent as u64);
                count += 1;
                if count.is_multiple_of(MESSAGES_AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
            messages.evict_frames(number);
        }
        self.meter.add(outgoing.send() as u64);
    }
}

/// Waits for the end of the pause or delay that ends next, if there is one.
async fn wait_for_end(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// The entries that receive a change, and what they are shown.
type Receivers = Vec<(Arc<EntryTarget>, EventContent)>;

/// A message to the channels of one group.
struct GroupMessage {
    target: Arc<EntryTarget>,
    content: EventContent,
    ids: Vec<u32>,
}
