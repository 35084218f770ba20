//! Broadcasts that do not come from a socket: over HTTP, and from rows of the database.

pub(crate) mod http;

use serde_json::json;

use crate::rooms::{Publication, RoomKey, RoomMessage, RoomMessageBody};
use crate::service::RealtimeService;
use crate::socket::frame::{UserBroadcast, UserPayload};
use crate::stream::{DatabaseMessage, MessagePayload};

/// Broadcasts a row of `realtime.messages` to the channels of this server. One that is too large,
/// or beyond the rate, is skipped. One without a channel here does not count against the rate.
pub(crate) async fn publish_message(service: &RealtimeService, message: DatabaseMessage) {
    let limits = &service.settings.limits;
    let DatabaseMessage { id, topic, event, private, payload } = message;
    let room = RoomKey { private, topic: topic.into() };
    if !service.rooms.may_have(&room) {
        return;
    }
    let payload = match payload {
        MessagePayload::Json(json) => UserPayload::Json(json),
        MessagePayload::Binary(bytes) => UserPayload::Binary(bytes),
    };
    service.events.add(1);
    if payload.len() > limits.max_payload_bytes || service.events.exceeds(limits.max_events_per_second) {
        tracing::warn!(
            error_code = "UnableToBroadcastChanges",
            bytes = payload.len(),
            "a message of the database was skipped"
        );
        return;
    }
    let metadata = json!({ "id": id }).to_string().into();
    let broadcast = UserBroadcast { event: event.into(), payload };
    let body = RoomMessageBody::UserBroadcast { broadcast, metadata };
    let message = RoomMessage::with_id(&room.topic, body, id.parse().ok());
    // Not to other servers: each has a stream of its own
    service.rooms.deliver(Publication { room, message, except: None }).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ScratchDatabase, TestChannel, TestService, json_of, room};
    use crate::socket::frame::Version;

    #[tokio::test]
    async fn messages_of_the_database_for_rooms_without_channels_do_not_count() {
        let database = ScratchDatabase::new().await;
        let test = TestService::new(&database);
        let service = &test.service;
        let channel = TestChannel::new(&room(true, "a"), Version::V1);
        service.rooms.shard().subscribe(std::sync::Arc::clone(&channel.subscriber));
        let message = |topic: &str, private| DatabaseMessage {
            id: "00000000-0000-4000-8000-000000000001".into(),
            topic: topic.into(),
            event: "e".into(),
            private,
            payload: MessagePayload::Json("{}".into()),
        };
        // One room of 4,096 shares the counter of the room with the channel
        let topics = (0..).map(|index| (format!("portico:account:{index}"), true));
        let rooms = std::iter::once(("a".to_owned(), false)).chain(topics);
        let without_channel = rooms.filter(|(topic, private)| !service.rooms.may_have(&room(*private, topic)));
        for (topic, private) in without_channel.take(100) {
            publish_message(service, message(&topic, private)).await;
        }
        assert_eq!(service.events.total(), 0);
        publish_message(service, message("a", true)).await;
        let frame = json_of(&channel.next().await);
        assert_eq!((&frame["topic"], &frame["payload"]["event"]), (&json!("realtime:a"), &json!("e")));
        assert_eq!(service.events.total(), 2, "the message and its delivery");
    }
}
