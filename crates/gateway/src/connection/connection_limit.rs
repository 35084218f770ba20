//! Slots for connections: how many there may be, and which one ends when another one needs its slot.
//!
//! The first to end are connections on which no whole head has arrived, the oldest first: they cost a client nothing to
//! open and to hold. Then those follow on which everything is answered; then those that are so new that their first head may
//! be on its way, or newcomers would end each other. A connection on which a request is under way ends only behind its
//! answer, and only where there are no others. A network that has as many connections as one may have gives up one of its
//! own, never another's.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use portico_base::ClientAddress;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::request_line::{Calls, Standing};

/// The time that one connection has to end before the next one has to, too.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The least time between two lines of the log that say that there is no room.
const SILENCE: Duration = Duration::from_secs(60);

/// Connections that one look at all of them finds to end for others: those without a head, and others. Others are few, so
/// that a connection that has become unfinished since the look ends before most of them.
const UNFINISHED_FOUND: usize = 256;
const OTHERS_FOUND: usize = 16;

/// The limits of [`ConnectionLimit`].
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimits {
    /// Connections at a time.
    pub most: usize,
    /// Connections of one network at a time.
    pub most_per_network: usize,
    /// Networks whose connections are not counted together.
    pub unlimited: Vec<IpNet>,
    /// The time for which a connection is new.
    pub new_for: Duration,
}

/// The slots of a listener.
pub(crate) struct ConnectionLimit {
    free: Arc<Semaphore>,
    limits: ConnectionLimits,
    open: Arc<Mutex<Open>>,
    /// Connections that a look found, in the order in which they have to end.
    found: VecDeque<Arc<Connection>>,
    reported_full: Option<Instant>,
    reported_network: Option<Instant>,
}

/// The connections that are open and were not asked to end.
#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, Arc<Connection>>,
    /// Of networks that are limited.
    by_network: HashMap<IpAddr, BTreeSet<u64>>,
}

/// A connection, as the others know it.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    since: Instant,
    network: Option<IpAddr>,
    /// Its requests.
    pub calls: Arc<Calls>,
    end: Notify,
    is_ending: AtomicBool,
}

/// The order in which connections end for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Unfinished,
    Idle,
    New,
    Busy,
}

/// A connection's slot, which is free when this is dropped.
pub(crate) struct AdmittedConnection {
    connection: Arc<Connection>,
    open: Arc<Mutex<Open>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Resolves when the connection is to end, as soon as nothing is under way on it.
    pub fn asked_to_end(&self) -> Notified<'_> {
        self.end.notified()
    }

    /// Returns true if it was asked to end.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    fn rank(&self, new_for: Duration) -> Rank {
        match self.calls.standing() {
            Standing::Busy => Rank::Busy,
            Standing::Idle => Rank::Idle,
            Standing::Unfinished if self.since.elapsed() < new_for => Rank::New,
            Standing::Unfinished => Rank::Unfinished,
        }
    }

    fn ask_to_end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.end.notify_one();
    }
}

impl AdmittedConnection {
    /// The connection that has it.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        lock(&self.open).forget(&self.connection);
    }
}

impl Open {
    fn admit(&mut self, network: Option<IpAddr>) -> Arc<Connection> {
        let number = self.next;
        self.next += 1;
        let connection = Arc::new(Connection {
            number,
            since: Instant::now(),
            network,
            calls: Arc::default(),
            end: Notify::new(),
            is_ending: AtomicBool::new(false),
        });
        self.by_age.insert(number, Arc::clone(&connection));
        if let Some(network) = network {
            self.by_network.entry(network).or_default().insert(number);
        }
        connection
    }

    fn forget(&mut self, connection: &Connection) {
        self.by_age.remove(&connection.number);
        if let Some(network) = connection.network
            && let Some(numbers) = self.by_network.get_mut(&network)
        {
            numbers.remove(&connection.number);
            if numbers.is_empty() {
                self.by_network.remove(&network);
            }
        }
    }

    /// Some of those that are to end first, in this order.
    fn dispensable(&self, new_for: Duration) -> VecDeque<Arc<Connection>> {
        let [mut unfinished, mut idle, mut new] = [const { VecDeque::new() }; 3];
        for connection in self.by_age.values() {
            let (found, most) = match connection.rank(new_for) {
                Rank::Unfinished => (&mut unfinished, UNFINISHED_FOUND),
                Rank::Idle => (&mut idle, OTHERS_FOUND),
                Rank::New => (&mut new, OTHERS_FOUND),
                Rank::Busy => continue,
            };
            if found.len() < most {
                found.push_back(Arc::clone(connection));
            }
            if unfinished.len() >= UNFINISHED_FOUND {
                break;
            }
        }
        [unfinished, idle, new].into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The one of a network that is to end for another one of the same network.
    fn surplus(&self, network: IpAddr, limits: &ConnectionLimits) -> Surplus {
        let most = limits.most_per_network.max(1);
        let Some(numbers) = self.by_network.get(&network).filter(|numbers| numbers.len() >= most) else {
            return Surplus::None;
        };
        let mut first: Option<(Rank, &Arc<Connection>)> = None;
        for connection in numbers.iter().filter_map(|number| self.by_age.get(number)) {
            let rank = connection.rank(limits.new_for);
            if rank != Rank::Busy && first.is_none_or(|(first, _)| rank < first) {
                first = Some((rank, connection));
            }
            if rank == Rank::Unfinished {
                break;
            }
        }
        first.map_or(Surplus::AllBusy, |(_, connection)| Surplus::One(Arc::clone(connection)))
    }
}

/// The connection that a network has to give up for one more.
enum Surplus {
    None,
    One(Arc<Connection>),
    AllBusy,
}

impl ConnectionLimit {
    /// As many free ones as there may be.
    pub fn new(mut limits: ConnectionLimits) -> Self {
        limits.most = limits.most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(limits.most)),
            limits,
            open: Arc::default(),
            found: VecDeque::new(),
            reported_full: None,
            reported_network: None,
        }
    }

    /// A slot for a connection from `peer` that is there already. While none is free, others are asked to end, one after the other.
    /// `None`: requests are under way on all connections of its network, and it may have no more.
    pub async fn take(&mut self, peer: IpAddr) -> Option<AdmittedConnection> {
        let network = self.limited_network(peer);
        if let Some(network) = network {
            let surplus = lock(&self.open).surplus(network, &self.limits);
            match surplus {
                Surplus::None => {}
                Surplus::One(connection) => self.end(&connection),
                Surplus::AllBusy => {
                    self.report_network(network);
                    return None;
                }
            }
        }
        let permit = self.permit().await;
        let connection = lock(&self.open).admit(network);
        Some(AdmittedConnection { connection, open: Arc::clone(&self.open), _permit: permit })
    }

    /// Asks one connection to end, and gives it some time for that: the system has no room for another one.
    pub async fn make_room(&mut self) {
        self.end_one();
        tokio::time::sleep(PATIENCE).await;
    }

    /// Asks all to end.
    pub fn close(&self) {
        for connection in lock(&self.open).by_age.values() {
            connection.ask_to_end();
        }
    }

    async fn permit(&mut self) -> OwnedSemaphorePermit {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return permit;
        }
        self.report_full();
        loop {
            self.end_one();
            let freed = tokio::time::timeout(PATIENCE, Arc::clone(&self.free).acquire_owned()).await;
            if let Ok(permit) = freed {
                return permit.expect("the semaphore is never closed");
            }
        }
    }

    /// The network that a connection from `peer` is counted with.
    fn limited_network(&self, peer: IpAddr) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        let is_unlimited = self.limits.unlimited.iter().any(|network| network.contains(&peer));
        (!is_unlimited).then(|| ClientAddress(peer).network())
    }

    /// Asks the one to end that is most dispensable; where requests are under way on all, the oldest.
    fn end_one(&mut self) {
        let found = self.next_found().or_else(|| {
            self.found = lock(&self.open).dispensable(self.limits.new_for);
            self.next_found()
        });
        let found = found.or_else(|| lock(&self.open).by_age.values().next().cloned());
        if let Some(connection) = found {
            self.end(&connection);
        }
    }

    /// The next one that was found, and is what it was.
    fn next_found(&mut self) -> Option<Arc<Connection>> {
        loop {
            let connection = self.found.pop_front()?;
            if !connection.is_ending()
                && connection.calls.standing() != Standing::Busy
                && lock(&self.open).by_age.contains_key(&connection.number)
            {
                return Some(connection);
            }
        }
    }

    /// Asks a connection to end, which counts no more.
    fn end(&self, connection: &Connection) {
        lock(&self.open).forget(connection);
        connection.ask_to_end();
    }

    fn report_full(&mut self) {
        if is_due(&mut self.reported_full) {
            tracing::warn!(
                max_connections = self.limits.most,
                "as many connections are open as may be: unfinished and idle ones are ended for those that come"
            );
        }
    }

    fn report_network(&mut self, network: IpAddr) {
        if is_due(&mut self.reported_network) {
            tracing::warn!(
                %network,
                max_connections_per_address = self.limits.most_per_network,
                "an address has as many requests under way as it may have connections: further ones are refused"
            );
        }
    }
}

fn is_due(last: &mut Option<Instant>) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= SILENCE);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

// A panic elsewhere leaves the maps whole enough: a number without its connection is skipped
fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
