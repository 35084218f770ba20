//! One channel: its configuration, its permissions, and what waits for its work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::AbortHandle;
use tokio::time::Instant;

use crate::authorise::{OwnedSubject, ReadPermissions, WritePermissions};
use crate::changes::{ChangesSubscription, PreparedEntries};
use crate::identity::{ChannelIdentity, TokenVerifier};
use crate::presence::{CallLimit, Presence};
use crate::rooms::Subscriber;
use crate::socket::frame::{Inbound, Reference, UserBroadcast};

/// The longest time between two checks of a channel's token.
const TOKEN_CHECK_PERIOD: Duration = Duration::from_secs(5 * 60);

/// The state of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinState {
    /// The join is not answered yet.
    Joining,
    Joined,
}

/// A channel of a socket.
pub(super) struct Channel {
    pub subscriber: Arc<Subscriber>,
    pub state: JoinState,
    /// The reference of the join message itself, for its reply.
    pub join_reference: Reference,
    /// The `join_ref` of the join.
    pub join_ref: Reference,
    pub broadcast_self: bool,
    pub broadcast_ack: bool,
    pub presence_enabled: bool,
    pub presence_key: Box<str>,
    pub replication_ready: bool,
    /// The entries of the join, for a subscription and for every new one.
    pub changes: Option<PreparedEntries>,
    pub subscription: Option<ChangesSubscription>,
    pub token: Arc<str>,
    pub identity: Arc<ChannelIdentity>,
    /// The token is checked again then.
    pub check_token_at: Instant,
    /// `None` in a public channel, where everything is allowed.
    pub read: Option<ReadPermissions>,
    /// `None` until the first message that needs them.
    pub write: Option<WritePermissions>,
    pub presence_calls: CallLimit,
    /// Work is in progress, and later messages wait for it.
    pub busy: bool,
    pub waiting: VecDeque<Inbound>,
    /// Ends the work in progress.
    pub work: Option<AbortHandle>,
    /// Ends the wait for the messages of the database.
    pub replication: Option<AbortHandle>,
    /// The join had no reference, so any `phx_leave` belongs to it.
    pub joined_without_reference: bool,
}

/// A message that waits for permissions.
pub(super) struct WaitingMessage {
    pub reference: Reference,
    pub content: MessageContent,
}

/// The content of a message that may need permissions.
pub(super) enum MessageContent {
    /// The payload object of a text broadcast.
    Broadcast(bytes::Bytes),
    UserBroadcast(UserBroadcast),
    /// The payload of a presence event.
    Presence(bytes::Bytes),
}

impl Channel {
    /// Returns true in a private channel.
    pub fn is_private(&self) -> bool {
        self.subscriber.room().private
    }

    /// Returns what policies see of this channel.
    pub fn subject(&self, headers: &Arc<str>) -> OwnedSubject {
        OwnedSubject {
            identity: Arc::clone(&self.identity),
            headers: Arc::clone(headers),
            topic: Arc::clone(&self.subscriber.room().topic),
        }
    }

    /// Puts the identity of a token in force.
    pub fn set_identity(&mut self, identity: Arc<ChannelIdentity>, verifier: &TokenVerifier) {
        self.check_token_at = token_check(&identity, verifier);
        self.identity = identity;
    }

    /// Puts read permissions in force.
    pub fn set_read(&mut self, permissions: ReadPermissions) {
        self.subscriber.set_broadcasts(permissions.broadcast);
        self.subscriber.set_presence(permissions.presence == Some(true));
        self.read = Some(permissions);
    }

    /// Sends the presence of the room, if the channel asked for it and receives its changes from
    /// now on.
    pub fn send_presence_state(&self, presence: &Presence) {
        if self.presence_enabled && self.subscriber.receives_presence() {
            self.subscriber.send_event("presence_state", &presence.state(self.subscriber.room()));
        }
    }
}

/// Returns when to check a token again: at its expiry, or after a while.
pub(super) fn token_check(identity: &ChannelIdentity, verifier: &TokenVerifier) -> Instant {
    let left = identity.expires_at().saturating_sub(verifier.now());
    let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
    Instant::now() + left.min(TOKEN_CHECK_PERIOD)
}
