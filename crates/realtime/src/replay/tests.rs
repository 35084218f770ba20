use portico_base::Clock;
use portico_database::wire::WirePoolSettings;
use time::macros::datetime;

use super::*;
use crate::fixture::{ScratchDatabase, TestChannel, json_of, room};

fn all() -> ReplayParameters {
    ReplayParameters::parse(&json!({ "since": 0 })).unwrap()
}

fn channel(version: Version) -> TestChannel {
    TestChannel::new(&room(true, "a"), version)
}

#[test]
fn parameters_are_integers_in_their_range() {
    let parse = |value: Value| ReplayParameters::parse(&value);
    let since = datetime!(2026-01-02 3:04:05.678 UTC);
    assert_eq!(parse(json!({ "since": 1_767_323_045_678_i64, "limit": 7 })), Ok(ReplayParameters { since, limit: 7 }));
    for (limit, clamped) in
        [(json!(0), 1), (json!(-5), 1), (json!(26), 25), (json!(u64::MAX), 25), (json!(i64::MIN), 1)]
    {
        assert_eq!(parse(json!({ "since": 1, "limit": limit })).unwrap().limit, clamped);
    }
    assert_eq!(parse(json!({ "since": 1 })).unwrap().limit, 25);
    assert!(parse(json!({ "since": -1_000_000_000_000_i64 })).is_ok());
    for wrong in [
        json!(null),
        json!({}),
        json!([1]),
        json!({ "limit": 1 }),
        json!({ "since": "1" }),
        json!({ "since": 1.5 }),
        json!({ "since": i64::MAX }),
        json!({ "since": u64::MAX }),
        json!({ "since": 1, "limit": "1" }),
        json!({ "since": 1, "limit": 1.5 }),
        json!({ "since": 1, "limit": null }),
    ] {
        assert_eq!(parse(wrong.clone()), Err(JoinError::ReplayParameters), "{wrong}");
    }
}

#[tokio::test]
async fn the_newest_private_broadcasts_come_oldest_first() {
    let database = ScratchDatabase::new().await;
    let pool = database.pool(WirePoolSettings::default());
    database
        .run(
            "begin; set local timezone = 'UTC';
             insert into realtime.messages (topic, extension, private, event, payload, inserted_at)
             select 'a', 'broadcast', true, 'e' || n, jsonb_build_object('n', n), now() - interval '1 hour' + n * interval '1 s'
               from generate_series(1, 30) as n;
             insert into realtime.messages (topic, extension, private, event, payload, inserted_at) values
               ('a', 'broadcast', false, 'public', '{}', now()), ('a', 'presence', true, 'presence', '{}', now()),
               ('b', 'broadcast', true, 'other', '{}', now()), ('a', 'broadcast', true, 'future', '{}', now() + interval '2 minutes'),
               ('a', 'broadcast', true, null, '{}', now()), ('a', 'broadcast', true, 'nothing', null, now());
             commit",
        )
        .await;
    let channel = channel(Version::V2);
    let now = Clock::system().now();
    let events = async |parameters: &ReplayParameters| -> Vec<String> {
        let messages = replay(&pool, &channel.subscriber, parameters, now).await.unwrap();
        let frames = messages.iter().map(|message| json_of(message.frame.as_ref().unwrap()));
        frames.map(|frame| frame[4]["event"].as_str().unwrap().to_owned()).collect()
    };
    // Two of the newest 25 are no broadcasts
    assert_eq!(events(&all()).await, (8..=30).map(|n| format!("e{n}")).collect::<Vec<_>>());
    let limited = ReplayParameters { limit: 4, ..all() };
    assert_eq!(events(&limited).await, ["e29", "e30"]);
    let recent = ReplayParameters { since: now - Duration::hours(1) + Duration::seconds(26), ..all() };
    let recent = events(&recent).await;
    assert!(recent.len() <= 6 && recent.last().unwrap() == "e30", "{recent:?}");
    assert_eq!(events(&ReplayParameters { since: now + Duration::hours(1), ..all() }).await, [] as [String; 0]);
    let distant = ReplayParameters::parse(&json!({ "since": -62_000_000_000_000_i64 })).unwrap();
    assert_eq!(events(&distant).await.len(), 23);
}

#[tokio::test]
async fn messages_of_one_transaction_keep_their_order() {
    let database = ScratchDatabase::new().await;
    let pool = database.pool(WirePoolSettings::default());
    database
        .run("do $$ begin for n in 1..20 loop perform realtime.send(jsonb_build_object('n', n), 'e', 'a', true); end loop; end $$")
        .await;
    let channel = channel(Version::V2);
    let messages = replay(&pool, &channel.subscriber, &all(), Clock::system().now()).await.unwrap();
    let numbers: Vec<_> = messages
        .iter()
        .map(|message| json_of(message.frame.as_ref().unwrap())[4]["payload"]["n"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn frames_have_the_form_of_their_version() {
    let database = ScratchDatabase::new().await;
    let pool = database.pool(WirePoolSettings::default());
    database
        .run(
            r#"insert into realtime.messages (id, topic, extension, private, event, payload, binary_payload, inserted_at) values
               ('00000000-0000-0000-0000-000000000001', 'a', 'broadcast', true, 'j"', '{"x": [1, "é"]}', null, now() - interval '2 s'),
               ('00000000-0000-0000-0000-000000000002', 'a', 'broadcast', true, 'b', null, '\x0001ff', now() - interval '1 s')"#,
        )
        .await;
    let now = Clock::system().now();
    let (new, old) = (channel(Version::V2), channel(Version::V1));
    let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let messages = replay(&pool, &new.subscriber, &all(), now).await.unwrap();
    assert_eq!(messages.iter().map(|message| message.id).collect::<Vec<_>>(), ids);
    let payload = json!({
        "type": "broadcast", "event": "j\"", "payload": { "x": [1, "é"] }, "meta": { "replayed": true, "id": ids[0] },
    });
    let text = json_of(messages[0].frame.as_ref().unwrap());
    assert_eq!(text, json!([null, null, "realtime:a", "broadcast", payload]));
    let metadata = format!(r#"{{"replayed":true,"id":"{}"}}"#, ids[1]);
    let mut binary = vec![4, 10, 1, u8::try_from(metadata.len()).unwrap(), 0];
    binary.extend(b"realtime:ab");
    binary.extend(metadata.as_bytes());
    binary.extend([0, 1, 255]);
    assert_eq!(messages[1].frame, Some(Frame::Binary(binary.into())));

    let messages = replay(&pool, &old.subscriber, &all(), now).await.unwrap();
    let text = json_of(messages[0].frame.as_ref().unwrap());
    assert_eq!((&text["event"], &text["payload"]), (&json!("broadcast"), &payload));
    assert_eq!(messages[1], StoredMessage { id: ids[1], frame: None });
}

/// A client would be disconnected for them, and come again.
#[tokio::test]
async fn large_messages_are_left_out_before_newer_ones() {
    let database = ScratchDatabase::new().await;
    let pool = database.pool(WirePoolSettings::default());
    database
        .run(
            "insert into realtime.messages (topic, extension, private, event, payload, inserted_at)
             select 'a', 'broadcast', true, 'e' || n, to_jsonb(repeat('x', size)), now() - (10 - n) * interval '1 s'
               from (values (1, 1), (2, 2000000), (3, 5000000), (4, 2000000), (5, 10)) as sizes (n, size)",
        )
        .await;
    let channel = channel(Version::V2);
    let messages = replay(&pool, &channel.subscriber, &all(), Clock::system().now()).await.unwrap();
    let events: Vec<_> =
        messages.iter().map(|message| json_of(message.frame.as_ref().unwrap())[4]["event"].clone()).collect();
    assert_eq!(events, ["e1", "e2", "e4", "e5"]);
    database.run("update realtime.messages set payload = to_jsonb(repeat('x', 3000000)) where event = 'e2'").await;
    let messages = replay(&pool, &channel.subscriber, &all(), Clock::system().now()).await.unwrap();
    assert_eq!(messages.len(), 2);
}

#[tokio::test]
async fn a_failure_rejects_the_join() {
    let database = ScratchDatabase::new().await;
    let pool = database.pool(WirePoolSettings::default());
    database.run("alter table realtime.messages rename to elsewhere").await;
    let channel = channel(Version::V2);
    let outcome = replay(&pool, &channel.subscriber, &all(), Clock::system().now()).await;
    assert_eq!(outcome, Err(JoinError::ReplayFailed));
}
