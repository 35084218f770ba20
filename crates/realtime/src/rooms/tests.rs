use bytes::Bytes;

use super::*;
use crate::ids::ChannelId;
use crate::settings::RealtimeLimits;
use crate::socket::FrameMemory;
use crate::socket::frame::{Frame, Reference, UserBroadcast, UserPayload, Version};
use crate::socket::outbox::{Outbox, OutboxItem};
use std::task::Waker;

struct Member {
    subscriber: Arc<Subscriber>,
    outbox: Arc<Outbox>,
}

impl Member {
    fn of(private: bool, topic: &str, version: Version) -> Self {
        let outbox = Arc::new(Outbox::new(&RealtimeLimits::default(), &FrameMemory::new(usize::MAX)));
        let room = RoomKey { private, topic: topic.into() };
        let head = SubscriberHead { id: ChannelId::next(), room, version, join_ref: Reference::NULL };
        let subscriber = Subscriber::new(head, Arc::clone(&outbox));
        subscriber.set_broadcasts(true);
        Self { subscriber, outbox }
    }

    fn received(&self) -> Vec<Frame> {
        std::iter::from_fn(|| match self.outbox.next(Waker::noop()) {
            OutboxItem::Frame(frame) => Some(frame),
            _ => None,
        })
        .collect()
    }
}

fn broadcast(topic: &str) -> Arc<RoomMessage> {
    let payload = UserPayload::Json(Bytes::from_static(b"1"));
    let broadcast = UserBroadcast { event: "e".into(), payload };
    RoomMessage::new(topic, RoomMessageBody::UserBroadcast { broadcast, metadata: "".into() })
}

fn publication(private: bool, topic: &str, except: Option<ChannelId>) -> Publication {
    Publication { room: RoomKey { private, topic: topic.into() }, message: broadcast(topic), except }
}

#[tokio::test]
async fn a_message_reaches_its_room_and_no_other() {
    let rooms = Rooms::new(Arc::default(), None);
    let shard = rooms.shard();
    let members = [
        Member::of(false, "a", Version::V2),
        Member::of(false, "a", Version::V1),
        Member::of(true, "a", Version::V2),
        Member::of(false, "b", Version::V2),
    ];
    members.iter().for_each(|member| shard.subscribe(Arc::clone(&member.subscriber)));
    rooms.publish(Some(&shard), publication(false, "a", None)).await;
    let counts: Vec<usize> = members.iter().map(|member| member.received().len()).collect();
    assert_eq!(counts, [1, 1, 0, 0]);

    rooms.publish(Some(&shard), publication(false, "a", Some(members[0].subscriber.id()))).await;
    assert_eq!((members[0].received().len(), members[1].received().len()), (0, 1), "the sender is left out");

    shard.unsubscribe(members[1].subscriber.room(), members[1].subscriber.id());
    rooms.publish(Some(&shard), publication(false, "a", None)).await;
    assert_eq!((members[0].received().len(), members[1].received().len()), (1, 0));
}

#[tokio::test]
async fn a_turn_delivers_many_messages_of_other_threads_and_leaves_turns_to_other_tasks() {
    let rooms = Rooms::new(Arc::default(), None);
    let shard = rooms.shard();
    let members: Vec<Member> = ["a"; 40].map(|topic| Member::of(false, topic, Version::V2)).into();
    shard.subscribe(Arc::clone(&members[0].subscriber));
    // The messages are in the queue before the task of the shard has a turn
    let publish = |count: usize| {
        (0..count).for_each(|_| assert!(rooms.try_publish(None, publication(false, "a", None)).is_none()));
    };
    publish(1000);
    tokio::task::yield_now().await;
    assert_eq!(members[0].received().len(), 1000);
    members[1..].iter().for_each(|member| shard.subscribe(Arc::clone(&member.subscriber)));
    publish(1000);
    for turns in 1_usize.. {
        tokio::task::yield_now().await;
        let received: usize = members.iter().map(|member| member.received().len()).sum();
        assert!(received < shard::DELIVERIES_PER_TURN + 40, "{received} deliveries in one turn");
        if received == 0 {
            assert!(turns > 2, "{turns} turns");
            break;
        }
    }
}

#[tokio::test]
async fn receivers_share_the_bytes_of_a_message() {
    let rooms = Rooms::new(Arc::default(), None);
    let shard = rooms.shard();
    let members: Vec<Member> = (0..3).map(|_| Member::of(false, "a", Version::V2)).collect();
    members.iter().for_each(|member| shard.subscribe(Arc::clone(&member.subscriber)));
    rooms.publish(Some(&shard), publication(false, "a", None)).await;
    let starts: Vec<*const u8> = members
        .iter()
        .map(|member| match &member.received()[..] {
            [Frame::Binary(bytes)] => bytes.as_ptr(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(starts.iter().all(|start| *start == starts[0]));
}

#[tokio::test]
async fn other_threads_get_a_message_through_their_queue() {
    let rooms = Rooms::new(Arc::default(), None);
    let own = rooms.shard();
    let (joined, wait) = tokio::sync::oneshot::channel();
    let elsewhere = rooms.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let member = Member::of(false, "a", Version::V2);
            elsewhere.shard().subscribe(Arc::clone(&member.subscriber));
            joined.send(()).unwrap();
            loop {
                let received = member.received();
                if !received.is_empty() {
                    return received.len();
                }
                tokio::task::yield_now().await;
            }
        })
    });
    wait.await.unwrap();
    rooms.publish(Some(&own), publication(false, "b", None)).await;
    rooms.publish(Some(&own), publication(false, "a", None)).await;
    assert_eq!(thread.join().unwrap(), 1);
}

#[tokio::test]
async fn live_messages_wait_for_stored_ones_and_come_once() {
    let rooms = Rooms::new(Arc::default(), None);
    let shard = rooms.shard();
    let member = Member::of(true, "a", Version::V2);
    member.subscriber.begin_replay();
    shard.subscribe(Arc::clone(&member.subscriber));
    let stored = uuid::Uuid::from_u128(1);
    let message = |id| {
        let payload = UserPayload::Json(Bytes::from_static(b"1"));
        let broadcast = UserBroadcast { event: "e".into(), payload };
        let body = RoomMessageBody::UserBroadcast { broadcast, metadata: "".into() };
        let message = RoomMessage::with_id("a", body, Some(id));
        Publication { room: RoomKey { private: true, topic: "a".into() }, message, except: None }
    };
    rooms.publish(Some(&shard), message(stored)).await;
    rooms.publish(Some(&shard), message(uuid::Uuid::from_u128(2))).await;
    assert_eq!(member.received().len(), 0);
    member.subscriber.finish_replay([stored]);
    assert_eq!(member.received().len(), 1, "one was stored and is sent already");
    rooms.publish(Some(&shard), message(stored)).await;
    assert_eq!(member.received().len(), 0);
}

#[tokio::test]
async fn live_messages_that_wait_for_stored_ones_are_bounded_in_number_and_size() {
    let rooms = Rooms::new(Arc::default(), None);
    let shard = rooms.shard();
    // The payload of each message, and how many of them may wait
    for (bytes, held) in [(1, 1024), (1024 * 1024, 4)] {
        let member = Member::of(true, "a", Version::V2);
        member.subscriber.begin_replay();
        shard.subscribe(Arc::clone(&member.subscriber));
        let payload = Bytes::from(vec![b'x'; bytes]);
        for _ in 0..held + 2 {
            let body = RoomMessageBody::Broadcast(payload.clone());
            let room = RoomKey { private: true, topic: "a".into() };
            rooms.publish(Some(&shard), Publication { room, message: RoomMessage::new("a", body), except: None }).await;
        }
        member.subscriber.finish_replay([]);
        assert_eq!(member.received().len(), held, "of {bytes} bytes");
        shard.unsubscribe(member.subscriber.room(), member.subscriber.id());
    }
}
