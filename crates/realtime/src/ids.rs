//! The ids of channels and of servers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use portico_base::random;

/// The id of a channel, unique on this server for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChannelId(u64);

impl ChannelId {
    /// Returns an id that no other channel has.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number, for another server.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the channel of another server that has this number there.
    pub fn of_number(number: u64) -> Self {
        Self(number)
    }
}

/// The id of one run of a server: one that was started again has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId([u8; 6]);

impl NodeId {
    /// Returns an id that no other server has.
    pub fn random() -> Self {
        Self(random::bytes())
    }

    /// Returns the bytes.
    pub fn bytes(self) -> [u8; 6] {
        self.0
    }
}

impl From<[u8; 6]> for NodeId {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}
