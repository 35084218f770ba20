//! Replies to messages of a client.

use super::joined::Channel;
use crate::socket::frame::{EventHead, Reference, encode_event};
use crate::socket::outbox::Outbox;

/// The response of a reply without content.
pub(super) const EMPTY: &[u8] = b"{}";

/// Replies to a message on a channel. `response` is JSON.
pub(super) fn reply(outbox: &Outbox, channel: &Channel, reference: &Reference, status: &str, response: &[u8]) {
    let topic = channel.subscriber.wire_topic();
    let head = EventHead { join_ref: &channel.join_ref, reference, topic: &topic, event: "phx_reply" };
    outbox.push_reply(encode_event(channel.subscriber.version(), head, &reply_payload(status, response)));
}

/// Returns the payload of a reply.
pub(super) fn reply_payload(status: &str, response: &[u8]) -> Vec<u8> {
    [br#"{"status":""#, status.as_bytes(), br#"","response":"#, response, b"}"].concat()
}
