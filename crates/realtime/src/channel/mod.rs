//! Channels: the payload of a join, and the state of a joined channel.
//!
//! - `join`: the payload of `phx_join`
//! - `channels`: the channels of one socket, and the messages of its client
//! - `joined`: one channel
//! - `work`: what a channel waits for, such as the policies: it runs beside the socket, and the
//!   channel's later messages wait for it

pub(crate) mod channels;
pub(crate) mod join;
mod joined;
mod work;

use std::sync::atomic::{AtomicU64, Ordering};

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
