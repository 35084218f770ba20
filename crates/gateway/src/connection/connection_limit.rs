//! The connection limit: how many connections may be open, and which one is closed when another one
//! arrives.
//!
//! The first to close are connections on which no complete head has arrived, the oldest first: they
//! cost a client nothing to open and to hold. Then those follow on which every request has its
//! response, then those that are so new that their first head may be on its way (otherwise new
//! connections would close each other). A connection with a request in progress closes only after
//! the response, and only if there are no others. A network that has reached its own limit loses
//! one of its own connections, never another network's.

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

use super::request_line::{Calls, ConnectionStanding};

/// The time that a connection has to close before the next one has to close, too.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The shortest time between two log lines that report that the limit is reached.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The candidates for closing that one scan of all connections collects: those without a head, and
/// others. Others are few, so that a connection that has become unfinished since the scan closes
/// before most of them.
const UNFINISHED_CANDIDATES: usize = 256;
const OTHER_CANDIDATES: usize = 16;

/// The settings of a [`ConnectionLimit`].
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimits {
    /// The number of connections that may be open.
    pub most: usize,
    /// The number of connections of one network that may be open.
    pub most_per_network: usize,
    /// Networks without a limit of their own.
    pub unlimited: Vec<IpNet>,
    /// The time for which a connection is new.
    pub new_for: Duration,
}

/// The connection limit of a listener.
pub(crate) struct ConnectionLimit {
    free: Arc<Semaphore>,
    limits: ConnectionLimits,
    open: Arc<Mutex<OpenConnections>>,
    /// The candidates of the last scan, in the order in which they close.
    candidates: VecDeque<Arc<LimitedConnection>>,
    reported_full: Option<Instant>,
    reported_network: Option<Instant>,
}

/// The open connections without a request to close.
#[derive(Default)]
struct OpenConnections {
    next: u64,
    by_age: BTreeMap<u64, Arc<LimitedConnection>>,
    /// Connections of networks with a limit.
    by_network: HashMap<IpAddr, BTreeSet<u64>>,
}

/// A connection, as the connection limit sees it.
#[derive(Debug)]
pub(crate) struct LimitedConnection {
    number: u64,
    since: Instant,
    network: Option<IpAddr>,
    /// The state of its requests.
    pub calls: Arc<Calls>,
    end: Notify,
    is_closing: AtomicBool,
}

/// The order in which connections are closed for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClosingOrder {
    Unfinished,
    Idle,
    New,
    Busy,
}

/// A connection that was admitted. Dropping it makes room for another one.
pub(crate) struct AdmittedConnection {
    connection: Arc<LimitedConnection>,
    open: Arc<Mutex<OpenConnections>>,
    _permit: OwnedSemaphorePermit,
}

impl LimitedConnection {
    /// Resolves when the connection is to close, as soon as no request is in progress on it.
    pub fn close_requested(&self) -> Notified<'_> {
        self.end.notified()
    }

    /// Returns true if the connection is to close.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    fn closing_order(&self, new_for: Duration) -> ClosingOrder {
        match self.calls.standing() {
            ConnectionStanding::Busy => ClosingOrder::Busy,
            ConnectionStanding::Idle => ClosingOrder::Idle,
            ConnectionStanding::Unfinished if self.since.elapsed() < new_for => ClosingOrder::New,
            ConnectionStanding::Unfinished => ClosingOrder::Unfinished,
        }
    }

    fn request_close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.end.notify_one();
    }
}

impl AdmittedConnection {
    /// Returns the connection.
    pub fn connection(&self) -> &LimitedConnection {
        &self.connection
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.connection);
    }
}

impl OpenConnections {
    fn admit(&mut self, network: Option<IpAddr>) -> Arc<LimitedConnection> {
        let number = self.next;
        self.next += 1;
        let connection = Arc::new(LimitedConnection {
            number,
            since: Instant::now(),
            network,
            calls: Arc::default(),
            end: Notify::new(),
            is_closing: AtomicBool::new(false),
        });
        self.by_age.insert(number, Arc::clone(&connection));
        if let Some(network) = network {
            self.by_network.entry(network).or_default().insert(number);
        }
        connection
    }

    fn remove(&mut self, connection: &LimitedConnection) {
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

    /// Returns connections that are to close first, in this order.
    fn scan(&self, new_for: Duration) -> VecDeque<Arc<LimitedConnection>> {
        let [mut unfinished, mut idle, mut new] = [const { VecDeque::new() }; 3];
        for connection in self.by_age.values() {
            let (found, most) = match connection.closing_order(new_for) {
                ClosingOrder::Unfinished => (&mut unfinished, UNFINISHED_CANDIDATES),
                ClosingOrder::Idle => (&mut idle, OTHER_CANDIDATES),
                ClosingOrder::New => (&mut new, OTHER_CANDIDATES),
                ClosingOrder::Busy => continue,
            };
            if found.len() < most {
                found.push_back(Arc::clone(connection));
            }
            if unfinished.len() >= UNFINISHED_CANDIDATES {
                break;
            }
        }
        [unfinished, idle, new].into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns the connection of a network that has to close for another one of the same network.
    fn excess_connection(&self, network: IpAddr, limits: &ConnectionLimits) -> ExcessConnection {
        let most = limits.most_per_network.max(1);
        let Some(numbers) = self.by_network.get(&network).filter(|numbers| numbers.len() >= most) else {
            return ExcessConnection::None;
        };
        let mut first: Option<(ClosingOrder, &Arc<LimitedConnection>)> = None;
        for connection in numbers.iter().filter_map(|number| self.by_age.get(number)) {
            let order = connection.closing_order(limits.new_for);
            if order != ClosingOrder::Busy && first.is_none_or(|(first, _)| order < first) {
                first = Some((order, connection));
            }
            if order == ClosingOrder::Unfinished {
                break;
            }
        }
        first.map_or(ExcessConnection::AllBusy, |(_, connection)| ExcessConnection::One(Arc::clone(connection)))
    }
}

/// The connection that a network loses for a new one.
enum ExcessConnection {
    None,
    One(Arc<LimitedConnection>),
    AllBusy,
}

impl ConnectionLimit {
    /// Returns a limit without connections.
    pub fn new(mut limits: ConnectionLimits) -> Self {
        limits.most = limits.most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(limits.most)),
            limits,
            open: Arc::default(),
            candidates: VecDeque::new(),
            reported_full: None,
            reported_network: None,
        }
    }

    /// Admits a connection from `peer` that has been accepted. While the limit is reached, others
    /// are requested to close, one after the other. `None`: its network has reached its limit, with
    /// requests in progress on all of its connections.
    pub async fn admit_from(&mut self, peer: IpAddr) -> Option<AdmittedConnection> {
        let network = self.limited_network(peer);
        if let Some(network) = network {
            let excess = lock(&self.open).excess_connection(network, &self.limits);
            match excess {
                ExcessConnection::None => {}
                ExcessConnection::One(connection) => self.close_connection(&connection),
                ExcessConnection::AllBusy => {
                    self.report_network(network);
                    return None;
                }
            }
        }
        let permit = self.permit().await;
        let connection = lock(&self.open).admit(network);
        Some(AdmittedConnection { connection, open: Arc::clone(&self.open), _permit: permit })
    }

    /// Closes one connection and waits a moment: the system has no room for another one.
    pub async fn make_room(&mut self) {
        self.close_one();
        tokio::time::sleep(PATIENCE).await;
    }

    /// Tells all connections to close.
    pub fn close(&self) {
        for connection in lock(&self.open).by_age.values() {
            connection.request_close();
        }
    }

    async fn permit(&mut self) -> OwnedSemaphorePermit {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return permit;
        }
        self.report_full();
        loop {
            self.close_one();
            let freed = tokio::time::timeout(PATIENCE, Arc::clone(&self.free).acquire_owned()).await;
            if let Ok(permit) = freed {
                return permit.expect("the semaphore is never closed");
            }
        }
    }

    /// Returns the network that a connection from `peer` is counted with.
    fn limited_network(&self, peer: IpAddr) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        let is_unlimited = self.limits.unlimited.iter().any(|network| network.contains(&peer));
        (!is_unlimited).then(|| ClientAddress(peer).network())
    }

    /// Closes the first connection in the order of this module; if requests are in progress on all,
    /// the oldest.
    fn close_one(&mut self) {
        let found = self.next_candidate().or_else(|| {
            self.candidates = lock(&self.open).scan(self.limits.new_for);
            self.next_candidate()
        });
        let found = found.or_else(|| lock(&self.open).by_age.values().next().cloned());
        if let Some(connection) = found {
            self.close_connection(&connection);
        }
    }

    /// Returns the next candidate whose state has not changed since the scan.
    fn next_candidate(&mut self) -> Option<Arc<LimitedConnection>> {
        loop {
            let connection = self.candidates.pop_front()?;
            if !connection.is_closing()
                && connection.calls.standing() != ConnectionStanding::Busy
                && lock(&self.open).by_age.contains_key(&connection.number)
            {
                return Some(connection);
            }
        }
    }

    /// Tells a connection to close, and stops counting it.
    fn close_connection(&self, connection: &LimitedConnection) {
        lock(&self.open).remove(connection);
        connection.request_close();
    }

    fn report_full(&mut self) {
        if is_due(&mut self.reported_full) {
            tracing::warn!(
                max_connections = self.limits.most,
                "the connection limit is reached: unfinished and idle connections are closed for new ones"
            );
        }
    }

    fn report_network(&mut self, network: IpAddr) {
        if is_due(&mut self.reported_network) {
            tracing::warn!(
                %network,
                max_connections_per_address = self.limits.most_per_network,
                "an address has requests in progress on as many connections as it may have: further connections are rejected"
            );
        }
    }
}

fn is_due(last: &mut Option<Instant>) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

// A panic in another thread leaves the maps usable: a number without its connection is skipped
fn lock(open: &Mutex<OpenConnections>) -> MutexGuard<'_, OpenConnections> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
