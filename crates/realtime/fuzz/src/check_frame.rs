//! The properties of frames.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::frame::{
    EventHead, Frame, Inbound, InboundBody, Reference, UserBroadcast, UserPayload, Version, broadcast_payload,
    encode_event, encode_user_broadcast,
};

const METADATA: &str = r#"{"id":"1"}"#;

/// Parses a frame of a client, in the version and of the kind that the first byte selects. A
/// message that is not malformed is the same after it was encoded and parsed again.
pub fn check_frame(input: &[u8]) {
    let Some((&choice, frame)) = input.split_first() else { return };
    let frame = Bytes::copy_from_slice(frame);
    let inbound = match choice % 3 {
        // The socket library rejects text frames that are not UTF-8
        0 | 1 if std::str::from_utf8(&frame).is_err() => return,
        0 => Inbound::parse_text(Version::V1, &frame),
        1 => Inbound::parse_text(Version::V2, &frame),
        _ => Inbound::parse_binary(&frame),
    };
    let Some(inbound) = inbound else { return };
    for reference in [&inbound.join_ref, &inbound.reference] {
        assert!(is_json(reference.json().as_bytes()));
        assert_eq!(reference.is_null(), reference.json() == "null");
    }
    match &inbound.body {
        InboundBody::Event { event, payload } => check_event(&inbound, event, payload),
        InboundBody::UserBroadcast(broadcast) => check_broadcast(&inbound, broadcast),
    }
}

fn check_event(inbound: &Inbound, event: &str, payload: &[u8]) {
    let head = EventHead { join_ref: &inbound.join_ref, reference: &inbound.reference, topic: &inbound.topic, event };
    // A binary frame may have spaces around its payload
    let payload = Bytes::copy_from_slice(payload.trim_ascii());
    let body = InboundBody::Event { event: event.into(), payload: payload.clone() };
    let expected = Inbound { body, ..inbound.clone() };
    assert_eq!(parsed(Version::V2, encode_event(Version::V2, head, &payload)), expected);
    let expected = Inbound { join_ref: Reference::NULL, ..expected };
    assert_eq!(parsed(Version::V1, encode_event(Version::V1, head, &payload)), expected);
}

fn check_broadcast(inbound: &Inbound, broadcast: &UserBroadcast) {
    let topic = &*inbound.topic;
    for metadata in ["", METADATA] {
        match encode_user_broadcast(topic, broadcast, metadata) {
            Some(Frame::Binary(frame)) => {
                let encoding = u8::from(matches!(broadcast.payload, UserPayload::Json(_)));
                let head = [4, topic.len() as u8, broadcast.event.len() as u8, metadata.len() as u8, encoding];
                let (UserPayload::Json(payload) | UserPayload::Binary(payload)) = &broadcast.payload;
                let names = [topic, &broadcast.event, metadata].concat();
                assert_eq!(frame, [&head, names.as_bytes(), payload].concat());
            }
            Some(Frame::Text(_)) => panic!("a text frame"),
            None => assert!(topic.len() > 255 || broadcast.event.len() > 255),
        }
        match (&broadcast.payload, broadcast_payload(broadcast, metadata)) {
            (UserPayload::Json(_), Some(payload)) => {
                let head =
                    EventHead { join_ref: &Reference::NULL, reference: &Reference::NULL, topic, event: "broadcast" };
                for version in [Version::V1, Version::V2] {
                    let again = parsed(version, encode_event(version, head, &payload));
                    assert_eq!(again.body, InboundBody::Event { event: "broadcast".into(), payload: payload.clone() });
                }
            }
            (UserPayload::Binary(_), None) => {}
            (_, text) => panic!("{text:?}"),
        }
    }
}

fn parsed(version: Version, frame: Frame) -> Inbound {
    match frame {
        Frame::Text(text) => Inbound::parse_text(version, &text).expect("a message that parses again"),
        Frame::Binary(_) => panic!("a binary frame"),
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}
