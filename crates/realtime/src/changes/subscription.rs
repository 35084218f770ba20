//! The subscriptions of channels, from the join to their end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt as _, stream};
use portico_base::inherit_request;
use portico_database::Database;
use portico_database::wire::ReadCoalescer;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::decision::authorise::RowAccess;
use super::delivery::deliver::ChangeDelivery;
use super::entries::entry::{ChangeMessageForm, ChangesEntry, PreparedEntries};
use super::entries::validate::{SubscribeError, Validator};
use super::reads::role_reads::{ChangeReader, RoleReads};
use super::reads::times::DeliveryTimes;
use super::subscriptions::group::{GroupKey, SubscriptionGroup};
use super::subscriptions::registry::{Registry, SubscriptionRegistration};
use super::system_message::EXTENSION;
use crate::identity::ChannelIdentity;
use crate::meter::Meter;
use crate::rooms::Subscriber;
use crate::settings::RealtimeSettings;
use crate::socket::FrameMemory;
use crate::stream::{ChangeBatch, FollowedStream, StreamState};

/// The largest number of groups of subscriptions that are checked again at once.
const MAX_CHECKS: usize = 16;

/// The subscriptions to database changes. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseChanges(Arc<DatabaseChangesState>);

#[derive(Debug)]
struct DatabaseChangesState {
    registry: Arc<Registry>,
    reads: RoleReads,
    validator: Validator,
    database: Database,
    settings: RealtimeSettings,
    stream: FollowedStream,
    memory: Arc<FrameMemory>,
    deliveries: Arc<Meter>,
    times: DeliveryTimes,
}

/// A subscription of a channel. It ends when this is dropped; nothing is sent after that.
#[derive(Debug)]
pub(crate) struct ChangesSubscription {
    identity: ChannelIdentity,
    progress: Arc<Mutex<SubscriptionProgress>>,
    registry: Arc<Registry>,
}

/// The progress of a subscription.
#[derive(Debug)]
enum SubscriptionProgress {
    /// The task that sets it up, for as long as that runs: its handle keeps the memory of the task.
    SettingUp(Option<AbortHandle>),
    Subscribed(SubscriptionRegistration),
    Ended,
}

impl DatabaseChanges {
    /// Returns no subscriptions. `stream` is the one that the changes come from.
    /// Frames count in `memory`.
    pub fn new(
        database: &Database,
        reads: ReadCoalescer,
        settings: &RealtimeSettings,
        stream: FollowedStream,
        memory: &Arc<FrameMemory>,
    ) -> Self {
        Self::with_times(database, reads, settings, stream, memory, DeliveryTimes::default())
    }

    /// Like [`new`](Self::new), but with other times of the delivery.
    pub(super) fn with_times(
        database: &Database,
        reads: ReadCoalescer,
        settings: &RealtimeSettings,
        stream: FollowedStream,
        memory: &Arc<FrameMemory>,
        times: DeliveryTimes,
    ) -> Self {
        let reads = RoleReads::new(reads, &times);
        Self(Arc::new(DatabaseChangesState {
            registry: Arc::new(Registry::with_pause(times.pause)),
            validator: Validator::new(reads.clone()),
            reads,
            database: database.clone(),
            settings: settings.clone(),
            stream,
            memory: Arc::clone(memory),
            deliveries: Arc::default(),
            times,
        }))
    }

    /// Parses the entries of a join. Never fails: errors are sent later, as `system` messages.
    pub fn prepare(entries: &[Value]) -> PreparedEntries {
        PreparedEntries::of_entries(entries)
    }

    /// Makes the entry of a join without `config`, which its topic describes. The topic comes
    /// without its prefix.
    pub fn prepare_topic(topic: &str) -> Option<PreparedEntries> {
        (!topic.is_empty()).then(|| PreparedEntries::of_topic(topic))
    }

    /// Counts the deliveries. Its average has to be updated for the limit of deliveries to work.
    pub fn deliveries(&self) -> &Meter {
        &self.0.deliveries
    }

    /// Subscribes a channel. `system` messages report success and errors later. Needs a Tokio
    /// runtime. For another identity [renew](ChangesSubscription::renew) the result, or drop it and
    /// subscribe again.
    pub fn subscribe(
        &self,
        subscriber: Arc<Subscriber>,
        prepared: &PreparedEntries,
        identity: &ChannelIdentity,
    ) -> ChangesSubscription {
        let progress = Arc::new(Mutex::new(SubscriptionProgress::SettingUp(None)));
        let reader = Arc::new(ChangeReader::of(identity));
        let set_up = SetUp {
            state: Arc::clone(&self.0),
            progress: Arc::clone(&progress),
            subscriber,
            reader,
            form: prepared.form(),
        };
        let entries = prepared.entries().map(Arc::clone).map_err(ToString::to_string);
        // The task may run at once on another thread, and waits there until its handle is stored
        let mut state = lock(&progress);
        let task = tokio::spawn(inherit_request(async move {
            match entries {
                Ok(entries) => set_up.run(entries).await,
                Err(error) => set_up.report(&error),
            }
            if let SubscriptionProgress::SettingUp(task) = &mut *lock(&set_up.progress) {
                *task = None;
            }
        }));
        *state = SubscriptionProgress::SettingUp(Some(task.abort_handle()));
        drop(state);
        let identity = identity.clone();
        ChangesSubscription { identity, progress, registry: Arc::clone(&self.0.registry) }
    }

    /// Delivers changes, until their sender is dropped. Also tells channels when the stream runs
    /// again after a gap.
    pub async fn run(self, batches: mpsc::Receiver<ChangeBatch>) {
        let state = &*self.0;
        let delivery = ChangeDelivery {
            registry: Arc::clone(&state.registry),
            reads: state.reads.clone(),
            access: RowAccess {
                registry: Arc::clone(&state.registry),
                reads: state.reads.clone(),
                max_age: state.times.role_answers,
            },
            validator: state.validator.clone(),
            database: state.database.clone(),
            settings: state.settings.changes.clone(),
            memory: Arc::clone(&state.memory),
            meter: Arc::clone(&state.deliveries),
            max_per_second: state.settings.limits.max_changes_per_second,
            times: state.times,
        };
        tokio::select! {
            () = delivery.run(batches) => {}
            () = check_subscriptions(state) => {}
        }
    }
}

/// Checks the subscriptions again whenever the stream runs again, and reports the outcome as after
/// a join: changes may have been missed, and the tables may have changed. Checks them also when
/// other tables are published, without a report to those that still fit. Does not return before the
/// stream's owner ends.
async fn check_subscriptions(state: &DatabaseChangesState) {
    let mut stream = state.stream.state.clone();
    let mut before_gap = None;
    while stream.wait_for(is_running).await.is_ok() {
        let checks = async {
            let mut tables = state.stream.table_changes.clone();
            if let Some(last) = before_gap {
                check_all(state, last, CheckReason::Gap).await;
            }
            while tables.changed().await.is_ok() {
                check_all(state, state.registry.last_number(), CheckReason::Tables).await;
            }
            std::future::pending().await
        };
        let mut ended = state.stream.state.clone();
        tokio::select! {
            () = checks => {}
            outcome = ended.wait_for(|state| !is_running(state)) => if outcome.is_err() { break },
        }
        before_gap = Some(state.registry.last_number());
    }
    // The changes that have arrived are still delivered
    std::future::pending().await
}

/// The reason for another check of subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckReason {
    /// The stream was interrupted, so that changes may be missing.
    Gap,
    /// Other tables are published.
    Tables,
}

/// Checks the subscriptions up to a number again.
async fn check_all(state: &DatabaseChangesState, last: u64, reason: CheckReason) {
    let groups = stream::iter(state.registry.groups());
    groups.for_each_concurrent(MAX_CHECKS, |group| check_again(state, group, last, reason)).await;
}

/// Checks the subscriptions of a group up to a number again. Ends those that do not fit the
/// database any more.
async fn check_again(state: &DatabaseChangesState, group: Arc<SubscriptionGroup>, last: u64, reason: CheckReason) {
    let (role, entries) = (&*group.key.reader.role, &*group.key.entries);
    loop {
        match state.validator.validate_all(role, entries).await {
            Ok(_) => {
                if reason == CheckReason::Gap {
                    state.registry.report_until(&group, last);
                }
                return;
            }
            Err(SubscribeError::Final(text)) => {
                for subscriber in state.registry.end_until(&group, last) {
                    subscriber.send_system(EXTENSION, "error", &text);
                }
                return;
            }
            Err(SubscribeError::Unavailable(text)) => {
                if reason == CheckReason::Gap {
                    group.for_each_until(last, |subscriber| subscriber.send_system(EXTENSION, "error", &text));
                }
            }
        }
        pause_before_retry(&state.times).await;
    }
}

async fn pause_before_retry(times: &DeliveryTimes) {
    let jitter = f64::from(u32::from_le_bytes(portico_base::random::bytes())) / f64::from(u32::MAX);
    tokio::time::sleep(times.retry.mul_f64(1.0 + jitter)).await;
}

fn is_running(state: &StreamState) -> bool {
    *state == StreamState::Running
}

/// A subscription that is being set up.
struct SetUp {
    state: Arc<DatabaseChangesState>,
    progress: Arc<Mutex<SubscriptionProgress>>,
    subscriber: Arc<Subscriber>,
    reader: Arc<ChangeReader>,
    form: ChangeMessageForm,
}

impl SetUp {
    async fn run(&self, entries: Arc<[Arc<ChangesEntry>]>) {
        if entries.is_empty() {
            return;
        }
        let valid = loop {
            match self.state.validator.validate_all(&self.reader.role, &entries).await {
                Ok(valid) => break valid,
                Err(SubscribeError::Final(text)) => return self.report(&text),
                Err(SubscribeError::Unavailable(text)) => self.report(&text),
            }
            pause_before_retry(&self.state.times).await;
        };
        if !self.stream_runs().await {
            return;
        }
        let key = GroupKey {
            topic: Arc::clone(&self.subscriber.room().topic),
            version: self.subscriber.version(),
            reader: Arc::clone(&self.reader),
            form: self.form,
            entries,
        };
        let mut progress = lock(&self.progress);
        if matches!(*progress, SubscriptionProgress::SettingUp(_)) {
            let registration = self.state.registry.insert(key, &valid, Arc::clone(&self.subscriber));
            *progress = SubscriptionProgress::Subscribed(registration);
        }
    }

    /// Waits until the stream is running. Reports each reason for which it does not. Returns false
    /// if it never will.
    async fn stream_runs(&self) -> bool {
        let mut stream = self.state.stream.state.clone();
        let mut reported = None;
        loop {
            let failed = match &*stream.borrow_and_update() {
                StreamState::Running => return true,
                StreamState::Failed(reason) => Some(Arc::clone(reason)),
                StreamState::Stopped | StreamState::Connecting => None,
            };
            if let Some(reason) = failed.filter(|reason| reported.as_ref() != Some(reason)) {
                self.report(&reason);
                reported = Some(reason);
            }
            if stream.changed().await.is_err() {
                return false;
            }
        }
    }

    fn report(&self, error: &str) {
        let progress = lock(&self.progress);
        if !matches!(*progress, SubscriptionProgress::Ended) {
            self.subscriber.send_system(EXTENSION, "error", error);
        }
    }
}

impl ChangesSubscription {
    /// Continues a complete subscription with the identity of a new token, without another check of
    /// its entries: no change is lost in between. Returns false if it cannot, since it is not
    /// complete, has ended, or the identity has another role; it has to be made anew then.
    pub fn renew(&mut self, identity: &ChannelIdentity) -> bool {
        let progress = lock(&self.progress);
        let SubscriptionProgress::Subscribed(registration) = &*progress else { return false };
        if identity.role() != self.identity.role() {
            return false;
        }
        let reader = ChangeReader::of(identity);
        let is_same_subject = identity.is_same_person(&self.identity);
        if !self.registry.renew(registration, Arc::new(reader), is_same_subject) {
            return false;
        }
        drop(progress);
        self.identity = identity.clone();
        true
    }
}

impl Drop for ChangesSubscription {
    fn drop(&mut self) {
        let progress = std::mem::replace(&mut *lock(&self.progress), SubscriptionProgress::Ended);
        match progress {
            SubscriptionProgress::SettingUp(Some(task)) => task.abort(),
            SubscriptionProgress::Subscribed(registration) => self.registry.remove(&registration),
            SubscriptionProgress::SettingUp(None) | SubscriptionProgress::Ended => {}
        }
    }
}

fn lock(progress: &Mutex<SubscriptionProgress>) -> MutexGuard<'_, SubscriptionProgress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
