//! A channel as the rooms see it: where its messages go, and which of them it receives.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use uuid::Uuid;

use super::message::RoomMessage;
use super::publication::RoomKey;
use crate::error::Shutdown;
use crate::ids::ChannelId;
use crate::socket::DeferredWakes;
use crate::socket::frame::{EventHead, Frame, Reference, TOPIC_PREFIX, Version, encode_event};
use crate::socket::outbox::{Outbox, SocketCommand};

/// The live messages that wait for the stored ones.
const MAX_DEFERRED: usize = 1024;
/// The bytes of their payloads.
const MAX_DEFERRED_BYTES: usize = 4 * 1024 * 1024;

/// The unchanging properties of a channel.
#[derive(Debug, Clone)]
pub(crate) struct SubscriberHead {
    /// Unique on this server, for the life of the server.
    pub id: ChannelId,
    pub room: RoomKey,
    pub version: Version,
    /// The reference of the join.
    pub join_ref: Reference,
}

/// A joined channel. It is shared by its socket, its room, and the services that send to it.
#[derive(Debug)]
pub(crate) struct Subscriber {
    head: SubscriberHead,
    outbox: Arc<Outbox>,
    /// The channel receives broadcasts.
    receives_broadcasts: AtomicBool,
    /// The channel receives changes of the presence.
    receives_presence: AtomicBool,
    /// Messages that arrive while stored ones are read, and the ids of stored ones that were sent.
    replay: Mutex<ReplayState>,
    /// False in a channel that never had a replay, which is most of them.
    has_replay: AtomicBool,
}

#[derive(Debug, Default)]
struct ReplayState {
    /// `Some` while live messages wait for the stored ones.
    deferred: Option<DeferredMessages>,
    sent: HashSet<Uuid>,
}

/// Live messages that wait, in a bounded number and size.
#[derive(Debug, Default)]
struct DeferredMessages {
    messages: Vec<Arc<RoomMessage>>,
    bytes: usize,
}

impl DeferredMessages {
    /// Adds a message. From the first one beyond the bounds on they are lost, as at a client that
    /// is not there yet.
    fn push(&mut self, message: &Arc<RoomMessage>) {
        self.bytes = self.bytes.saturating_add(message.payload_len());
        if self.messages.len() < MAX_DEFERRED && self.bytes <= MAX_DEFERRED_BYTES {
            self.messages.push(Arc::clone(message));
        }
    }
}

impl Subscriber {
    /// Returns a channel whose frames go to `outbox`. It receives nothing before
    /// [`set_broadcasts`](Self::set_broadcasts) and [`set_presence`](Self::set_presence).
    pub fn new(head: SubscriberHead, outbox: Arc<Outbox>) -> Arc<Self> {
        Arc::new(Self {
            head,
            outbox,
            receives_broadcasts: AtomicBool::new(false),
            receives_presence: AtomicBool::new(false),
            replay: Mutex::default(),
            has_replay: AtomicBool::new(false),
        })
    }

    /// Returns the id of the channel.
    pub fn id(&self) -> ChannelId {
        self.head.id
    }

    /// Returns the room.
    pub fn room(&self) -> &RoomKey {
        &self.head.room
    }

    /// Returns the version of the protocol.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// Returns the counter of the bytes that the channels of the socket track together.
    pub fn tracked_bytes(&self) -> &AtomicUsize {
        &self.outbox.tracked_bytes
    }

    /// Sets whether the channel receives broadcasts.
    pub fn set_broadcasts(&self, receives: bool) {
        self.receives_broadcasts.store(receives, Ordering::Relaxed);
    }

    /// Sets whether the channel receives changes of the presence.
    pub fn set_presence(&self, receives: bool) {
        self.receives_presence.store(receives, Ordering::Relaxed);
    }

    /// Returns true if the channel receives changes of the presence.
    pub fn receives_presence(&self) -> bool {
        self.receives_presence.load(Ordering::Relaxed)
    }

    /// Sends frames that other channels may share, and leaves the wake-up of the socket to `wakes`.
    /// Their maker has counted them in the memory of the frames that wait.
    pub fn send_all(&self, frames: &[Frame], wakes: &mut DeferredWakes) {
        self.outbox.push_all(frames, wakes);
    }

    /// Sends a frame for this channel alone.
    pub fn send_own(&self, frame: Frame) {
        self.outbox.push_own(frame);
    }

    /// Sends an event with the reference of the join. `payload` is JSON.
    pub fn send_event(&self, event: &str, payload: &[u8]) {
        self.outbox.push_reply(self.event_frame(event, payload));
    }

    /// Returns the frame of an event with the reference of the join. `payload` is JSON.
    pub fn event_frame(&self, event: &str, payload: &[u8]) -> Frame {
        let topic = self.wire_topic();
        let head = EventHead { join_ref: &self.head.join_ref, reference: &Reference::NULL, topic: &topic, event };
        encode_event(self.head.version, head, payload)
    }

    /// Returns the topic with its prefix.
    pub fn wire_topic(&self) -> String {
        format!("{TOPIC_PREFIX}{}", self.head.room.topic)
    }

    /// Sends a `system` message: `status` is `ok` or `error`.
    pub fn send_system(&self, extension: &str, status: &str, message: &str) {
        let channel = &*self.head.room.topic;
        let payload = json!({ "extension": extension, "status": status, "message": message, "channel": channel });
        self.send_event("system", payload.to_string().as_bytes());
    }

    /// Announces that the server is about to close the socket, as to every other channel.
    pub fn send_disconnect(&self) {
        let payload = br#"{"extension":"system","status":"ok","message":"Server requested disconnect"}"#;
        let (join_ref, reference, topic) = (&Reference::NULL, &Reference::NULL, self.wire_topic());
        let head = EventHead { join_ref, reference, topic: &topic, event: "system" };
        self.outbox.push_own(encode_event(self.head.version, head, payload));
    }

    /// Ends the channel with a `system` error.
    pub fn shut_down(&self, reason: Shutdown) {
        self.outbox.command(SocketCommand::ShutDown(self.head.id, reason));
    }

    /// Delivers a message of the room, if the channel receives its kind. Returns true if it was
    /// sent.
    pub(super) fn deliver(&self, message: &Arc<RoomMessage>) -> bool {
        let receives = if message.is_presence() { &self.receives_presence } else { &self.receives_broadcasts };
        if !receives.load(Ordering::Relaxed) {
            return false;
        }
        if self.has_replay.load(Ordering::Acquire) && self.is_held_back(message) {
            return false;
        }
        let Some(frame) = message.frame(self.head.version, self.outbox.memory()) else { return false };
        self.outbox.push(frame.clone());
        true
    }

    /// Holds live messages back from now on, until [`finish_replay`](Self::finish_replay).
    pub fn begin_replay(&self) {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner).deferred = Some(DeferredMessages::default());
        self.has_replay.store(true, Ordering::Release);
    }

    /// Sends the live messages that were held back, without the stored ones that were sent.
    pub fn finish_replay(&self, sent: impl IntoIterator<Item = Uuid>) {
        let mut replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        replay.sent.extend(sent);
        let deferred = replay.deferred.take().unwrap_or_default();
        for message in deferred.messages {
            if message.id().is_none_or(|id| !replay.sent.contains(&id))
                && let Some(frame) = message.frame(self.head.version, self.outbox.memory())
            {
                self.outbox.push(frame.clone());
            }
        }
    }

    fn is_held_back(&self, message: &Arc<RoomMessage>) -> bool {
        let mut replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut replay.deferred {
            Some(deferred) => {
                deferred.push(message);
                true
            }
            None => message.id().is_some_and(|id| replay.sent.contains(&id)),
        }
    }
}
