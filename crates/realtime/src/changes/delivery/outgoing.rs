//! The messages of many changes, collected by group: each channel gets all of its messages at once,
//! and its socket writes them together.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::changes::subscriptions::group::SubscriptionGroup;
use crate::socket::DeferredWakes;
use crate::socket::frame::Frame;

/// The number of messages that are collected: with more, the first ones would wait.
const MAX_FRAMES: usize = 256;
/// The bytes of such messages. They are in memory until they are sent.
const MAX_BYTES: usize = 1024 * 1024;

/// Messages that wait for the others of their group. A group gets its own in their order.
#[derive(Debug)]
pub(in crate::changes) struct OutgoingChanges {
    /// The number of the last subscription that receives them.
    last: u64,
    groups: IndexMap<u64, (Arc<SubscriptionGroup>, Vec<Frame>)>,
    frames: usize,
    bytes: usize,
}

impl OutgoingChanges {
    /// Returns no messages. Subscriptions with a number above `last` will not receive any.
    pub fn new(last: u64) -> Self {
        Self { last, groups: IndexMap::new(), frames: 0, bytes: 0 }
    }

    /// Adds a message to a group. Sends all if there are many. Returns the number of deliveries.
    pub fn add(&mut self, group: &Arc<SubscriptionGroup>, frame: Frame) -> usize {
        self.frames += 1;
        self.bytes += frame.len();
        self.groups.entry(group.id()).or_insert_with(|| (Arc::clone(group), Vec::new())).1.push(frame);
        if self.frames >= MAX_FRAMES || self.bytes >= MAX_BYTES { self.send() } else { 0 }
    }

    /// Sends all messages to the channels that are subscribed now. Returns the number of
    /// deliveries.
    pub fn send(&mut self) -> usize {
        (self.frames, self.bytes) = (0, 0);
        let mut wakes = DeferredWakes::default();
        self.groups.drain(..).map(|(_, (group, frames))| group.send(&frames, self.last, &mut wakes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::changes::entries::entry::ChangeMessageForm;
    use crate::changes::reads::role_reads::ChangeReader;
    use crate::changes::subscriptions::group::GroupKey;
    use crate::fixture::{TestChannel, person, room};
    use crate::socket::frame::Version;

    /// Returns a group with one channel.
    fn group(id: u64, topic: &str) -> (Arc<SubscriptionGroup>, TestChannel) {
        let channel = TestChannel::new(&room(false, topic), Version::V2);
        let key = GroupKey {
            reader: Arc::new(ChangeReader::of(&person("a"))),
            topic: topic.into(),
            version: Version::V2,
            form: ChangeMessageForm::Ids,
            entries: Arc::new([]),
        };
        let group = SubscriptionGroup::new(id, key, Arc::new([]));
        group.members().insert(1, Arc::clone(&channel.subscriber));
        (Arc::new(group), channel)
    }

    fn frame(number: usize, bytes: usize) -> Frame {
        Frame::Text(Bytes::from(vec![u8::try_from(number % 256).unwrap(); bytes]))
    }

    #[test]
    fn each_channel_gets_its_messages_together_and_in_their_order() {
        let ((a, to_a), (b, to_b)) = (group(1, "a"), group(2, "b"));
        let mut outgoing = OutgoingChanges::new(1);
        for number in 0..4 {
            assert_eq!(outgoing.add(if number % 2 == 0 { &a } else { &b }, frame(number, 1)), 0);
        }
        assert!(to_a.received().is_empty() && to_b.received().is_empty());
        assert_eq!(outgoing.send(), 4);
        assert_eq!(to_a.received(), [frame(0, 1), frame(2, 1)]);
        assert_eq!(to_b.received(), [frame(1, 1), frame(3, 1)]);
        assert_eq!(outgoing.send(), 0);
    }

    #[test]
    fn the_messages_that_wait_are_bounded_in_number_and_size() {
        let (a, to_a) = group(1, "a");
        let mut outgoing = OutgoingChanges::new(1);
        let sent: usize = (0..=MAX_FRAMES).map(|number| outgoing.add(&a, frame(number, 1))).sum();
        assert_eq!((sent, to_a.received().len()), (MAX_FRAMES, MAX_FRAMES));
        assert_eq!(outgoing.add(&a, frame(0, MAX_BYTES)), 2, "the one before, and itself");
    }

    #[test]
    fn a_channel_that_leaves_before_the_messages_are_sent_receives_none() {
        let (a, to_a) = group(1, "a");
        let mut outgoing = OutgoingChanges::new(1);
        outgoing.add(&a, frame(0, 1));
        a.members().clear();
        assert_eq!((outgoing.send(), to_a.received().len()), (0, 0));
    }
}
