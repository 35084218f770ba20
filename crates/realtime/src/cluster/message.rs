//! The messages between servers, from bytes and to bytes.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::ids::{ChannelId, NodeId};
use crate::rooms::{RoomKey, RoomMessageBody};
use crate::socket::frame::{UserBroadcast, UserPayload};

/// A message of one server to all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClusterMessage {
    /// The server runs. `presence` is the number of its last change of the presence.
    Heartbeat { sockets: u64, presence: u64 },
    /// The server ends.
    Goodbye,
    /// A message of one of its clients to a room.
    Broadcast { room: RoomKey, body: RoomMessageBody },
    /// A channel tracks. The number counts the changes of the presence.
    Tracked { number: u64, room: RoomKey, channel: ChannelId, key: Arc<str>, meta: Bytes },
    /// A channel does not track any more.
    Untracked { number: u64, room: RoomKey, channel: ChannelId },
    /// Asks a server for its presence.
    StateRequest { of: NodeId },
    /// The presence of the server after the change with this number: its entries follow.
    StateBegin { number: u64 },
    /// Some entries of the state.
    StateEntries { entries: Vec<StateEntry> },
    /// All entries of the state were sent.
    StateEnd { entries: u64 },
}

/// A channel that tracks, as an entry of the presence of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateEntry {
    pub room: RoomKey,
    pub channel: ChannelId,
    pub key: Arc<str>,
    pub meta: Bytes,
}

impl StateEntry {
    /// Returns about the number of bytes of the entry in a message.
    pub fn size(&self) -> usize {
        self.room.topic.len() + self.key.len() + self.meta.len() + 32
    }
}

const HEARTBEAT: u8 = 1;
const GOODBYE: u8 = 2;
const BROADCAST: u8 = 3;
const USER_BROADCAST_JSON: u8 = 4;
const USER_BROADCAST_BINARY: u8 = 5;
const TRACKED: u8 = 6;
const UNTRACKED: u8 = 7;
const STATE_REQUEST: u8 = 8;
const STATE_BEGIN: u8 = 9;
const STATE_END: u8 = 10;
const STATE_ENTRIES: u8 = 11;

impl ClusterMessage {
    /// Returns the message as bytes. `None`: it is none for other servers.
    pub fn encode(&self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        match self {
            Self::Heartbeat { sockets, presence } => {
                out.put_u8(HEARTBEAT);
                out.put_u64(*sockets);
                out.put_u64(*presence);
            }
            Self::Goodbye => out.put_u8(GOODBYE),
            Self::Broadcast { room, body } => match body {
                RoomMessageBody::Broadcast(payload) => {
                    out.put_u8(BROADCAST);
                    put_room(&mut out, room);
                    out.put_slice(payload);
                }
                RoomMessageBody::UserBroadcast { broadcast, metadata } => {
                    let (kind, payload) = match &broadcast.payload {
                        UserPayload::Json(payload) => (USER_BROADCAST_JSON, payload),
                        UserPayload::Binary(payload) => (USER_BROADCAST_BINARY, payload),
                    };
                    out.put_u8(kind);
                    put_room(&mut out, room);
                    put_text(&mut out, &broadcast.event);
                    put_text(&mut out, metadata);
                    out.put_slice(payload);
                }
                // Each server makes its own
                RoomMessageBody::PresenceDiff(_) => return None,
            },
            Self::Tracked { number, room, channel, key, meta } => {
                out.put_u8(TRACKED);
                out.put_u64(*number);
                put_room(&mut out, room);
                out.put_u64(channel.number());
                put_text(&mut out, key);
                out.put_slice(meta);
            }
            Self::Untracked { number, room, channel } => {
                out.put_u8(UNTRACKED);
                out.put_u64(*number);
                put_room(&mut out, room);
                out.put_u64(channel.number());
            }
            Self::StateRequest { of } => {
                out.put_u8(STATE_REQUEST);
                out.put_slice(&of.bytes());
            }
            Self::StateBegin { number } => {
                out.put_u8(STATE_BEGIN);
                out.put_u64(*number);
            }
            Self::StateEntries { entries } => {
                out.put_u8(STATE_ENTRIES);
                for StateEntry { room, channel, key, meta } in entries {
                    put_room(&mut out, room);
                    out.put_u64(channel.number());
                    put_text(&mut out, key);
                    put_bytes(&mut out, meta);
                }
            }
            Self::StateEnd { entries } => {
                out.put_u8(STATE_END);
                out.put_u64(*entries);
            }
        }
        Some(out.freeze())
    }

    /// Parses a message. `None`: it is malformed, or of a later version.
    pub fn decode(bytes: Bytes) -> Option<Self> {
        let mut fields = ClusterMessageReader(bytes);
        Some(match fields.0.try_get_u8().ok()? {
            HEARTBEAT => Self::Heartbeat { sockets: fields.number()?, presence: fields.number()? },
            GOODBYE => Self::Goodbye,
            BROADCAST => Self::Broadcast { room: fields.room()?, body: RoomMessageBody::Broadcast(fields.0) },
            kind @ (USER_BROADCAST_JSON | USER_BROADCAST_BINARY) => {
                let (room, event, metadata) = (fields.room()?, fields.text()?, fields.text()?);
                let payload = match kind {
                    USER_BROADCAST_JSON => UserPayload::Json(fields.0),
                    _ => UserPayload::Binary(fields.0),
                };
                let broadcast = UserBroadcast { event: event.into(), payload };
                Self::Broadcast { room, body: RoomMessageBody::UserBroadcast { broadcast, metadata: metadata.into() } }
            }
            TRACKED => {
                let (number, room, channel) = (fields.number()?, fields.room()?, fields.channel()?);
                Self::Tracked { number, room, channel, key: fields.text()?.into(), meta: fields.0 }
            }
            UNTRACKED => Self::Untracked { number: fields.number()?, room: fields.room()?, channel: fields.channel()? },
            STATE_REQUEST => Self::StateRequest { of: NodeId::from(<[u8; 6]>::try_from(&*fields.0).ok()?) },
            STATE_BEGIN => Self::StateBegin { number: fields.number()? },
            STATE_ENTRIES => {
                let mut entries = Vec::new();
                while !fields.0.is_empty() {
                    let (room, channel) = (fields.room()?, fields.channel()?);
                    entries.push(StateEntry { room, channel, key: fields.text()?.into(), meta: fields.bytes()? });
                }
                Self::StateEntries { entries }
            }
            STATE_END => Self::StateEnd { entries: fields.number()? },
            _ => return None,
        })
    }
}

fn put_room(out: &mut BytesMut, room: &RoomKey) {
    out.put_u8(room.private.into());
    put_text(out, &room.topic);
}

fn put_text(out: &mut BytesMut, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    // A value of a frame has far fewer bytes
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

/// Reads the fields of a message.
struct ClusterMessageReader(Bytes);

impl ClusterMessageReader {
    fn number(&mut self) -> Option<u64> {
        self.0.try_get_u64().ok()
    }

    fn channel(&mut self) -> Option<ChannelId> {
        self.number().map(ChannelId::of_number)
    }

    fn bytes(&mut self) -> Option<Bytes> {
        let length = self.0.try_get_u32().ok()? as usize;
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    fn text(&mut self) -> Option<String> {
        std::str::from_utf8(&self.bytes()?).ok().map(str::to_owned)
    }

    fn room(&mut self) -> Option<RoomKey> {
        let private = match self.0.try_get_u8().ok()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(RoomKey { private, topic: self.text()?.into() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> Vec<ClusterMessage> {
        let room = RoomKey { private: true, topic: "a:é".into() };
        let (bytes, channel) = (Bytes::from_static(b"{\"n\":1}"), ChannelId::of_number(u64::MAX));
        let user = |payload| RoomMessageBody::UserBroadcast {
            broadcast: UserBroadcast { event: "e".into(), payload },
            metadata: "{}".into(),
        };
        let entry = StateEntry { room: room.clone(), channel, key: "k".into(), meta: bytes.clone() };
        let broadcast = |body| ClusterMessage::Broadcast { room: room.clone(), body };
        vec![
            ClusterMessage::Heartbeat { sockets: 3, presence: u64::MAX },
            ClusterMessage::Goodbye,
            broadcast(RoomMessageBody::Broadcast(bytes.clone())),
            broadcast(user(UserPayload::Json(bytes.clone()))),
            broadcast(user(UserPayload::Binary(Bytes::new()))),
            ClusterMessage::Tracked { number: 1, room: room.clone(), channel, key: "".into(), meta: bytes },
            ClusterMessage::Untracked { number: 2, room: room.clone(), channel },
            ClusterMessage::StateRequest { of: NodeId::random() },
            ClusterMessage::StateBegin { number: 9 },
            ClusterMessage::StateEntries { entries: Vec::new() },
            ClusterMessage::StateEntries { entries: vec![entry.clone(), entry] },
            ClusterMessage::StateEnd { entries: 7 },
        ]
    }

    #[test]
    fn messages_survive_the_way() {
        for message in messages() {
            assert_eq!(ClusterMessage::decode(message.encode().unwrap()), Some(message));
        }
        let diff = RoomMessageBody::PresenceDiff(Bytes::from_static(b"{}"));
        let room = RoomKey { private: false, topic: "a".into() };
        assert_eq!(ClusterMessage::Broadcast { room, body: diff }.encode(), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(kind in 0_u8..13, bytes: Vec<u8>) {
            let _ = ClusterMessage::decode([vec![kind], bytes].concat().into());
        }
    }
}
