mod tokens;

use std::task::{Poll, Waker};

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{ScratchDatabase, TestService, json_of};
use crate::settings::{RealtimeLimits, RealtimeSettings};
use crate::socket::SocketHead;
use crate::socket::frame::{Inbound, Version};
use crate::socket::outbox::{Outbox, OutboxItem};
use crate::stream::StreamState;

/// The channels of a socket without a connection.
struct TestSocket {
    channels: SocketChannels,
    outbox: std::sync::Arc<Outbox>,
}

impl TestSocket {
    fn new(test: &TestService) -> Self {
        let head = SocketHead {
            version: Version::V2,
            token: test.token("anon").into(),
            headers: "{}".into(),
            may_be_privileged: false,
        };
        let outbox = std::sync::Arc::new(Outbox::new(&test.service.settings.limits, &test.service.memory));
        Self { channels: SocketChannels::new(&test.service, head, std::sync::Arc::clone(&outbox)), outbox }
    }

    /// Waits for the next frame.
    async fn next(&mut self) -> Value {
        std::future::poll_fn(|context| {
            while self.channels.poll_work(context).is_ready() {}
            match self.outbox.next(context.waker()) {
                OutboxItem::Frame(frame) => Poll::Ready(json_of(&frame)),
                OutboxItem::Empty => Poll::Pending,
                item => panic!("{item:?}"),
            }
        })
        .await
    }

    /// Handles a message of the client.
    fn begin(&mut self, message: &Value) {
        let message = Bytes::from(message.to_string());
        let end = self.channels.receive(Inbound::parse_text(Version::V2, &message).unwrap());
        assert_eq!(end, None);
    }

    /// Waits for the result of the work in progress.
    async fn finish_work(&mut self) {
        assert_eq!(std::future::poll_fn(|context| self.channels.poll_work(context)).await, None);
    }

    /// Returns true if the channel `realtime:a` has a subscription to database changes.
    fn is_subscribed(&self) -> bool {
        self.channels.channels["realtime:a"].subscription.is_some()
    }

    /// Returns the frames that have arrived.
    fn received(&self) -> Vec<Value> {
        std::iter::from_fn(|| match self.outbox.next(Waker::noop()) {
            OutboxItem::Frame(frame) => Some(json_of(&frame)),
            _ => None,
        })
        .collect()
    }

    /// Handles a message of the client. Returns the next frame that it receives.
    fn send(&mut self, message: &Value) -> Value {
        self.begin(message);
        match self.outbox.next(Waker::noop()) {
            OutboxItem::Frame(frame) => json_of(&frame),
            item => panic!("{item:?}"),
        }
    }
}

#[tokio::test]
async fn a_track_that_a_room_has_no_space_for_is_answered_with_an_error() {
    let database = ScratchDatabase::new().await;
    let limits = RealtimeLimits { max_room_presence_bytes: 1_000, ..RealtimeLimits::default() };
    let test = TestService::with_settings(&database, RealtimeSettings { limits, ..RealtimeSettings::default() });
    let mut socket = TestSocket::new(&test);
    let joined = socket.send(&json!(["1", "1", "realtime:a", "phx_join", { "config": {} }]));
    assert_eq!(joined[4]["status"], "ok", "{joined}");
    let track = |reference: &str, length: usize| {
        let payload = json!({ "text": "x".repeat(length) });
        json!(["1", reference, "realtime:a", "presence", { "event": "track", "payload": payload }])
    };
    let rejected = json!({ "status": "error", "response": { "reason": "The presence of this channel is too large" } });
    assert_eq!(socket.send(&track("2", 2_000)), json!(["1", "2", "realtime:a", "phx_reply", rejected]));
    let tracked = json!({ "status": "ok", "response": {} });
    assert_eq!(socket.send(&track("3", 100)), json!(["1", "3", "realtime:a", "phx_reply", tracked]));
}

#[tokio::test]
async fn joins_and_their_rejections_are_counted() {
    let database = ScratchDatabase::new().await;
    let test = TestService::with_settings(&database, RealtimeSettings::default());
    let mut socket = TestSocket::new(&test);
    let rejected = socket.send(&json!(["1", "1", "realtime:", "phx_join", { "config": {} }]));
    let reason = "TopicNameRequired: You must provide a topic name";
    assert_eq!(rejected[4], json!({ "status": "error", "response": { "reason": reason } }));
    let rejected = socket.send(&json!(["2", "2", "realtime:a", "phx_join", { "access_token": "x" }]));
    assert_eq!(rejected[4]["status"], "error");
    let joined = socket.send(&json!(["3", "3", "realtime:a", "phx_join", { "config": {} }]));
    assert_eq!(joined[4]["status"], "ok");
    assert_eq!((test.service.rejected_joins.total(), test.service.joined_sockets()), (2, 1));
    // A join is counted against the rate before its token is checked
    assert_eq!(test.service.joins.total(), 2);
    drop(socket);
    assert_eq!(test.service.joined_sockets(), 0);
}

#[tokio::test]
async fn a_channel_that_waits_for_the_database_is_notified_after_each_loss_of_the_stream() {
    let database = ScratchDatabase::new().await;
    let test = TestService::with_settings(&database, RealtimeSettings::default());
    let mut socket = TestSocket::new(&test);
    let config = json!({ "config": { "broadcast": { "replication_ready": true } } });
    let joined = socket.send(&json!(["1", "1", "realtime:a", "phx_join", config]));
    assert_eq!(joined[4]["status"], "ok", "{joined}");
    for _ in 0..3 {
        let system = socket.next().await;
        assert_eq!((&system[2], &system[3]), (&json!("realtime:a"), &json!("system")));
        assert_eq!((&system[4]["status"], &system[4]["extension"]), (&json!("ok"), &json!("system")));
        assert_eq!(system[4]["message"], "Replication connection established");
        let end = "select pg_catalog.pg_terminate_backend(active_pid)
                     from pg_catalog.pg_replication_slots where database = current_database()";
        database.run(end).await;
    }
    // Waits do not count among the work after which no more messages are read
    assert_eq!((socket.channels.waits.len(), socket.channels.work.len()), (1, 0));
    let left = socket.send(&json!(["1", "2", "realtime:a", "phx_leave", {}]));
    assert_eq!(left[4]["status"], "ok");
    let system = test.service.stream.state().wait_for(|state| *state == StreamState::Running).await.is_ok();
    assert!(system);
    assert_eq!(socket.next().await[3], "phx_close", "and nothing more of the channel's");
}
