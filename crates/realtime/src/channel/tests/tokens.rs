//! Tokens of another person on a private channel, and newer ones of the same person.

use super::*;
use crate::fixture::{TestChannel, room};
use crate::rooms::{Publication, RoomMessage, RoomMessageBody};

/// Returns a token of a person. Tokens with different sessions differ in their claims.
fn token(test: &TestService, subject: &str, session: u8) -> String {
    test.token_with(json!({ "role": "authenticated", "sub": subject, "session": session }))
}

/// A private channel `realtime:a` that Ann has joined with presence, and another channel in its
/// room.
struct PrivateRoom {
    socket: TestSocket,
    test: TestService,
    other: TestChannel,
    _database: ScratchDatabase,
}

impl PrivateRoom {
    /// Joins in a database where `condition` decides what may be received.
    async fn joined(condition: &str) -> Self {
        let database = ScratchDatabase::new().await;
        let policy = format!("create policy a on realtime.messages for select to authenticated using ({condition})");
        database.run(&policy).await;
        let test = TestService::new(&database);
        let other = TestChannel::new(&room(true, "a"), Version::V2);
        let mut socket = TestSocket::new(&test);
        let config = json!({ "private": true, "presence": { "enabled": true } });
        let join = json!({ "config": config, "access_token": token(&test, "ann", 1) });
        socket.begin(&json!(["1", "1", "realtime:a", "phx_join", join]));
        socket.finish_work().await;
        // Behind the channel of the socket: it receives each message of the room after it
        test.service.rooms.shard().subscribe(std::sync::Arc::clone(&other.subscriber));
        Self { socket, test, other, _database: database }
    }

    /// Begins the change to another token. The check of its permissions waits until the socket is
    /// polled.
    fn change_token(&mut self, subject: &str, session: u8) {
        let payload = json!({ "access_token": token(&self.test, subject, session) });
        self.socket.begin(&json!(["1", "2", "realtime:a", "access_token", payload]));
    }

    /// Publishes a broadcast and a change of the presence, and waits for their delivery.
    async fn publish(&self, event: &str) {
        let rooms = &self.test.service.rooms;
        let payload = json!({ "type": "broadcast", "event": event, "payload": {} }).to_string();
        let message = RoomMessage::new("a", RoomMessageBody::Broadcast(payload.into()));
        rooms.publish(None, Publication { room: room(true, "a"), message, except: None }).await;
        let state = json!({ "event": event }).as_object().unwrap().clone();
        self.test.service.presence.track(&self.other.subscriber, "other", state);
        for _ in 0..2 {
            self.other.next().await;
        }
    }

    /// Returns the events that have arrived.
    fn events(&self) -> Vec<String> {
        let received = self.socket.received();
        received.iter().map(|frame| frame[3].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn another_person_receives_nothing_before_the_permissions_of_a_private_channel_are_read() {
    let mut private = PrivateRoom::joined("auth.jwt() ->> 'sub' in ('ann', 'bob')").await;
    assert_eq!(private.events(), ["phx_reply", "presence_state"]);
    private.publish("of ann").await;
    assert_eq!(private.events(), ["broadcast", "presence_diff"]);

    private.change_token("bob", 1);
    private.publish("between").await;
    assert_eq!(private.events(), [""; 0]);
    private.socket.finish_work().await;
    let received = private.socket.received();
    let metas = &received[0][4]["other"]["metas"];
    assert_eq!((received.len(), &received[0][3], &metas[0]["event"]), (1, &json!("presence_state"), &json!("between")));
    private.publish("of bob").await;
    assert_eq!(private.events(), ["broadcast", "presence_diff"]);

    private.change_token("eve", 1);
    private.publish("not of eve").await;
    private.socket.finish_work().await;
    let ended = private.socket.received();
    let reason = "You do not have permissions to read from this Channel topic: a";
    assert_eq!((&ended[0][4]["message"], &ended[1][3], ended.len()), (&json!(reason), &json!("phx_close"), 2));
}

#[tokio::test]
async fn what_a_channel_tracks_ends_with_a_person_who_may_not_track() {
    let database = ScratchDatabase::new().await;
    let policies = "create policy reads on realtime.messages for select to authenticated using (true);
                    create policy writes on realtime.messages for insert to authenticated
                      with check (auth.jwt() ->> 'sub' in ('ann', 'carl'))";
    database.run(policies).await;
    let test = TestService::new(&database);
    let mut socket = TestSocket::new(&test);
    let config = json!({ "private": true, "presence": { "enabled": true, "key": "a" } });
    let join = json!({ "config": config, "access_token": token(&test, "ann", 1) });
    socket.begin(&json!(["1", "1", "realtime:a", "phx_join", join]));
    socket.finish_work().await;
    let track = json!({ "type": "presence", "event": "track", "payload": { "name": "Ann" } });
    socket.begin(&json!(["1", "2", "realtime:a", "presence", track]));
    socket.finish_work().await;
    for (subject, session, stays) in [("ann", 2, true), ("carl", 1, true), ("bob", 1, false)] {
        let payload = json!({ "access_token": token(&test, subject, session) });
        socket.begin(&json!(["1", "3", "realtime:a", "access_token", payload]));
        socket.finish_work().await;
        let state = test.service.presence.state(&room(true, "a"));
        assert_eq!(String::from_utf8_lossy(&state).contains("Ann"), stays, "{subject}");
    }
    socket.received();
    let track = socket.send(&json!(["1", "4", "realtime:a", "presence", track]));
    assert_eq!(track[4]["status"], "error", "{track}");
}

#[tokio::test]
async fn another_role_of_the_same_subject_is_another_person() {
    let mut private = PrivateRoom::joined("true").await;
    private.events();
    let token = private.test.token_with(json!({ "role": "anon", "sub": "ann" }));
    private.socket.begin(&json!(["1", "2", "realtime:a", "access_token", { "access_token": token }]));
    private.publish("between").await;
    assert_eq!(private.events(), [""; 0]);
}

#[tokio::test]
async fn a_newer_token_of_the_same_person_leaves_no_gap() {
    let mut private = PrivateRoom::joined("true").await;
    private.events();
    private.change_token("ann", 2);
    private.publish("between").await;
    assert_eq!(private.events(), ["broadcast", "presence_diff"]);
    private.socket.finish_work().await;
    assert_eq!(private.events(), [""; 0], "and no other presence");
    private.publish("after").await;
    assert_eq!(private.events(), ["broadcast", "presence_diff"]);
}

#[tokio::test]
async fn a_newly_granted_presence_begins_with_its_state() {
    let condition = "extension = 'broadcast' or (auth.jwt() ->> 'session')::int = 2";
    let mut private = PrivateRoom::joined(condition).await;
    assert_eq!(private.events(), ["phx_reply"]);
    private.publish("before").await;
    assert_eq!(private.events(), ["broadcast"]);
    private.change_token("ann", 2);
    private.socket.finish_work().await;
    assert_eq!(private.events(), ["presence_state"]);
    private.publish("after").await;
    assert_eq!(private.events(), ["broadcast", "presence_diff"]);
}

#[tokio::test]
async fn another_person_is_not_subscribed_while_the_permissions_of_a_private_channel_are_read() {
    let database = ScratchDatabase::new().await;
    database.run("create policy a on realtime.messages for select to authenticated using (true)").await;
    let test = TestService::with_settings(&database, RealtimeSettings::default());
    let mut socket = TestSocket::new(&test);
    let config = json!({
        "private": true,
        "postgres_changes": [{ "event": "*", "schema": "public", "table": "items" }]
    });
    let join = json!({ "config": config, "access_token": token(&test, "ann", 1) });
    socket.begin(&json!(["1", "1", "realtime:a", "phx_join", join]));
    socket.finish_work().await;
    assert!(socket.is_subscribed());
    for (subject, session, stays) in [("ann", 2, true), ("bob", 1, false)] {
        let payload = json!({ "access_token": token(&test, subject, session) });
        // Nothing polls the check of the permissions yet
        socket.begin(&json!(["1", "2", "realtime:a", "access_token", payload]));
        assert_eq!(socket.is_subscribed(), stays, "{subject}");
        socket.finish_work().await;
        assert!(socket.is_subscribed(), "{subject}");
    }
}

#[tokio::test]
async fn a_channel_whose_own_token_is_void_ends_and_leaves_the_socket() {
    let test = TestService::without_database(RealtimeSettings::default());
    let before = token(&test, "ann", 1);
    test.replace_key();
    let mut socket = TestSocket::new(&test);
    let joined = socket.send(&json!(["1", "1", "realtime:stays", "phx_join", { "config": {} }]));
    assert_eq!(joined[4]["status"], "ok");
    // Joined before the key was replaced
    let payload = json!({ "config": {}, "access_token": token(&test, "ann", 1) });
    let joined = socket.send(&json!(["2", "2", "realtime:a", "phx_join", payload]));
    assert_eq!(joined[4]["status"], "ok");
    if let Some(channel) = socket.channels.channels.get_mut("realtime:a") {
        channel.token = before.into();
    }
    assert_eq!(socket.channels.check_tokens(), None);
    let received = socket.received();
    let ended = (&received[0][4]["message"], &received[1][3], &received[1][2], received.len());
    let message = json!("Failed to validate JWT signature");
    assert_eq!(ended, (&message, &json!("phx_close"), &json!("realtime:a"), 2));
    assert!(socket.channels.channels.contains_key("realtime:stays"));
}

#[tokio::test]
async fn an_expired_token_of_the_socket_leaves_channels_with_tokens_of_their_own() {
    let test = TestService::without_database(RealtimeSettings::default());
    let mut socket = TestSocket::new(&test);
    let payload = json!({ "config": {}, "access_token": token(&test, "ann", 1) });
    let joined = socket.send(&json!(["1", "1", "realtime:a", "phx_join", payload]));
    assert_eq!(joined[4]["status"], "ok");
    socket.channels.socket.token = test.expired_token("anon").into();
    assert_eq!(socket.channels.check_tokens(), None);
    assert_eq!(socket.received(), [json!(null); 0]);
}
