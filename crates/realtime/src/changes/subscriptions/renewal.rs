//! New tokens of channels that are subscribed: the subscription stays, with its checked entries,
//! and gets another reader. No change comes twice, and for the same person none is lost. Another
//! person receives nothing of the delivery in progress.
//!
//! A change that is being delivered was decided on for the reader before. So while changes are
//! being delivered, a new reader waits for their end. A channel that subscribes again meanwhile, as
//! after a change of its role, receives the changes after these.

use std::sync::Arc;

use super::group::GroupKey;
use super::registry::{PendingRenewal, Registry, RegistryState, SubscriptionRegistration};
use crate::changes::reads::role_reads::ChangeReader;

/// Keeps the readers of all subscriptions as they are until it is dropped.
#[derive(Debug)]
pub(crate) struct DeliveryInProgress<'a> {
    registry: &'a Registry,
    /// The number of the last subscription before it began. Later ones receive nothing of it: their
    /// channels may have received it with a subscription before.
    pub last: u64,
}

impl Registry {
    /// Begins a delivery. There is one at a time.
    pub fn begin_delivery(&self) -> DeliveryInProgress<'_> {
        let mut state = self.state();
        state.is_delivering = true;
        DeliveryInProgress { registry: self, last: state.next }
    }

    /// Gives a subscription another reader of the same role, for which its entries were checked,
    /// and reports it to the channel. If `is_same_subject`, changes that are being delivered
    /// still reach it as they were decided on for the reader before; otherwise it receives nothing
    /// from this call until they are delivered. Returns false if the subscription has ended.
    pub fn renew(
        &self,
        registration: &SubscriptionRegistration,
        reader: Arc<ChangeReader>,
        is_same_subject: bool,
    ) -> bool {
        let mut state = self.state();
        let number = registration.number();
        let Some(group) = state.subscriptions.get(&number).cloned() else { return false };
        let member = match is_same_subject {
            true => group.members().get(&number).cloned(),
            false => group.members().swap_remove(&number),
        };
        // One that waits already has no member in its group
        let pending = state.renewals.remove(&number).map(|renewal| renewal.subscriber);
        let Some(subscriber) = member.or(pending) else { return false };
        let renewal = PendingRenewal { reader, subscriber };
        if state.is_delivering {
            state.renewals.insert(number, renewal);
        } else {
            state.renew(number, renewal);
        }
        true
    }
}

impl Drop for DeliveryInProgress<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.state();
        state.is_delivering = false;
        for (number, renewal) in std::mem::take(&mut state.renewals) {
            state.renew(number, renewal);
        }
    }
}

impl RegistryState {
    /// Moves a subscription to the group of its new reader.
    fn renew(&mut self, number: u64, renewal: PendingRenewal) {
        let Some(before) = self.subscriptions.get(&number).cloned() else { return };
        let PendingRenewal { reader, subscriber } = renewal;
        let key = GroupKey { reader, ..before.key.clone() };
        let after = match self.groups.get(&key) {
            Some(group) => Arc::clone(group),
            None => self.add_group(key, Arc::clone(&before.valid)),
        };
        before.members().swap_remove(&number);
        after.members().insert(number, Arc::clone(&subscriber));
        self.subscriptions.insert(number, Arc::clone(&after));
        self.remove_if_empty(&before);
        self.report_to(&subscriber, &after);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;
    use crate::changes::entries::column_test::FieldValue;
    use crate::changes::entries::entry::{ChangeAction, PreparedEntries};
    use crate::changes::entries::validate::ValidEntry;
    use crate::changes::system_message::SUBSCRIBED;
    use crate::fixture::{TestChannel, json_of, room};
    use crate::socket::DeferredWakes;
    use crate::socket::frame::{Frame, Version};

    fn reader(claims: &str) -> Arc<ChangeReader> {
        Arc::new(ChangeReader::new("authenticated".into(), claims.into(), None))
    }

    /// Subscribes a channel to all changes of a table.
    fn subscribe(registry: &Registry, channel: &TestChannel, claims: &str) -> SubscriptionRegistration {
        let prepared = PreparedEntries::of_entries(&[json!({ "event": "*", "schema": "public", "table": "items" })]);
        let entries = Arc::clone(prepared.entries().unwrap());
        let valid: Vec<_> =
            entries.iter().map(|entry| ValidEntry { entry: Arc::clone(entry), filters: HashMap::new() }).collect();
        let key = GroupKey {
            reader: reader(claims),
            topic: "a".into(),
            version: Version::V2,
            form: prepared.form(),
            entries,
        };
        let registration = registry.insert(key, &valid, Arc::clone(&channel.subscriber));
        assert_eq!(received(channel), (0, 1));
        registration
    }

    /// Sends a frame to the groups that a change of the table matches. Returns their claims.
    fn deliver(registry: &Registry, frame: &Frame) -> Vec<Box<str>> {
        deliver_until(registry, registry.last_number(), frame)
    }

    fn deliver_until(registry: &Registry, last: u64, frame: &Frame) -> Vec<Box<str>> {
        let targets = registry.matching(("public", "items"), ChangeAction::Insert, |_| FieldValue::Absent);
        targets
            .iter()
            .filter(|target| target.group.send(std::slice::from_ref(frame), last, &mut DeferredWakes::default()) > 0)
            .map(|target| target.group.key.reader.claims.clone())
            .collect()
    }

    fn frame() -> Frame {
        Frame::Binary(bytes::Bytes::from_static(b"a change"))
    }

    /// Returns the number of changes and of `Subscribed to PostgreSQL` that have arrived.
    fn received(channel: &TestChannel) -> (usize, usize) {
        let received = channel.received();
        let changes = received.iter().filter(|received| **received == frame()).count();
        let system = received.iter().filter(|received| matches!(received, Frame::Text(_)));
        (changes, system.filter(|message| json_of(message)[4]["message"] == SUBSCRIBED).count())
    }

    #[test]
    fn a_delivery_in_progress_keeps_the_reader_it_decided_for() {
        let (registry, channel) = (Registry::default(), TestChannel::new(&room(false, "a"), Version::V2));
        let registration = subscribe(&registry, &channel, "before");
        let delivery = registry.begin_delivery();
        registry.renew(&registration, reader("between"), true);
        registry.renew(&registration, reader("after"), true);
        assert_eq!(deliver(&registry, &frame()), ["before".into()]);
        assert_eq!(received(&channel), (1, 0));
        drop(delivery);
        assert_eq!(received(&channel), (0, 1));
        assert_eq!(deliver(&registry, &frame()), ["after".into()]);
        assert_eq!(received(&channel), (1, 0), "once");
        registry.renew(&registration, reader("later"), true);
        assert_eq!(deliver(&registry, &frame()), ["later".into()]);
        registry.remove(&registration);
        assert_eq!(registry.matching(("public", "items"), ChangeAction::Insert, |_| FieldValue::Absent).len(), 0);
    }

    #[test]
    fn another_subject_receives_nothing_that_was_decided_for_the_one_before() {
        let (registry, channel) = (Registry::default(), TestChannel::new(&room(false, "a"), Version::V2));
        let registration = subscribe(&registry, &channel, "ann");
        let delivery = registry.begin_delivery();
        registry.renew(&registration, reader("bob"), false);
        assert_eq!(deliver(&registry, &frame()), [] as [Box<str>; 0]);
        // A refreshed token of the new subject
        registry.renew(&registration, reader("bob again"), true);
        assert_eq!(deliver(&registry, &frame()), [] as [Box<str>; 0]);
        drop(delivery);
        assert_eq!(deliver(&registry, &frame()), ["bob again".into()]);
        assert_eq!(received(&channel), (1, 1));
    }

    #[test]
    fn a_subscription_that_ends_during_a_delivery_is_not_renewed_after_it() {
        let (registry, channel) = (Registry::default(), TestChannel::new(&room(false, "a"), Version::V2));
        for is_same_subject in [true, false] {
            let registration = subscribe(&registry, &channel, "before");
            let delivery = registry.begin_delivery();
            registry.renew(&registration, reader("after"), is_same_subject);
            registry.remove(&registration);
            drop(delivery);
            assert_eq!(deliver(&registry, &frame()), [] as [Box<str>; 0]);
            assert_eq!(received(&channel), (0, 0));
            assert!(registry.state().groups.is_empty() && registry.state().subscriptions.is_empty());
        }
    }

    #[test]
    fn a_channel_that_subscribes_again_during_a_delivery_does_not_receive_it_twice() {
        let (registry, channel) = (Registry::default(), TestChannel::new(&room(false, "a"), Version::V2));
        let registration = subscribe(&registry, &channel, "before");
        let other = TestChannel::new(&room(false, "b"), Version::V2);
        subscribe(&registry, &other, "after");
        let delivery = registry.begin_delivery();
        assert_eq!(deliver_until(&registry, delivery.last, &frame()).len(), 2);
        assert_eq!((received(&channel), received(&other)), ((1, 0), (1, 0)));
        registry.remove(&registration);
        subscribe(&registry, &channel, "after");
        // The cohort of the other reader
        deliver_until(&registry, delivery.last, &frame());
        assert_eq!((received(&channel), received(&other)), ((0, 0), (1, 0)));
        drop(delivery);
        deliver(&registry, &frame());
        assert_eq!((received(&channel), received(&other)), ((1, 0), (1, 0)));
    }
}
