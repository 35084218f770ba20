//! The public interface of the service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Request;
use axum::response::Response;
use portico_base::Clock;
use portico_database::Database;
use portico_database::wire::ReadCoalescer;
use portico_tokens::{CurrentKeys, KeySet};
use serde_json::json;
use tokio::sync::mpsc;

use crate::authorise::Authoriser;
use crate::broadcast;
use crate::changes::Changes;
use crate::channel::channels::SocketEnd;
use crate::cluster::{Cluster, ClusterParts, ClusterTimes};
use crate::identity::{KeyRefresh, TokenVerifier};
use crate::meter::{Meter, SAMPLE_PERIOD, Samples};
use crate::presence::Presence;
use crate::rooms::Rooms;
use crate::routes;
use crate::settings::RealtimeSettings;
use crate::socket::frame::{EventHead, Reference, TOPIC_PREFIX, encode_event};
use crate::socket::outbox::{Command, Outbox};
use crate::stream::{ChangeStream, MessageBatch, StreamConsumers, StreamSettings, StreamTimes, StreamUse};

/// The transactions that wait for a consumer of the stream.
const STREAM_QUEUE: usize = 64;
/// The end of sockets that are closed since the server restarts.
pub(crate) const SERVICE_RESTART: SocketEnd = SocketEnd { code: 1012, reason: "the server restarts" };

/// The state that all sockets and requests of the service share.
pub(crate) struct Service {
    pub settings: RealtimeSettings,
    pub verifier: TokenVerifier,
    pub clock: Clock,
    /// Runs reads, and has the pool for policy checks.
    pub reads: ReadCoalescer,
    pub rooms: Rooms,
    pub authoriser: Authoriser,
    pub presence: Presence,
    pub changes: Changes,
    pub stream: ChangeStream,
    /// Messages, sent and delivered.
    pub events: Arc<Meter>,
    pub joins: Meter,
    pub presence_events: Meter,
    keys: CurrentKeys,
    /// The sockets with at least one join.
    sockets: AtomicUsize,
    /// All sockets, by number.
    connections: Mutex<HashMap<u64, Arc<Outbox>>>,
    next_connection: AtomicU64,
    closing: AtomicBool,
    /// The other servers, if there are any. `None` after this one has left.
    cluster: Mutex<Option<Cluster>>,
}

/// The parts of a server that the service needs.
pub struct RealtimeFoundation {
    /// The connections to the database.
    pub database: Database,
    /// Runs reads, on connections that act as `authenticator`.
    pub reads: ReadCoalescer,
    /// The keys that tokens are verified with.
    pub keys: CurrentKeys,
    /// The clock.
    pub clock: Clock,
    /// Reads keys again that a token names and that are not known.
    pub refresh_keys: Option<KeyRefresh>,
}

/// The origin of a request.
pub struct RequestOrigin {
    /// False for a page that may not use secret keys.
    pub may_be_privileged: bool,
    /// Kept for as long as the connection is open, if it is upgraded: its place among the
    /// connections of the listener.
    pub connection: Option<Box<dyn Send + Sync>>,
}

/// The realtime service. Clones share all state.
#[derive(Clone)]
pub struct Realtime {
    service: Arc<Service>,
}

impl Realtime {
    /// Makes the service, and starts the tasks that deliver what the database sends. Needs a Tokio
    /// runtime.
    #[must_use]
    pub fn new(settings: RealtimeSettings, foundation: RealtimeFoundation) -> Self {
        let RealtimeFoundation { database, reads, keys, clock, refresh_keys } = foundation;
        let events = Arc::new(Meter::default());
        let rooms = Rooms::new(Arc::clone(&events), settings.limits.max_events_per_second);
        let (changes_sender, changes) = mpsc::channel(STREAM_QUEUE);
        let (messages_sender, messages) = mpsc::channel(STREAM_QUEUE);
        let stream = ChangeStream::new(StreamSettings {
            database: database.clone(),
            suffix: portico_base::random::base32_lower(12),
            consumers: StreamConsumers { changes: changes_sender, messages: messages_sender },
            times: StreamTimes::default(),
        });
        let service = Arc::new(Service {
            verifier: TokenVerifier::new(keys.clone(), clock.clone(), database.endpoint().user(), refresh_keys),
            clock,
            authoriser: Authoriser::new(reads.pool().clone(), settings.decisions_for),
            presence: Presence::new(rooms.clone()),
            changes: Changes::new(reads.clone(), &settings, stream.state()),
            stream,
            rooms,
            reads,
            events,
            joins: Meter::default(),
            presence_events: Meter::default(),
            keys,
            sockets: AtomicUsize::new(0),
            connections: Mutex::default(),
            next_connection: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            cluster: Mutex::default(),
            settings,
        });
        service.join_cluster(database);
        tokio::spawn(deliver_messages(Arc::downgrade(&service), messages));
        tokio::spawn(service.changes.clone().run(changes));
        Self { service }
    }

    /// Answers a request below `/realtime/v1`; its path comes without that prefix.
    pub async fn answer(self, request: Request, origin: RequestOrigin) -> Response {
        routes::answer(&self.service, request, origin).await
    }

    /// Maintains averages, and follows the keys. It does not return.
    pub async fn maintain(self) {
        let service = &*self.service;
        let meters: [&Meter; 4] =
            [&service.events, &service.joins, &service.presence_events, service.changes.deliveries()];
        let mut samples: [Samples; 4] = Default::default();
        let mut keys = service.keys.now();
        let mut ticks = tokio::time::interval(SAMPLE_PERIOD);
        // The first tick is immediate, and a sample needs a whole period
        ticks.tick().await;
        loop {
            ticks.tick().await;
            meters.iter().zip(&mut samples).for_each(|(meter, samples)| samples.take(meter));
            service.follow_keys(&mut keys);
        }
    }

    /// Leaves the other servers. Call it before the database is closed.
    pub async fn leave_cluster(&self) {
        let cluster = self.service.cluster().take();
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
    }

    /// Closes every socket with the code of a restart, and refuses joins from now on.
    pub fn close(&self) {
        let service = &*self.service;
        service.closing.store(true, Ordering::SeqCst);
        let payload = json!({ "extension": "system", "status": "ok", "message": "Server requested disconnect" });
        let payload = payload.to_string();
        service.rooms.for_each_subscriber(|subscriber| {
            let topic = format!("{TOPIC_PREFIX}{}", subscriber.room().topic);
            let (join_ref, reference) = (&Reference::NULL, &Reference::NULL);
            let head = EventHead { join_ref, reference, topic: &topic, event: "system" };
            subscriber.send(encode_event(subscriber.version(), head, payload.as_bytes()));
        });
        for outbox in service.connections().values() {
            outbox.command(Command::Disconnect(SERVICE_RESTART));
        }
    }

    /// Returns the number of open sockets.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.service.connections().len()
    }
}

impl Service {
    /// Returns true if one more socket may have channels.
    pub fn has_room_for_channels(&self) -> bool {
        let elsewhere = self.cluster().as_ref().map_or(0, Cluster::remote_sockets);
        let elsewhere = usize::try_from(elsewhere).unwrap_or(usize::MAX);
        self.sockets.load(Ordering::Relaxed).saturating_add(elsewhere) < self.settings.limits.max_sockets
    }

    fn join_cluster(self: &Arc<Self>, database: Database) {
        let Some(settings) = &self.settings.cluster else { return };
        let service = Arc::downgrade(self);
        let sockets = move || service.upgrade().map_or(0, |service| service.sockets.load(Ordering::Relaxed) as u64);
        let parts = ClusterParts {
            database,
            pool: self.reads.pool().clone(),
            rooms: self.rooms.clone(),
            presence: self.presence.clone(),
            clock: self.clock.clone(),
            sockets: Box::new(sockets),
        };
        *self.cluster() = Some(Cluster::start(settings, ClusterTimes::default(), parts));
    }

    fn cluster(&self) -> MutexGuard<'_, Option<Cluster>> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if there may be one more socket.
    pub fn has_room_for_sockets(&self) -> bool {
        self.has_room_for_channels() && self.connections().len() < self.settings.limits.max_connections
    }

    /// Returns true if the server is shutting down.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Counts a socket with a channel until the result is dropped. Meanwhile the stream of database
    /// changes runs.
    pub fn count_socket(self: &Arc<Self>) -> SocketCount {
        self.sockets.fetch_add(1, Ordering::Relaxed);
        SocketCount { service: Arc::clone(self), _stream: self.stream.use_stream() }
    }

    /// Counts a socket until the result is dropped.
    pub fn count_connection(self: &Arc<Self>, outbox: &Arc<Outbox>) -> ConnectionCount {
        let number = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connections().insert(number, Arc::clone(outbox));
        ConnectionCount { service: Arc::clone(self), number }
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Arc<Outbox>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every socket check its tokens if the keys have changed: a key may have been revoked.
    fn follow_keys(&self, known: &mut Arc<KeySet>) {
        let keys = self.keys.now();
        if Arc::ptr_eq(known, &keys) {
            return;
        }
        *known = keys;
        for outbox in self.connections().values() {
            outbox.command(Command::CheckTokens);
        }
    }
}

/// Counts a socket with a channel until it is dropped.
pub(crate) struct SocketCount {
    service: Arc<Service>,
    _stream: StreamUse,
}

impl Drop for SocketCount {
    fn drop(&mut self) {
        self.service.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a socket until it is dropped.
pub(crate) struct ConnectionCount {
    service: Arc<Service>,
    number: u64,
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.service.connections().remove(&self.number);
    }
}

/// Broadcasts the messages that SQL writes, until the stream or the service ends.
async fn deliver_messages(service: std::sync::Weak<Service>, mut batches: mpsc::Receiver<MessageBatch>) {
    while let Some(batch) = batches.recv().await {
        let Some(service) = service.upgrade() else { return };
        for message in batch.messages {
            broadcast::publish_message(&service, message).await;
        }
    }
}
