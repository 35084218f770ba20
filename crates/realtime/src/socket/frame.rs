//! Frames of the protocol: messages of clients from bytes, messages of the server to bytes.
//!
//! Version 1.0.0 has JSON objects in text frames. Version 2.0.0 has JSON arrays in text frames, and
//! binary frames for broadcasts. A message that is malformed is dropped and the socket stays open,
//! so parsing returns an option.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The prefix of the topics of channels.
pub(crate) const TOPIC_PREFIX: &str = "realtime:";

const PUSH: u8 = 0;
const USER_PUSH: u8 = 3;
const USER_BROADCAST: u8 = 4;

/// The version of the protocol that a socket uses (`vsn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    /// 1.0.0: JSON objects.
    V1,
    /// 2.0.0: JSON arrays and binary frames.
    V2,
}

impl Version {
    /// Parses `vsn`. Without one it is 1.0.0; a version of neither kind is `None`.
    pub fn parse(vsn: Option<&str>) -> Option<Self> {
        let Some(vsn) = vsn else { return Some(Self::V1) };
        let mut numbers = vsn.split('.').map(|number| number.parse::<u32>().ok());
        let version = (numbers.next()??, numbers.next()??, numbers.next()??);
        match (version, numbers.next()) {
            ((1, 0, _), None) => Some(Self::V1),
            ((2, 0, _), None) => Some(Self::V2),
            _ => None,
        }
    }
}

/// A frame to a client. Clones share the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// UTF-8
    Text(Bytes),
    Binary(Bytes),
}

impl Frame {
    /// Returns the number of bytes of the payload.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// A reference of a message, `ref` or `join_ref`: the JSON text that the client sent, which is
/// returned byte for byte. Equal references have equal text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference(Option<Box<str>>);

impl Reference {
    /// The absent reference, `null`.
    pub const NULL: Self = Self(None);

    fn of_json(raw: &RawValue) -> Self {
        match raw.get() {
            "null" => Self::NULL,
            text => Self(Some(text.into())),
        }
    }

    fn of_text(text: &str) -> Self {
        // A binary frame has no null; clients write it as an empty string
        if text.is_empty() { Self::NULL } else { Self(Some(json_string(text).into())) }
    }

    /// Returns true if the client sent none.
    pub fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the JSON text.
    pub fn json(&self) -> &str {
        self.0.as_deref().unwrap_or("null")
    }
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inbound {
    pub join_ref: Reference,
    pub reference: Reference,
    /// The whole topic, with its prefix.
    pub topic: Box<str>,
    pub body: InboundBody,
}

/// The content of a message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InboundBody {
    /// An event with its payload as JSON text.
    Event { event: Box<str>, payload: Bytes },
    /// A broadcast in a binary frame.
    UserBroadcast(UserBroadcast),
}

/// The content of a broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserBroadcast {
    /// The name of the event that the user chose.
    pub event: Box<str>,
    pub payload: UserPayload,
}

/// The payload of a broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserPayload {
    /// Valid JSON text.
    Json(Bytes),
    Binary(Bytes),
}

impl UserPayload {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(bytes) | Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// The bytes of the names and references of a message together, beyond which it is malformed: they
/// are kept for as long as a channel is.
const MAX_NAMES: usize = 4096;

impl Inbound {
    /// Returns the size of the message in bytes.
    pub fn size(&self) -> usize {
        let body = match &self.body {
            InboundBody::Event { event, payload } => event.len() + payload.len(),
            InboundBody::UserBroadcast(broadcast) => broadcast.event.len() + broadcast.payload.len(),
        };
        self.names() + body
    }

    fn names(&self) -> usize {
        self.topic.len() + self.join_ref.json().len() + self.reference.json().len()
    }

    /// Parses a text frame.
    pub fn parse_text(version: Version, text: &Bytes) -> Option<Self> {
        let message = match version {
            // The deserialiser would read an array, too, as the fields of an object
            Version::V1 if !is_object(text) => None,
            Version::V1 => serde_json::from_slice::<ObjectFrame>(text).ok()?.message(text),
            Version::V2 => serde_json::from_slice::<ArrayFrame>(text).ok()?.message(text),
        };
        message.filter(|message| message.names() <= MAX_NAMES)
    }

    /// Parses a binary frame of version 2.0.0.
    pub fn parse_binary(frame: &Bytes) -> Option<Self> {
        match *frame.first()? {
            PUSH => Self::parse_push(frame),
            USER_PUSH => Self::parse_user_push(frame),
            _ => None,
        }
    }

    fn parse_push(frame: &Bytes) -> Option<Self> {
        let lengths: [u8; 4] = frame.get(1..5)?.try_into().ok()?;
        let mut fields = BinaryFrameReader { frame, position: 5 };
        let [join_ref, reference, topic, event] = lengths;
        let join_ref = Reference::of_text(&fields.text(join_ref)?);
        let reference = Reference::of_text(&fields.text(reference)?);
        let topic = fields.text(topic)?.into();
        let event = fields.text(event)?.into();
        let payload = fields.rest();
        is_json(&payload).then_some(())?;
        Some(Self { join_ref, reference, topic, body: InboundBody::Event { event, payload } })
    }

    fn parse_user_push(frame: &Bytes) -> Option<Self> {
        let head: [u8; 6] = frame.get(1..7)?.try_into().ok()?;
        let [join_ref, reference, topic, event, metadata, encoding] = head;
        let mut fields = BinaryFrameReader { frame, position: 7 };
        let join_ref = Reference::of_text(&fields.text(join_ref)?);
        let reference = Reference::of_text(&fields.text(reference)?);
        let topic = fields.text(topic)?.into();
        let event = fields.text(event)?.into();
        let metadata = fields.bytes(metadata)?;
        if !metadata.is_empty() && !is_json_object(metadata) {
            return None;
        }
        let payload = fields.rest();
        let payload = match encoding {
            0 => UserPayload::Binary(payload),
            // Passed on as it is to clients that parse it
            _ if is_json(&payload) => UserPayload::Json(payload),
            _ => return None,
        };
        let body = InboundBody::UserBroadcast(UserBroadcast { event, payload });
        Some(Self { join_ref, reference, topic, body })
    }
}

/// Reads the fields of a binary frame.
struct BinaryFrameReader<'a> {
    frame: &'a Bytes,
    position: usize,
}

impl<'a> BinaryFrameReader<'a> {
    fn bytes(&mut self, length: u8) -> Option<&'a [u8]> {
        let end = self.position + usize::from(length);
        let field = self.frame.get(self.position..end)?;
        self.position = end;
        Some(field)
    }

    /// Returns a text. Older clients write one byte for each UTF-16 unit, so bytes that are not
    /// UTF-8 are read as Latin-1.
    fn text(&mut self, length: u8) -> Option<Cow<'a, str>> {
        let bytes = self.bytes(length)?;
        Some(match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
        })
    }

    fn rest(self) -> Bytes {
        self.frame.slice(self.position..)
    }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

/// Returns true if JSON text is an object, without a check of its content.
pub(crate) fn is_object(json: &[u8]) -> bool {
    json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

fn is_json_object(bytes: &[u8]) -> bool {
    is_object(bytes) && is_json(bytes)
}

/// Returns the slice of `whole` that `text` borrows from it.
fn slice_of(whole: &Bytes, text: &str) -> Bytes {
    whole.slice_ref(text.as_bytes())
}

#[derive(Deserialize)]
struct ObjectFrame<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, rename = "ref")]
    reference: &'a RawValue,
    #[serde(borrow, default)]
    join_ref: Option<&'a RawValue>,
}

impl ObjectFrame<'_> {
    fn message(self, text: &Bytes) -> Option<Inbound> {
        Some(Inbound {
            join_ref: self.join_ref.map_or(Reference::NULL, Reference::of_json),
            reference: Reference::of_json(self.reference),
            topic: self.topic.into(),
            body: InboundBody::Event { event: self.event.into(), payload: slice_of(text, self.payload.get()) },
        })
    }
}

/// `[join_ref, ref, topic, event, payload]`; further elements are ignored.
struct ArrayFrame<'a> {
    join_ref: &'a RawValue,
    reference: &'a RawValue,
    topic: Cow<'a, str>,
    event: Cow<'a, str>,
    payload: &'a RawValue,
}

impl ArrayFrame<'_> {
    fn message(self, text: &Bytes) -> Option<Inbound> {
        Some(Inbound {
            join_ref: Reference::of_json(self.join_ref),
            reference: Reference::of_json(self.reference),
            topic: self.topic.into(),
            body: InboundBody::Event { event: self.event.into(), payload: slice_of(text, self.payload.get()) },
        })
    }
}

impl<'de> Deserialize<'de> for ArrayFrame<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FrameVisitor;
        impl<'de> Visitor<'de> for FrameVisitor {
            type Value = ArrayFrame<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array of five elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                #[derive(Deserialize)]
                struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
                let missing = || serde::de::Error::custom("too few elements");
                let frame = ArrayFrame {
                    join_ref: sequence.next_element()?.ok_or_else(missing)?,
                    reference: sequence.next_element()?.ok_or_else(missing)?,
                    topic: sequence.next_element::<Text<'de>>()?.ok_or_else(missing)?.0,
                    event: sequence.next_element::<Text<'de>>()?.ok_or_else(missing)?.0,
                    payload: sequence.next_element()?.ok_or_else(missing)?,
                };
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                Ok(frame)
            }
        }
        deserializer.deserialize_seq(FrameVisitor)
    }
}

/// Returns a string as JSON text.
pub(crate) fn json_string(text: &str) -> String {
    // Strings always serialise
    serde_json::to_string(text).unwrap_or_default()
}

/// The place and the kind of an event to a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventHead<'a> {
    pub join_ref: &'a Reference,
    pub reference: &'a Reference,
    /// The whole topic, with its prefix.
    pub topic: &'a str,
    pub event: &'a str,
}

/// Returns an event as a text frame. `payload` is JSON text.
///
/// Version 1.0.0 has no `join_ref`. The events that end a channel carry the reference of its join
/// in `ref` in both versions; see [`EventHead`].
pub(crate) fn encode_event(version: Version, head: EventHead<'_>, payload: &[u8]) -> Frame {
    let EventHead { join_ref, reference, topic, event } = head;
    let mut text = BytesMut::with_capacity(payload.len() + topic.len() + event.len() + 64);
    match version {
        Version::V1 => {
            text.put_slice(b"{\"ref\":");
            text.put_slice(reference.json().as_bytes());
            text.put_slice(b",\"topic\":");
            put_json_string(&mut text, topic);
            text.put_slice(b",\"event\":");
            put_json_string(&mut text, event);
            text.put_slice(b",\"payload\":");
            text.put_slice(payload);
            text.put_u8(b'}');
        }
        Version::V2 => {
            text.put_u8(b'[');
            text.put_slice(join_ref.json().as_bytes());
            text.put_u8(b',');
            text.put_slice(reference.json().as_bytes());
            text.put_u8(b',');
            put_json_string(&mut text, topic);
            text.put_u8(b',');
            put_json_string(&mut text, event);
            text.put_u8(b',');
            text.put_slice(payload);
            text.put_u8(b']');
        }
    }
    Frame::Text(text.freeze())
}

/// Appends a string as JSON.
fn put_json_string(text: &mut BytesMut, string: &str) {
    let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if string.bytes().all(is_plain) {
        text.put_u8(b'"');
        text.put_slice(string.as_bytes());
        text.put_u8(b'"');
    } else {
        text.put_slice(json_string(string).as_bytes());
    }
}

/// Returns a broadcast as a frame of version 2.0.0, or `None` if a name or the metadata is too long
/// for one.
pub(crate) fn encode_user_broadcast(topic: &str, broadcast: &UserBroadcast, metadata: &str) -> Option<Frame> {
    let (encoding, payload) = match &broadcast.payload {
        UserPayload::Binary(payload) => (0, payload),
        UserPayload::Json(payload) => (1, payload),
    };
    let length = |text: &str| u8::try_from(text.len()).ok();
    let head = [USER_BROADCAST, length(topic)?, length(&broadcast.event)?, length(metadata)?, encoding];
    let names = topic.len() + broadcast.event.len() + metadata.len();
    let mut frame = BytesMut::with_capacity(head.len() + names + payload.len());
    frame.put_slice(&head);
    frame.put_slice(topic.as_bytes());
    frame.put_slice(broadcast.event.as_bytes());
    frame.put_slice(metadata.as_bytes());
    frame.put_slice(payload);
    Some(Frame::Binary(frame.freeze()))
}

/// Returns the payload of a broadcast in a text frame: `type`, `event`, `payload` and `meta`.
/// `None`: the broadcast is binary.
pub(crate) fn broadcast_payload(broadcast: &UserBroadcast, metadata: &str) -> Option<Bytes> {
    let UserPayload::Json(payload) = &broadcast.payload else { return None };
    let mut text = BytesMut::with_capacity(payload.len() + broadcast.event.len() + metadata.len() + 64);
    text.put_slice(b"{\"event\":");
    put_json_string(&mut text, &broadcast.event);
    text.put_slice(b",\"payload\":");
    text.put_slice(payload);
    text.put_slice(b",\"type\":\"broadcast\"");
    if !metadata.is_empty() {
        text.put_slice(b",\"meta\":");
        text.put_slice(metadata.as_bytes());
    }
    text.put_u8(b'}');
    Some(text.freeze())
}

#[cfg(test)]
mod tests;
