use std::collections::BTreeMap;
use std::sync::Barrier;

use serde_json::json;

use super::*;
use crate::fixture::{TestChannel, json_of, room};
use crate::socket::frame::{Frame, Version};

/// Rooms on the current thread, with their presence.
struct Place {
    rooms: Rooms,
    presence: Presence,
}

impl Place {
    fn new() -> Self {
        Self::with_limits(&RealtimeLimits::default())
    }

    fn with_limits(limits: &RealtimeLimits) -> Self {
        let rooms = Rooms::new(Arc::default(), None);
        Self { presence: Presence::new(rooms.clone(), limits), rooms }
    }

    /// Joins a channel on the current thread.
    fn join(&self, room: &RoomKey, version: Version) -> TestChannel {
        let channel = TestChannel::new(room, version);
        self.rooms.shard().subscribe(Arc::clone(&channel.subscriber));
        channel
    }

    fn track(&self, channel: &TestChannel, key: &str, payload: Value) -> TrackOutcome {
        let Value::Object(payload) = payload else { panic!("{payload}") };
        self.presence.track(&channel.subscriber, key, payload)
    }

    fn untrack(&self, channel: &TestChannel, key: &str) {
        self.presence.untrack(&channel.subscriber, key);
    }

    fn state(&self, room: &RoomKey) -> Value {
        serde_json::from_slice(&self.presence.state(room)).unwrap()
    }

    fn room_count(&self) -> usize {
        self.presence.0.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

/// Waits for the next diff, and returns its payload.
async fn diff(channel: &TestChannel) -> Value {
    let frame = json_of(&channel.next().await);
    assert_eq!((&frame[0], &frame[1], &frame[3]), (&Value::Null, &Value::Null, &json!("presence_diff")));
    frame[4].clone()
}

#[tokio::test]
async fn changes_become_diffs_of_joins_and_leaves() {
    let (place, a) = (Place::new(), room(false, "a"));
    let (ann, bob) = (place.join(&a, Version::V2), place.join(&a, Version::V2));
    assert_eq!(place.track(&ann, "ann", json!({ "n": 1, "deep": [{ "x": null }] })), TrackOutcome::Joined);
    let first = diff(&bob).await;
    assert_eq!(diff(&ann).await, first, "the sender too");
    let old = first["joins"]["ann"]["metas"][0]["phx_ref"].as_str().unwrap();
    assert_eq!(old.len(), 16);
    let meta = json!({ "phx_ref": old, "n": 1, "deep": [{ "x": null }] });
    assert_eq!(first, json!({ "joins": { "ann": { "metas": [meta] } }, "leaves": {} }));

    assert_eq!(place.track(&ann, "ann", json!({ "deep": [{ "x": null }], "n": 1 })), TrackOutcome::Unchanged);
    assert_eq!(place.track(&ann, "ann", json!({ "n": 2 })), TrackOutcome::Updated);
    let second = diff(&bob).await;
    let new = second["joins"]["ann"]["metas"][0]["phx_ref"].as_str().unwrap();
    assert_ne!(new, old);
    let updated = json!({ "phx_ref": new, "phx_ref_prev": old, "n": 2 });
    let expected = json!({ "joins": { "ann": { "metas": [updated] } }, "leaves": { "ann": { "metas": [meta] } } });
    assert_eq!(second, expected);
    assert_eq!(place.state(&a), json!({ "ann": { "metas": [updated] } }));

    place.untrack(&ann, "ann");
    assert_eq!(diff(&bob).await, json!({ "joins": {}, "leaves": { "ann": { "metas": [updated] } } }));
    place.untrack(&ann, "ann");
    assert_eq!(place.state(&a), json!({}));
    assert_eq!(place.room_count(), 0, "an empty room costs nothing");
    assert_eq!(place.track(&bob, "bob", json!({})), TrackOutcome::Joined);
    assert!(diff(&bob).await["joins"]["bob"].is_object(), "and no diff for what changed nothing");
}

#[tokio::test]
async fn channels_share_a_key_and_rooms_share_nothing() {
    let place = Place::new();
    let (public, private) = (room(false, "a"), room(true, "a"));
    let (one, two) = (place.join(&public, Version::V2), place.join(&public, Version::V2));
    let hidden = place.join(&private, Version::V2);
    place.track(&one, "k", json!({ "n": 1 }));
    place.track(&two, "k", json!({ "n": 2 }));
    place.track(&hidden, "k", json!({ "n": 3 }));
    let numbers = |state: &Value| -> Vec<Value> {
        state["k"]["metas"].as_array().unwrap().iter().map(|meta| meta["n"].clone()).collect()
    };
    assert_eq!(numbers(&place.state(&public)), [1, 2]);
    assert_eq!(numbers(&place.state(&private)), [3]);
    let shown = diff(&hidden).await;
    assert_eq!(numbers(&shown["joins"]), [3]);
    place.untrack(&one, "another key");
    assert_eq!(numbers(&place.state(&public)), [1, 2]);
    place.untrack(&one, "k");
    assert_eq!(numbers(&place.state(&public)), [2]);
    assert_eq!(numbers(&place.state(&private)), [3]);
    for _ in 0..3 {
        diff(&two).await;
    }
    assert_eq!(hidden.received().len() + two.received().len(), 0);
}

#[tokio::test]
async fn a_payload_cannot_replace_the_references() {
    let (place, a) = (Place::new(), room(false, "a"));
    let ann = place.join(&a, Version::V2);
    let payload = json!({ "phx_ref": "mine", "phx_ref_prev": [], "n": "\"\u{7}é" });
    assert_eq!(place.track(&ann, "k\"\\", payload.clone()), TrackOutcome::Joined);
    let state = place.state(&a);
    let meta = &state["k\"\\"]["metas"][0];
    assert_ne!(meta["phx_ref"], "mine");
    assert_eq!((meta.get("phx_ref_prev"), &meta["n"]), (None, &json!("\"\u{7}é")));
    assert_eq!(place.track(&ann, "k\"\\", payload), TrackOutcome::Unchanged);
}

#[tokio::test]
async fn both_versions_and_only_receivers_of_presence_get_diffs() {
    let (place, a) = (Place::new(), room(false, "a"));
    let (old, deaf) = (place.join(&a, Version::V1), place.join(&a, Version::V2));
    deaf.subscriber.set_presence(false);
    place.track(&deaf, "k", json!({}));
    let frame = json_of(&old.next().await);
    assert_eq!((&frame["event"], &frame["topic"]), (&json!("presence_diff"), &json!("realtime:a")));
    assert!(frame["payload"]["joins"]["k"]["metas"][0]["phx_ref"].is_string());
    assert_eq!(deaf.received(), [] as [Frame; 0]);
}

/// The presence as a client computes it from diffs: keys with references.
#[derive(Default, Debug, PartialEq)]
struct ClientState(BTreeMap<String, Vec<String>>);

fn references(metas: &Value) -> impl Iterator<Item = (String, Vec<String>)> {
    let metas = metas.as_object().unwrap().iter();
    metas.map(|(key, entry)| {
        let references = entry["metas"].as_array().unwrap().iter();
        (key.clone(), references.map(|meta| meta["phx_ref"].as_str().unwrap().to_owned()).collect())
    })
}

impl ClientState {
    /// Applies a diff. A leave of an entry that is not there would be out of order.
    fn apply(&mut self, diff: &Value) {
        for (key, mut joined) in references(&diff["joins"]) {
            self.0.entry(key).or_default().append(&mut joined);
        }
        for (key, left) in references(&diff["leaves"]) {
            let own = self.0.get_mut(&key).unwrap();
            for reference in left {
                let index = own.iter().position(|own| *own == reference).expect("its join came before");
                own.remove(index);
            }
            if own.is_empty() {
                self.0.remove(&key);
            }
        }
    }
}

/// Makes more changes than the queues have room for, by several threads at once.
#[tokio::test]
async fn diffs_arrive_in_the_order_of_the_changes() {
    const THREADS: usize = 4;
    const CHANGES: usize = 1_000;
    let (place, a) = (Arc::new(Place::new()), room(false, "a"));
    let receiver = place.join(&a, Version::V2);
    let ready = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (place, a, ready, runtime) =
                (Arc::clone(&place), a.clone(), Arc::clone(&ready), tokio::runtime::Handle::current());
            std::thread::spawn(move || {
                let _entered = runtime.enter();
                let channels = [TestChannel::new(&a, Version::V2), TestChannel::new(&a, Version::V2)];
                ready.wait();
                for change in 0..CHANGES {
                    let (channel, key) = (&channels[change % 2], ["shared", "other"][change / 2 % 2]);
                    // Not every second, so that both join, update and leave happen
                    match (change * 7 + thread) % 5 {
                        0 => channels.iter().for_each(|channel| place.untrack(channel, key)),
                        _ => {
                            place.track(channel, key, json!({ "n": change }));
                        }
                    }
                }
            })
        })
        .collect();
    // Nothing is delivered before they are done, because delivery needs this thread
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut expected = ClientState::default();
    expected.apply(&json!({ "joins": place.state(&a), "leaves": {} }));
    let last = place.join(&a, Version::V2);
    place.track(&last, "last", json!({}));
    let mut seen = ClientState::default();
    let mut diffs = 0;
    loop {
        let diff = diff(&receiver).await;
        if diff["joins"].get("last").is_some() {
            break;
        }
        seen.apply(&diff);
        diffs += 1;
    }
    assert!(diffs > 2_000, "{diffs} are more than fit into a queue");
    for state in [&mut seen, &mut expected] {
        state.0.values_mut().for_each(|references| references.sort());
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_payload_that_a_room_or_the_server_has_no_space_for_is_rejected() {
    let limits =
        RealtimeLimits { max_room_presence_bytes: 2_000, max_presence_bytes: 3_000, ..RealtimeLimits::default() };
    let (place, a, b) = (Place::with_limits(&limits), room(false, "a"), room(true, "a"));
    let [ann, bob] = [place.join(&a, Version::V2), place.join(&a, Version::V2)];
    let [cid, dan] = [place.join(&b, Version::V2), place.join(&b, Version::V2)];
    let large = |length: usize| json!({ "text": "x".repeat(length) });
    assert_eq!(place.track(&ann, "ann", large(1_500)), TrackOutcome::Joined);
    let state = place.state(&a);
    assert_eq!(place.track(&bob, "bob", large(100)), TrackOutcome::TooLarge, "of the room");
    assert_eq!(place.track(&ann, "ann", large(3_000)), TrackOutcome::TooLarge, "of one channel");
    assert_eq!(place.state(&a), state, "nothing has changed");
    assert_eq!(place.track(&cid, "cid", large(500)), TrackOutcome::Joined);
    assert_eq!(place.track(&dan, "dan", large(500)), TrackOutcome::TooLarge, "of the server");
    // A smaller payload in place of a larger one always fits, and makes space
    assert_eq!(place.track(&ann, "ann", large(500)), TrackOutcome::Updated);
    assert_eq!(place.track(&dan, "dan", large(500)), TrackOutcome::Joined);
    assert_eq!(place.track(&bob, "bob", large(100)), TrackOutcome::Joined);
    for (channel, key) in [(&ann, "ann"), (&bob, "bob"), (&cid, "cid"), (&dan, "dan")] {
        place.untrack(channel, key);
    }
    assert_eq!(place.presence.0.bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_channels_of_a_socket_track_a_bounded_size_together() {
    let limits = RealtimeLimits { max_socket_presence_bytes: 2_000, ..RealtimeLimits::default() };
    let (place, a, b) = (Place::with_limits(&limits), room(false, "a"), room(true, "b"));
    let ann = TestChannel::new(&a, Version::V2);
    let (beside, other) = (ann.beside(&b), TestChannel::new(&b, Version::V2));
    let large = |length: usize| json!({ "text": "x".repeat(length) });
    assert_eq!(place.track(&ann, "ann", large(1_000)), TrackOutcome::Joined);
    assert_eq!(place.track(&beside, "ann", large(500)), TrackOutcome::TooLarge);
    assert_eq!(place.track(&other, "other", large(1_000)), TrackOutcome::Joined, "of another socket");
    assert_eq!(place.track(&ann, "ann", large(3_000)), TrackOutcome::TooLarge);
    assert_eq!(place.track(&ann, "ann", large(500)), TrackOutcome::Updated);
    assert_eq!(place.track(&beside, "ann", large(500)), TrackOutcome::Joined);
    place.untrack(&ann, "another key");
    assert_eq!(place.track(&beside, "ann", large(1_000)), TrackOutcome::TooLarge);
    place.untrack(&ann, "ann");
    assert_eq!(place.track(&beside, "ann", large(1_000)), TrackOutcome::Updated);
    place.untrack(&beside, "ann");
    place.untrack(&beside, "ann");
    assert_eq!(ann.subscriber.tracked_bytes().load(Ordering::Relaxed), 0);
}
