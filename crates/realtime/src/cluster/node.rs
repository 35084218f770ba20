//! The id of a server.

use std::fmt;

use portico_base::random;

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
