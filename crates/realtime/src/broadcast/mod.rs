//! Broadcasts that do not come from a socket: over HTTP, and from rows of the database.

pub(crate) mod http;

use serde_json::json;

use crate::rooms::{Publication, RoomKey, RoomMessage, RoomMessageBody};
use crate::service::RealtimeService;
use crate::socket::frame::{UserBroadcast, UserPayload};
use crate::stream::{DatabaseMessage, MessagePayload};

/// Broadcasts a row of `realtime.messages` to the channels of this server. One that is too large,
/// or beyond the rate, is skipped.
pub(crate) async fn publish_message(service: &RealtimeService, message: DatabaseMessage) {
    let limits = &service.settings.limits;
    let DatabaseMessage { id, topic, event, private, payload } = message;
    let payload = match payload {
        MessagePayload::Json(json) => UserPayload::Json(json),
        MessagePayload::Binary(bytes) => UserPayload::Binary(bytes),
    };
    service.events.add(1);
    if payload.len() > limits.max_payload_bytes || service.events.exceeds(limits.max_events_per_second) {
        tracing::warn!(
            code = "UnableToBroadcastChanges",
            bytes = payload.len(),
            "a message of the database was skipped"
        );
        return;
    }
    let metadata = json!({ "id": id }).to_string().into();
    let broadcast = UserBroadcast { event: event.into(), payload };
    let body = RoomMessageBody::UserBroadcast { broadcast, metadata };
    let message = RoomMessage::with_id(&topic, body, id.parse().ok());
    let room = RoomKey { private, topic: topic.into() };
    // Not to other servers: each has a stream of its own
    service.rooms.deliver(Publication { room, message, except: None }).await;
}
