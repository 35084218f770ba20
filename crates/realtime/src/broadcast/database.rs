//! Broadcasts of rows that SQL inserts into `realtime.messages`.

use std::sync::Weak;
use std::time::Duration;

use portico_database::{Database, DatabaseError};
use serde_json::json;
use tokio::sync::mpsc;

use crate::decode::TransactionId;
use crate::rooms::{Publication, RoomKey, RoomMessage, RoomMessageBody};
use crate::service::RealtimeService;
use crate::socket::frame::{UserBroadcast, UserPayload};
use crate::stream::{DatabaseMessage, MessageBatch, MessagePayload, wait_until_visible};

/// The transactions whose messages are delivered together.
const MAX_BATCHES: usize = 64;
/// The time that a received commit may take until other sessions see it. Its messages are sent
/// after it in any case: they are committed.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Broadcasts the messages that SQL writes, until the stream or the service ends. Those without a
/// channel of this server do not count against the rate.
///
/// A message is sent once its transaction is visible to other sessions: a client that reads what
/// the message is about finds it.
pub(crate) async fn deliver_messages(
    database: Database,
    service: Weak<RealtimeService>,
    mut batches: mpsc::Receiver<MessageBatch>,
) {
    let mut waiting = Vec::new();
    while batches.recv_many(&mut waiting, MAX_BATCHES).await > 0 {
        let Some(service) = service.upgrade() else { return };
        for batch in &mut waiting {
            batch.messages.retain(|message| service.rooms.may_have(&room_of(message)));
        }
        waiting.retain(|batch| !batch.messages.is_empty());
        let transactions: Vec<TransactionId> = waiting.iter().map(|batch| batch.transaction).collect();
        if !transactions.is_empty() {
            wait(&database, &transactions).await;
        }
        for message in waiting.drain(..).flat_map(|batch| batch.messages) {
            publish_message(&service, message).await;
        }
    }
}

/// Waits until the transactions are visible, or it cannot be known.
async fn wait(database: &Database, transactions: &[TransactionId]) {
    let visible = async {
        let client = database.login_client().await?;
        wait_until_visible(&client, transactions).await.map_err(DatabaseError::from)
    };
    match tokio::time::timeout(VISIBLE_TIMEOUT, visible).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = %error, "messages are sent whose transactions may not be visible yet"),
        Err(_) => tracing::warn!("messages are sent whose transactions are not visible yet"),
    }
}

fn room_of(message: &DatabaseMessage) -> RoomKey {
    RoomKey { private: message.private, topic: message.topic.as_str().into() }
}

/// Broadcasts a row of `realtime.messages` to the channels of this server. One that is too large,
/// or beyond the rate, is skipped.
async fn publish_message(service: &RealtimeService, message: DatabaseMessage) {
    let limits = &service.settings.limits;
    let DatabaseMessage { id, topic, event, private, payload } = message;
    let room = RoomKey { private, topic: topic.into() };
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
    use std::sync::Arc;

    use super::*;
    use crate::fixture::{ScratchDatabase, TestChannel, TestService, json_of, open, room};
    use crate::settings::RealtimeSettings;
    use crate::socket::frame::Version;

    fn message(topic: &str, private: bool) -> DatabaseMessage {
        DatabaseMessage {
            id: "00000000-0000-4000-8000-000000000001".into(),
            topic: topic.into(),
            event: "e".into(),
            private,
            payload: MessagePayload::Json("{}".into()),
        }
    }

    /// Returns a channel of the private room `a`.
    fn join(service: &RealtimeService) -> TestChannel {
        let channel = TestChannel::new(&room(true, "a"), Version::V1);
        service.rooms.shard().subscribe(Arc::clone(&channel.subscriber));
        channel
    }

    async fn assert_received(channel: &TestChannel) {
        let frame = json_of(&channel.next().await);
        assert_eq!((&frame["topic"], &frame["payload"]["event"]), (&json!("realtime:a"), &json!("e")));
    }

    #[tokio::test]
    async fn messages_of_the_database_for_rooms_without_channels_do_not_count() {
        let database = ScratchDatabase::new().await;
        let test = TestService::new(&database);
        let service = &test.service;
        let channel = join(service);
        // One room of 4,096 shares the counter of the room with the channel
        let topics = (0..).map(|index| (format!("portico:account:{index}"), true));
        let rooms = std::iter::once(("a".to_owned(), false)).chain(topics);
        let without_channel = rooms.filter(|(topic, private)| !service.rooms.may_have(&room(*private, topic)));
        let messages = without_channel.take(100).map(|(topic, private)| message(topic.as_str(), private));
        let messages = messages.chain([message("a", true)]).collect();
        let (sender, batches) = mpsc::channel(1);
        // Of the time before the database
        sender.send(MessageBatch { transaction: TransactionId(3), messages }).await.unwrap();
        drop(sender);
        deliver_messages(open(database.endpoint()), Arc::downgrade(service), batches).await;
        assert_received(&channel).await;
        assert_eq!(service.events.total(), 2, "the message and its delivery");
    }

    /// The stream delivers a transaction a moment before other sessions see it.
    #[tokio::test]
    async fn a_message_is_sent_when_its_transaction_is_visible() {
        let database = ScratchDatabase::new().await;
        let test = TestService::new(&database);
        let channel = join(&test.service);
        let (sender, batches) = mpsc::channel(1);
        let service = Arc::downgrade(&test.service);
        let delivery = tokio::spawn(deliver_messages(open(database.endpoint()), service, batches));
        let writer = portico_database::connect(database.endpoint()).await.unwrap();
        writer.batch_execute("begin").await.unwrap();
        let id: String = writer.query_one("select pg_current_xact_id()::text", &[]).await.unwrap().get(0);
        let transaction = TransactionId(id.parse().unwrap());
        sender.send(MessageBatch { transaction, messages: vec![message("a", true)] }).await.unwrap();
        let looks = "select coalesce(bool_or(query ~ 'pg_current_snapshot' and query !~ 'pg_stat_activity'), false)::text \
                     from pg_stat_activity where datname = current_database()";
        while database.value(looks).await != "true" {
            assert_eq!(channel.received(), []);
            tokio::task::yield_now().await;
        }
        assert_eq!(channel.received(), []);
        writer.batch_execute("commit").await.unwrap();
        assert_received(&channel).await;
        drop(sender);
        delivery.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_sent_when_the_database_cannot_be_asked() {
        let test = TestService::without_database(RealtimeSettings::default());
        let channel = join(&test.service);
        let (sender, batches) = mpsc::channel(1);
        let messages = vec![message("a", true)];
        sender.send(MessageBatch { transaction: TransactionId(1000), messages }).await.unwrap();
        drop(sender);
        let missing = open(&"postgresql://a@127.0.0.1:1/none".parse().unwrap());
        deliver_messages(missing, Arc::downgrade(&test.service), batches).await;
        assert_received(&channel).await;
    }
}
