//! Database changes from a real server to the channels.

mod cohorts;
mod comparison;
mod content;
mod grouping;
mod isolation;
mod life;
mod pauses;
mod plans;
mod rules;
mod validation;
mod visibility;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use portico_database::wire::{CoalescingSettings, ReadCoalescer, WirePoolSettings};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::reads::role_reads::RoleReads;
use super::reads::times::DeliveryTimes;
use super::*;
use crate::fixture::{ScratchDatabase, TestChannel, json_of, open, room};
use crate::identity::ChannelIdentity;
use crate::settings::RealtimeSettings;
use crate::socket::FrameMemory;
use crate::socket::frame::{Frame, Version};
use crate::stream::{ChangeStream, ChangeStreamSettings, StreamConsumers, StreamTimes, StreamUse};

/// The table whose changes mark the end of what was sent before.
const MARKS: &str = "
    create table public.marks (id int primary key);
    alter table public.marks disable row level security;
    grant select on public.marks to public;
    alter publication supabase_realtime add table public.marks";

/// A database whose changes are delivered.
struct Live {
    database: ScratchDatabase,
    changes: DatabaseChanges,
    reads: RoleReads,
    /// The memory of the frames that wait for clients.
    memory: Arc<FrameMemory>,
    mark: AtomicU32,
    _stream: (ChangeStream, StreamUse),
}

/// A channel that is subscribed.
struct Joined {
    channel: TestChannel,
    /// The ids of the entries.
    ids: Vec<Value>,
    subscription: Option<ChangesSubscription>,
}

impl Live {
    async fn new(set_up: &str) -> Self {
        Self::with_settings(set_up, RealtimeSettings::default()).await
    }

    async fn with_settings(set_up: &str, settings: RealtimeSettings) -> Self {
        Self::with_times(set_up, settings, DeliveryTimes::default()).await
    }

    /// Like [`new`](Self::new), but with little time for reads and locks, and with the first pause
    /// of what takes too long.
    async fn with_pause(set_up: &str, pause: Duration) -> Self {
        Self::with_times(set_up, RealtimeSettings::default(), DeliveryTimes { pause, ..short_times() }).await
    }

    async fn with_times(set_up: &str, settings: RealtimeSettings, times: DeliveryTimes) -> Self {
        Self::start(set_up, settings, times, WirePoolSettings::default()).await
    }

    /// Like [`new`](Self::new), but with a single connection for reads.
    async fn with_one_connection(set_up: &str) -> Self {
        let pool = WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() };
        Self::start(set_up, RealtimeSettings::default(), DeliveryTimes::default(), pool).await
    }

    async fn start(set_up: &str, settings: RealtimeSettings, times: DeliveryTimes, pool: WirePoolSettings) -> Self {
        let database = ScratchDatabase::new().await;
        database.run(MARKS).await;
        database.run(set_up).await;
        let pools = open(database.endpoint());
        let (changes_sender, batches) = mpsc::channel(16);
        let (messages_sender, mut messages) = mpsc::channel(16);
        let stream = ChangeStream::new(ChangeStreamSettings {
            database: pools.clone(),
            suffix: database.endpoint().database().trim_start_matches("scratch_").to_owned(),
            consumers: StreamConsumers { changes: changes_sender, messages: messages_sender },
            times: StreamTimes::default(),
        });
        let reads = ReadCoalescer::new(database.pool(pool), &CoalescingSettings::default());
        let memory = FrameMemory::new(settings.limits.max_all_waiting_bytes);
        let of_roles = RoleReads::new(reads.clone(), &times);
        let changes = DatabaseChanges::with_times(&pools, reads, &settings, stream.follow(), &memory, times);
        tokio::spawn(changes.clone().run(batches));
        tokio::spawn(async move { while messages.recv().await.is_some() {} });
        let in_use = stream.use_stream();
        Self { database, changes, reads: of_roles, memory, mark: AtomicU32::new(0), _stream: (stream, in_use) }
    }

    async fn run(&self, sql: &str) {
        self.database.run(sql).await;
    }

    /// Joins a channel, and waits until it is subscribed.
    async fn join(&self, identity: &ChannelIdentity, topic: &str, entries: &[Value]) -> Joined {
        let joined = self.try_join(identity, topic, entries);
        assert_eq!(joined.system().await, ("ok".to_owned(), "Subscribed to PostgreSQL".to_owned()));
        joined
    }

    fn try_join(&self, identity: &ChannelIdentity, topic: &str, entries: &[Value]) -> Joined {
        let mut entries = entries.to_vec();
        entries.push(json!({ "event": "INSERT", "schema": "public", "table": "marks" }));
        self.subscribe(
            TestChannel::new(&room(false, topic), Version::V2),
            identity,
            &DatabaseChanges::prepare(&entries),
        )
    }

    fn subscribe(&self, channel: TestChannel, identity: &ChannelIdentity, prepared: &PreparedEntries) -> Joined {
        let echo = prepared.echo().as_array().cloned().unwrap();
        let ids = echo.iter().map(|entry| entry["id"].clone()).collect();
        let subscriber = Arc::clone(&channel.subscriber);
        let subscription = Some(self.changes.subscribe(subscriber, prepared, identity));
        Joined { channel, ids, subscription }
    }

    /// Runs a change, and returns what each channel receives because of it.
    async fn received<const N: usize>(&self, sql: &str, channels: [&Joined; N]) -> [Vec<Value>; N] {
        self.run(sql).await;
        let mark = self.mark().await;
        let mut received = [const { Vec::new() }; N];
        for (channel, events) in channels.iter().zip(&mut received) {
            *events = channel.until(mark).await;
        }
        received
    }

    /// Marks the end of what was committed until now.
    async fn mark(&self) -> u32 {
        let mark = self.mark.fetch_add(1, Ordering::Relaxed);
        self.run(&format!("insert into public.marks values ({mark})")).await;
        mark
    }
}

impl Joined {
    async fn next(&self) -> (Frame, Value) {
        let next = tokio::time::timeout(Duration::from_secs(60), self.channel.next());
        let frame = next.await.expect("a frame");
        let message = json_of(&frame);
        (frame, message)
    }

    /// Returns status and text of the next message, which is a `system` message.
    async fn system(&self) -> (String, String) {
        let (_, message) = self.next().await;
        assert_eq!(
            (&message[3], &message[4]["extension"]),
            (&json!("system"), &json!("postgres_changes")),
            "{message}"
        );
        let text = |name: &str| message[4][name].as_str().unwrap().to_owned();
        (text("status"), text("message"))
    }

    /// Returns the payloads until a mark, which is not among them.
    async fn until(&self, mark: u32) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let (_, message) = self.next().await;
            assert_eq!(message[3], "postgres_changes", "{message}");
            let payload = message[4].clone();
            match &payload["data"] {
                data if data["table"] == "marks" && data["record"]["id"] == mark => return events,
                data if data["table"] == "marks" => {}
                _ => events.push(payload),
            }
        }
    }
}

/// Returns times in which a policy is soon too slow, and a lock is held for too long.
fn short_times() -> DeliveryTimes {
    DeliveryTimes {
        read: Duration::from_secs(1),
        lock: Duration::from_millis(500),
        retry: Duration::from_millis(100),
        ..DeliveryTimes::default()
    }
}

/// Returns an entry for a table of the schema `public`.
fn entry(event: &str, table: &str, filter: &str) -> Value {
    let mut entry = json!({ "event": event, "schema": "public", "table": table });
    if !filter.is_empty() {
        entry["filter"] = filter.into();
    }
    entry
}
