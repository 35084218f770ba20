//! The limits of a listener and its connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;

/// The buffer of a request's head, in bytes: above the limit of the gateway, so that the gateway
/// itself rejects a longer head.
pub(super) const HEAD_BUFFER: usize = 128 * 1024;

/// The limits of a listener and its connections.
#[derive(Debug, Clone)]
pub struct ServeLimits {
    /// The time that requests in flight have to complete after the shutdown began.
    pub drain: Duration,
    /// The number of connections that may be open. When one more arrives, one is closed for it: the
    /// oldest without a complete head, else the oldest idle one. While requests are in progress on
    /// all, it waits.
    pub max_connections: usize,
    /// The number of connections of one address; of an IPv6 address the /64 network counts. When
    /// one more arrives, one of the same address is closed for it; while requests are in progress
    /// on all of them, it is rejected.
    ///
    /// The address is the other end of the connection. Behind a proxy that is the proxy, so proxies
    /// belong into `unlimited_peers`.
    pub max_connections_per_address: usize,
    /// Addresses without a limit of their own: trusted proxies, which forward many clients, and
    /// this machine.
    pub unlimited_peers: Vec<IpNet>,
    /// The time for a request's head to arrive completely, from its first byte on; for the first
    /// request, from the start of the connection on.
    pub head_timeout: Duration,
    /// The time for which an idle connection is kept.
    pub idle_timeout: Duration,
    /// The time for which a client may read nothing of a response that is being sent. By HTTP/1.1
    /// its connection is closed then, by HTTP/2 its stream is reset.
    pub stall_timeout: Duration,
    /// The time for which a connection is new: its first head may be on its way, so idle ones are
    /// closed before it.
    pub new_for: Duration,
    /// The idle time after which the memory of a connection is released.
    pub rest: Duration,
}

impl ServeLimits {
    /// Returns the addresses of this machine, where a proxy may run that the configuration does not
    /// name.
    pub fn this_machine() -> Vec<IpNet> {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let mut networks = loopback.map(IpNet::from).to_vec();
        networks.extend(IpNet::new(Ipv4Addr::new(127, 0, 0, 0).into(), 8));
        networks
    }
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(10),
            max_connections: 10_000,
            max_connections_per_address: 1_000,
            unlimited_peers: Self::this_machine(),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            new_for: Duration::from_secs(1),
            rest: Duration::from_secs(2),
        }
    }
}

/// The time limits of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLimits {
    pub(super) head: Duration,
    pub(super) idle: Duration,
    pub(super) rest: Duration,
    pub(super) stall: Duration,
}
