//! Presence events of a client.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::channels::SocketChannels;
use super::joined::{MessageContent, WaitingMessage};
use super::reply::{EMPTY, reply};
use crate::error::Shutdown;
use crate::presence::TrackOutcome;
use crate::socket::frame::Reference;

impl SocketChannels {
    /// Handles a presence event, now or after a check of the permissions it needs.
    pub(super) fn presence(&mut self, topic: &str, reference: Reference, payload: Bytes) {
        self.service.events.add(1);
        self.service.presence_events.add(1);
        let limits = &self.service.settings.limits;
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let excess = if self.service.presence_events.exceeds(limits.max_presence_events_per_second) {
            Some(Shutdown::TooManyPresenceMessages)
        } else if !channel.presence_calls.allows(limits, Instant::now()) {
            Some(Shutdown::TooManyPresenceCalls)
        } else {
            None
        };
        if let Some(reason) = excess {
            let id = channel.subscriber.id();
            return self.shut_down(id, &reason);
        }
        let knows_permissions = channel.write.is_some() && channel.read.is_some_and(|read| read.presence.is_some());
        if channel.is_private() && !knows_permissions {
            let content = MessageContent::Presence(payload);
            return self.check_permissions(topic, WaitingMessage { reference, content });
        }
        self.handle_presence(topic, &reference, &payload);
    }

    /// Handles a presence event whose permissions are known.
    pub(super) fn handle_presence(&mut self, topic: &str, reference: &Reference, payload: &[u8]) {
        let service = Arc::clone(&self.service);
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let may_write = !channel.is_private() || channel.write.is_some_and(|write| write.presence);
        let call = PresenceCall::parse(payload);
        let (status, response): (_, &[u8]) = match call {
            PresenceCall::None => ("ok", EMPTY),
            _ if !may_write => ("error", EMPTY),
            PresenceCall::Track(_) if payload.len() > service.settings.limits.max_payload_bytes => {
                let id = channel.subscriber.id();
                return self.shut_down(id, &Shutdown::TrackTooLarge);
            }
            PresenceCall::Track(Value::Object(state)) => {
                match service.presence.track(&channel.subscriber, &channel.presence_key, state) {
                    TrackOutcome::TooLarge => ("error", br#"{"reason":"The presence of this channel is too large"}"#),
                    TrackOutcome::Joined | TrackOutcome::Updated | TrackOutcome::Unchanged => ("ok", EMPTY),
                }
            }
            PresenceCall::Track(_) => ("error", br#"{"reason":"Presence track payload must be a map"}"#),
            PresenceCall::Untrack => {
                service.presence.untrack(&channel.subscriber, &channel.presence_key);
                ("ok", EMPTY)
            }
            PresenceCall::Unknown => ("error", EMPTY),
        };
        reply(&self.outbox, channel, reference, status, response);
    }
}

/// A presence event.
enum PresenceCall {
    Track(Value),
    Untrack,
    /// Without `event`.
    None,
    Unknown,
}

impl PresenceCall {
    fn parse(payload: &[u8]) -> Self {
        let mut payload: Map<String, Value> = serde_json::from_slice(payload).unwrap_or_default();
        let event = payload.get("event").and_then(Value::as_str).map(str::to_ascii_lowercase);
        match event.as_deref() {
            Some("track") => Self::Track(payload.remove("payload").unwrap_or_else(|| Value::Object(Map::new()))),
            Some("untrack") => Self::Untrack,
            Some(_) => Self::Unknown,
            None if payload.contains_key("event") => Self::Unknown,
            None => Self::None,
        }
    }
}
