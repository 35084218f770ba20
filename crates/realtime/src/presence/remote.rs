//! The presence of other servers.

use std::fmt;
use std::sync::Arc;

use super::diff::PresenceMeta;
use crate::ids::ChannelId;
use crate::rooms::RoomKey;

/// Sends the changes of this server's channels to other servers. Nothing waits for them.
pub(crate) trait RemotePresence: fmt::Debug + Send + Sync {
    /// Sends that a channel tracks.
    fn tracked(&self, room: &RoomKey, channel: ChannelId, key: &Arc<str>, meta: &PresenceMeta);

    /// Sends that a channel does not track any more.
    fn untracked(&self, room: &RoomKey, channel: ChannelId);
}
