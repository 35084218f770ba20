//! A database, identities and channels for the tests of this crate.

use std::sync::Arc;
use std::task::Waker;

use portico_base::{Clock, Secret};
use portico_database::wire::{CoalescingSettings, Pool, ReadCoalescer, WirePoolSettings};
use portico_database::{Database, Endpoint, PoolSettings};
use portico_tokens::{ApiKeys, CurrentKeys, KeyRing};
use serde_json::{Value, json};

use crate::identity::{ChannelIdentity, TokenVerifier};
use crate::ids::ChannelId;
use crate::rooms::{RoomKey, Subscriber, SubscriberHead};
use crate::service::{RealtimeFoundation, RealtimeService};
use crate::settings::{RealtimeLimits, RealtimeSettings};
use crate::socket::FrameMemory;
use crate::socket::frame::{Frame, Reference, Version};
use crate::socket::outbox::{Outbox, OutboxItem};
use crate::stream::{ChangeBatch, MessageBatch, StreamConsumers};

/// A database of its own, with a connection of the superuser.
pub(crate) struct ScratchDatabase {
    database: portico_testkit::TestDatabase,
    pub sql: tokio_postgres::Client,
}

impl ScratchDatabase {
    pub async fn new() -> Self {
        let database = portico_testkit::TestDatabase::new().await;
        let sql = portico_database::connect(database.endpoint()).await.unwrap();
        // The clusters of tests write their log a moment later, and the stream comes from the log
        sql.batch_execute("set synchronous_commit = local").await.unwrap();
        Self { database, sql }
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.database.endpoint()
    }

    /// Opens a pool of the data API's login.
    pub fn pool(&self, settings: WirePoolSettings) -> Pool {
        Pool::open(self.endpoint(), "authenticator", settings).unwrap()
    }

    pub async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap();
    }

    /// Returns a single text.
    pub async fn value(&self, sql: &str) -> String {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }
}

pub(crate) fn open(endpoint: &Endpoint) -> Database {
    Database::open(endpoint, PoolSettings::default()).unwrap()
}

/// The service on a database, and what its stream sends.
pub(crate) struct TestService {
    pub service: Arc<RealtimeService>,
    keys: CurrentKeys,
    _changes: tokio::sync::mpsc::Receiver<ChangeBatch>,
    _messages: tokio::sync::mpsc::Receiver<MessageBatch>,
}

impl TestService {
    pub fn new(database: &ScratchDatabase) -> Self {
        Self::with_settings(database, RealtimeSettings::default())
    }

    pub fn with_settings(database: &ScratchDatabase, settings: RealtimeSettings) -> Self {
        Self::at(database.endpoint(), settings)
    }

    /// Returns the service on a database that does not respond, for tests that need none.
    pub fn without_database(settings: RealtimeSettings) -> Self {
        Self::at(&"postgresql://a@127.0.0.1:1/none".parse().unwrap(), settings)
    }

    fn at(endpoint: &Endpoint, settings: RealtimeSettings) -> Self {
        let keys =
            CurrentKeys::new(ring("a secret of the tests that is long enough"), Arc::new(ApiKeys::development()));
        let (changes, changes_receiver) = tokio::sync::mpsc::channel(16);
        let (messages, messages_receiver) = tokio::sync::mpsc::channel(16);
        let pool = Pool::open(endpoint, "authenticator", WirePoolSettings::default()).unwrap();
        let foundation = RealtimeFoundation {
            database: open(endpoint),
            reads: ReadCoalescer::new(pool, &CoalescingSettings::default()),
            keys: keys.clone(),
            clock: Clock::system(),
            refresh_keys: None,
        };
        let consumers = StreamConsumers { changes, messages };
        let service = RealtimeService::start(settings, foundation, consumers);
        Self { service, keys, _changes: changes_receiver, _messages: messages_receiver }
    }

    /// Returns a token of a role.
    pub fn token(&self, role: &str) -> String {
        self.token_with(json!({ "role": role }))
    }

    /// Returns a token with these claims; `exp` is added.
    pub fn token_with(&self, mut claims: Value) -> String {
        claims["exp"] = json!(4_000_000_000_u64);
        self.keys.sign(&claims).unwrap()
    }

    /// Returns a token of a role that has expired.
    pub fn expired_token(&self, role: &str) -> String {
        self.keys.sign(&json!({ "role": role, "exp": 1 })).unwrap()
    }

    /// Replaces the key that tokens are signed with. Those of the key before are void.
    pub fn replace_key(&self) {
        self.keys.replace(ring("another secret of the tests that is long enough"), Arc::new(ApiKeys::development()));
    }
}

fn ring(secret: &str) -> Arc<KeyRing> {
    Arc::new(KeyRing::hs256(&Secret::new(secret)))
}

/// Returns the identity of a token with these claims; `exp` is added.
pub(crate) fn identity(mut claims: Value) -> ChannelIdentity {
    claims["exp"] = json!(4_000_000_000_u64);
    let ring = KeyRing::hs256(&Secret::new("a secret of the tests that is long enough"));
    let token = ring.sign(&claims).unwrap();
    let keys = CurrentKeys::new(Arc::new(ring), Arc::new(ApiKeys::development()));
    TokenVerifier::new(keys, Clock::system(), "login", None).verify(&token, true).unwrap()
}

/// Returns the identity of a signed-in person.
pub(crate) fn person(subject: &str) -> ChannelIdentity {
    identity(json!({ "role": "authenticated", "sub": subject }))
}

/// A channel and what was sent to it.
pub(crate) struct TestChannel {
    pub subscriber: Arc<Subscriber>,
    outbox: Arc<Outbox>,
}

impl TestChannel {
    /// Returns a channel that receives everything.
    pub fn new(room: &RoomKey, version: Version) -> Self {
        Self::with_limits(room, version, &RealtimeLimits::default())
    }

    /// Returns a channel that receives everything within some limits.
    pub fn with_limits(room: &RoomKey, version: Version, limits: &RealtimeLimits) -> Self {
        let memory = FrameMemory::new(usize::MAX);
        Self::with_outbox(room, version, Arc::new(Outbox::new(limits, &memory)))
    }

    /// Returns another channel of the same socket.
    pub fn beside(&self, room: &RoomKey) -> Self {
        Self::with_outbox(room, self.subscriber.version(), Arc::clone(&self.outbox))
    }

    fn with_outbox(room: &RoomKey, version: Version, outbox: Arc<Outbox>) -> Self {
        let head = SubscriberHead { id: ChannelId::next(), room: room.clone(), version, join_ref: Reference::NULL };
        let subscriber = Subscriber::new(head, Arc::clone(&outbox));
        subscriber.set_broadcasts(true);
        subscriber.set_presence(true);
        Self { subscriber, outbox }
    }

    /// Returns the frames that have arrived.
    pub fn received(&self) -> Vec<Frame> {
        std::iter::from_fn(|| match self.outbox.next(Waker::noop()) {
            OutboxItem::Frame(frame) => Some(frame),
            _ => None,
        })
        .collect()
    }

    /// Waits for the next frame.
    pub async fn next(&self) -> Frame {
        std::future::poll_fn(|context| match self.outbox.next(context.waker()) {
            OutboxItem::Frame(frame) => std::task::Poll::Ready(frame),
            _ => std::task::Poll::Pending,
        })
        .await
    }
}

/// Returns a text frame as JSON.
pub(crate) fn json_of(frame: &Frame) -> Value {
    match frame {
        Frame::Text(text) => serde_json::from_slice(text).unwrap(),
        Frame::Binary(_) => panic!("a binary frame"),
    }
}

pub(crate) fn room(private: bool, topic: &str) -> RoomKey {
    RoomKey { private, topic: topic.into() }
}
