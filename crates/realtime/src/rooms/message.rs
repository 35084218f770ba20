//! A message to a room, encoded once for each version of the protocol.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use uuid::Uuid;

use crate::socket::FrameMemory;
use crate::socket::frame::{
    EventHead, Frame, Reference, UserBroadcast, Version, broadcast_payload, encode_event, encode_user_broadcast,
};

/// The content of a message to a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RoomMessageBody {
    /// A broadcast whose payload object is forwarded as it is, in text frames. The bytes are JSON.
    Broadcast(Bytes),
    /// A broadcast in binary frames for the versions that have them. The metadata is JSON text, or
    /// empty.
    UserBroadcast { broadcast: UserBroadcast, metadata: Box<str> },
    /// A change of the presence. The bytes are JSON.
    PresenceDiff(Bytes),
}

/// A message to a room.
#[derive(Debug)]
pub(crate) struct RoomMessage {
    /// The whole topic, with its prefix.
    topic: Box<str>,
    body: RoomMessageBody,
    /// The id of the row in the database that the message comes from.
    id: Option<Uuid>,
    v1: OnceLock<Option<Frame>>,
    v2: OnceLock<Option<Frame>>,
}

impl RoomMessage {
    /// Returns a message to the rooms of `topic`, which comes without its prefix.
    pub fn new(topic: &str, body: RoomMessageBody) -> Arc<Self> {
        Self::with_id(topic, body, None)
    }

    /// Like [`new`](Self::new), but from a row of the database with this id.
    pub fn with_id(topic: &str, body: RoomMessageBody, id: Option<Uuid>) -> Arc<Self> {
        let topic = format!("{}{topic}", crate::socket::frame::TOPIC_PREFIX).into();
        Arc::new(Self { topic, body, id, v1: OnceLock::new(), v2: OnceLock::new() })
    }

    /// Returns the content.
    pub fn body(&self) -> &RoomMessageBody {
        &self.body
    }

    /// Returns the id of the row that the message comes from.
    pub fn id(&self) -> Option<Uuid> {
        self.id
    }

    /// Returns the number of bytes of the payload.
    pub fn payload_len(&self) -> usize {
        match &self.body {
            RoomMessageBody::Broadcast(payload) | RoomMessageBody::PresenceDiff(payload) => payload.len(),
            RoomMessageBody::UserBroadcast { broadcast, .. } => broadcast.payload.len(),
        }
    }

    /// Returns true for a change of the presence.
    pub fn is_presence(&self) -> bool {
        matches!(self.body, RoomMessageBody::PresenceDiff(_))
    }

    /// Returns the frame for clients of a version, which counts in `memory`; `None` if it cannot
    /// carry the message: version 1.0.0 has no binary payloads.
    pub fn frame(&self, version: Version, memory: &Arc<FrameMemory>) -> Option<&Frame> {
        let cell = match version {
            Version::V1 => &self.v1,
            Version::V2 => &self.v2,
        };
        cell.get_or_init(|| self.encode(version).map(|frame| memory.count(frame))).as_ref()
    }

    fn encode(&self, version: Version) -> Option<Frame> {
        let text = |event: &str, payload: &[u8]| {
            let (join_ref, reference) = (&Reference::NULL, &Reference::NULL);
            encode_event(version, EventHead { join_ref, reference, topic: &self.topic, event }, payload)
        };
        match &self.body {
            RoomMessageBody::Broadcast(payload) => Some(text("broadcast", payload)),
            RoomMessageBody::PresenceDiff(diff) => Some(text("presence_diff", diff)),
            RoomMessageBody::UserBroadcast { broadcast, metadata } => {
                let binary = (version == Version::V2).then(|| encode_user_broadcast(&self.topic, broadcast, metadata));
                // Names that are too long for a binary frame fit into text
                binary.flatten().or_else(|| Some(text("broadcast", &broadcast_payload(broadcast, metadata)?)))
            }
        }
    }
}
