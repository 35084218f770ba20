//! The subject of a probe.

use std::sync::Arc;

use crate::identity::ChannelIdentity;

/// The subject of a probe: everything that a policy can read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub identity: &'a ChannelIdentity,
    /// The headers of the request that policies may read, as a JSON object.
    pub headers: &'a str,
    /// The topic without its prefix.
    pub topic: &'a str,
}

/// The subject of policies, as owned values for work that outlives a message.
#[derive(Clone)]
pub(crate) struct OwnedSubject {
    pub identity: Arc<ChannelIdentity>,
    pub headers: Arc<str>,
    pub topic: Arc<str>,
}

impl OwnedSubject {
    /// Returns the subject, for a probe.
    pub fn borrowed(&self) -> Subject<'_> {
        Subject { identity: &self.identity, headers: &self.headers, topic: &self.topic }
    }
}
