//! The state that all sockets and requests share, and the counts of sockets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use portico_base::Clock;
use portico_database::Database;
use portico_database::wire::ReadCoalescer;
use portico_tokens::{CurrentKeys, KeyRefresh, KeySet};
use tokio::time::Instant;

use crate::authorise::Authoriser;
use crate::changes::DatabaseChanges;
use crate::cluster::{ClusterFoundation, ClusterMember, ClusterTimes};
use crate::identity::TokenVerifier;
use crate::meter::{Meter, SAMPLE_PERIOD, Samples};
use crate::presence::Presence;
use crate::rooms::Rooms;
use crate::settings::RealtimeSettings;
use crate::socket::outbox::{Outbox, SocketCommand};
use crate::socket::{CloseSpread, FrameMemory, SocketEnd};
use crate::stream::{ChangeStream, ChangeStreamSettings, StreamConsumers, StreamTimes, StreamUse};

/// The connections, keys and clock of a server, which the service needs.
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

/// The state that all sockets and requests of the service share.
pub(crate) struct RealtimeService {
    pub settings: RealtimeSettings,
    pub verifier: TokenVerifier,
    pub clock: Clock,
    /// Runs reads, and has the pool for policy checks.
    pub reads: ReadCoalescer,
    pub rooms: Rooms,
    pub authoriser: Authoriser,
    pub presence: Presence,
    pub changes: DatabaseChanges,
    pub stream: ChangeStream,
    /// The memory of the frames that wait for clients.
    pub memory: Arc<FrameMemory>,
    /// Messages, sent and delivered.
    pub events: Arc<Meter>,
    pub joins: Meter,
    /// Joins that were rejected, for any reason.
    pub rejected_joins: Meter,
    pub presence_events: Meter,
    keys: CurrentKeys,
    /// The sockets with at least one join.
    sockets: AtomicUsize,
    /// The handshakes that were admitted and the open sockets.
    admitted: AtomicUsize,
    /// The open sockets, by number.
    connections: Mutex<HashMap<u64, Arc<Outbox>>>,
    next_connection: AtomicU64,
    /// The time of the last close, once the server is shutting down.
    closing: OnceLock<Instant>,
    /// The other servers, if there are any. `None` after this one has left.
    cluster: Mutex<Option<ClusterMember>>,
}

impl RealtimeService {
    /// Returns the service, with its stream and its place among the servers of the project. Needs a
    /// Tokio runtime.
    pub fn start(settings: RealtimeSettings, foundation: RealtimeFoundation, consumers: StreamConsumers) -> Arc<Self> {
        let RealtimeFoundation { database, reads, keys, clock, refresh_keys } = foundation;
        let events = Arc::new(Meter::default());
        let rooms = Rooms::new(Arc::clone(&events), settings.limits.max_events_per_second);
        let memory = FrameMemory::new(settings.limits.max_all_waiting_bytes);
        let stream = ChangeStream::new(ChangeStreamSettings {
            database: database.clone(),
            suffix: portico_base::random::base32_lower(12),
            consumers,
            times: StreamTimes::default(),
        });
        let service = Arc::new(Self {
            verifier: TokenVerifier::new(keys.clone(), clock.clone(), database.endpoint().user(), refresh_keys),
            clock,
            authoriser: Authoriser::new(reads.pool().clone(), settings.decisions_for),
            presence: Presence::new(rooms.clone(), &settings.limits),
            changes: DatabaseChanges::new(&database, reads.clone(), &settings, stream.follow(), &memory),
            stream,
            memory,
            rooms,
            reads,
            events,
            joins: Meter::default(),
            rejected_joins: Meter::default(),
            presence_events: Meter::default(),
            keys,
            sockets: AtomicUsize::new(0),
            admitted: AtomicUsize::new(0),
            connections: Mutex::default(),
            next_connection: AtomicU64::new(0),
            closing: OnceLock::new(),
            cluster: Mutex::default(),
            settings,
        });
        service.join_cluster(database);
        service
    }

    /// Maintains averages, and follows the keys. It does not return.
    pub async fn maintain(&self) {
        let meters: [&Meter; 4] = [&self.events, &self.joins, &self.presence_events, self.changes.deliveries()];
        let mut samples: [Samples; 4] = Default::default();
        let mut keys = self.keys.now();
        let mut ticks = tokio::time::interval(SAMPLE_PERIOD);
        // The first tick is immediate, and a sample needs a whole period
        ticks.tick().await;
        loop {
            ticks.tick().await;
            meters.iter().zip(&mut samples).for_each(|(meter, samples)| samples.take(meter));
            self.follow_keys(&mut keys);
        }
    }

    /// Closes every socket with the code of a restart, one after another `within` a time, and
    /// rejects joins from now on. Channels work until the close of their socket. Returns the time
    /// that is left until the last close; a further call changes nothing.
    pub fn close(&self, within: Duration) -> Duration {
        let begun = Instant::now();
        let spread = CloseSpread::new(self.open_sockets(), within);
        if self.closing.set(begun + spread.window()).is_ok() {
            let outboxes: Vec<_> = self.connections().values().cloned().collect();
            tokio::spawn(async move {
                for (position, outbox) in outboxes.into_iter().enumerate() {
                    tokio::time::sleep_until(begun + spread.delay(position)).await;
                    outbox.command(SocketCommand::Disconnect(SocketEnd::SERVICE_RESTART));
                }
            });
        }
        self.closing.get().map_or(Duration::ZERO, |end| end.saturating_duration_since(begun))
    }

    /// Leaves the other servers.
    pub async fn leave_cluster(&self) {
        let cluster = self.cluster().take();
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
    }

    /// Returns the number of open sockets.
    pub fn open_sockets(&self) -> usize {
        self.connections().len()
    }

    /// Returns true if one more socket may have channels.
    pub fn has_room_for_channels(&self) -> bool {
        self.joined_sockets() < self.settings.limits.max_sockets as u64
    }

    /// Returns the number of sockets with a channel, on all servers of the project.
    pub fn joined_sockets(&self) -> u64 {
        let elsewhere = self.cluster().as_ref().map_or(0, ClusterMember::remote_sockets);
        elsewhere.saturating_add(self.sockets.load(Ordering::Relaxed) as u64)
    }

    fn join_cluster(self: &Arc<Self>, database: Database) {
        let Some(settings) = &self.settings.cluster else { return };
        let service = Arc::downgrade(self);
        let sockets = move || service.upgrade().map_or(0, |service| service.sockets.load(Ordering::Relaxed) as u64);
        let foundation = ClusterFoundation {
            database,
            pool: self.reads.pool().clone(),
            rooms: self.rooms.clone(),
            presence: self.presence.clone(),
            clock: self.clock.clone(),
            sockets: Box::new(sockets),
        };
        *self.cluster() = Some(ClusterMember::start(settings, ClusterTimes::default(), foundation));
    }

    fn cluster(&self) -> MutexGuard<'_, Option<ClusterMember>> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place among the sockets until the result is dropped. `None`: all are taken. A
    /// handshake has its place before its connection is upgraded, so that many at once do not get
    /// past the limit.
    pub fn admit_socket(self: &Arc<Self>) -> Option<AdmittedSocket> {
        if !self.has_room_for_channels() {
            return None;
        }
        let most = self.settings.limits.max_connections;
        let one_more = |admitted: usize| (admitted < most).then_some(admitted + 1);
        self.admitted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(AdmittedSocket { service: Arc::clone(self) })
    }

    /// Returns true if the server is shutting down.
    pub fn is_closing(&self) -> bool {
        self.closing.get().is_some()
    }

    /// Counts a socket with a channel until the result is dropped. Meanwhile the stream of database
    /// changes runs.
    pub fn count_socket(self: &Arc<Self>) -> JoinedSocketCount {
        self.sockets.fetch_add(1, Ordering::Relaxed);
        JoinedSocketCount { service: Arc::clone(self), _stream: self.stream.use_stream() }
    }

    /// Counts a socket until the result is dropped.
    pub fn count_connection(self: &Arc<Self>, outbox: &Arc<Outbox>) -> OpenSocketCount {
        let number = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connections().insert(number, Arc::clone(outbox));
        OpenSocketCount { service: Arc::clone(self), number }
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Arc<Outbox>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every socket check its tokens if the keys have changed: a key may have been revoked.
    /// Channels of void tokens end at once, and the closes of their sockets are spread.
    fn follow_keys(&self, known: &mut Arc<KeySet>) {
        let keys = self.keys.now();
        if Arc::ptr_eq(known, &keys) {
            return;
        }
        *known = keys;
        let connections = self.connections();
        // The next look at the keys comes after the last close
        let spread = CloseSpread::new(connections.len(), SAMPLE_PERIOD);
        for (position, outbox) in connections.values().enumerate() {
            outbox.command(SocketCommand::CheckTokens { close_after: spread.delay(position) });
        }
    }
}

/// Counts a socket with a channel until it is dropped.
pub(crate) struct JoinedSocketCount {
    service: Arc<RealtimeService>,
    _stream: StreamUse,
}

impl Drop for JoinedSocketCount {
    fn drop(&mut self) {
        self.service.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place among the sockets, until it is dropped.
pub(crate) struct AdmittedSocket {
    service: Arc<RealtimeService>,
}

impl Drop for AdmittedSocket {
    fn drop(&mut self) {
        self.service.admitted.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a socket until it is dropped.
pub(crate) struct OpenSocketCount {
    service: Arc<RealtimeService>,
    number: u64,
}

impl Drop for OpenSocketCount {
    fn drop(&mut self) {
        self.service.connections().remove(&self.number);
    }
}
