//! The names of rooms, and messages to them.

use std::fmt;
use std::sync::Arc;

use super::message::RoomMessage;
use crate::ids::ChannelId;

/// The name of a room.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RoomKey {
    /// Private and public rooms of one topic are separate.
    pub private: bool,
    /// The topic without its prefix.
    pub topic: Arc<str>,
}

/// A message to a room.
#[derive(Debug, Clone)]
pub(crate) struct Publication {
    pub room: RoomKey,
    pub message: Arc<RoomMessage>,
    /// The channel that does not receive it: the sender.
    pub except: Option<ChannelId>,
}

/// The rooms of other servers.
pub(crate) trait RemoteRooms: fmt::Debug + Send + Sync {
    /// Sends what a channel of this server has published to the rooms of the others. Does not wait.
    fn publish(&self, publication: &Publication);
}
