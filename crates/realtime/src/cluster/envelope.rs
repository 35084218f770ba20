//! The form in which messages travel: in fragments, as large as the way allows, each encrypted with
//! a key that only the servers of the project have.
//!
//! Others may use the same NATS server, and every login of the database may listen to its
//! notifications and send some. They can neither read messages nor make some. A message that is
//! sent again is dropped, because the numbers of a server's messages increase. A server that has
//! started since does not know these numbers: it drops what is older than [`MAX_AGE`], and accepts
//! the recorded messages of that time once, also those of a server that has stopped.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use portico_base::{Clock, Secret, hash, random};

use crate::ids::NodeId;

/// The largest message.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// The age beyond which a message is dropped, and by how much it may be ahead of the clock here:
/// the clocks of servers differ, and messages may wait on their way.
pub(super) const MAX_AGE: Duration = Duration::from_secs(60);
/// The node, the number of the message, its time, the index of the fragment, and the number of
/// fragments.
const HEAD: usize = 6 + 8 + 8 + 4 + 4;
/// The bytes by which a fragment is longer than its content.
pub(super) const OVERHEAD: usize = HEAD + NONCE_LEN + 16;

/// The key of the servers of one project.
pub(super) struct ClusterKey(LessSafeKey);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl ClusterKey {
    /// Derives the key from a secret that all servers of the project share.
    pub fn derive(secret: &Secret) -> Self {
        let key = hash::sha256(format!("portico realtime cluster\0{}", secret.expose()).as_bytes());
        Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("the key has 32 bytes")))
    }

    fn seal(&self, mut fragment: Vec<u8>) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = random::bytes();
        let sealed = self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut fragment);
        sealed.ok()?;
        fragment.extend(nonce);
        Some(fragment)
    }

    fn open(&self, sealed: &[u8]) -> Option<Bytes> {
        let (sealed, nonce) = sealed.split_last_chunk::<NONCE_LEN>()?;
        let mut fragment = BytesMut::from(sealed);
        let length =
            self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut fragment).ok()?.len();
        fragment.truncate(length);
        Some(fragment.freeze())
    }
}

/// Makes the fragments of this server's messages.
#[derive(Debug)]
pub(super) struct Wrapper {
    node: NodeId,
    clock: Clock,
    last_number: u64,
}

impl Wrapper {
    pub fn new(node: NodeId, clock: Clock) -> Self {
        Self { node, clock, last_number: 0 }
    }

    /// Returns the fragments of a message, each of `max_fragment` bytes at most. `None`: it is too
    /// large.
    pub fn wrap(&mut self, key: &ClusterKey, message: &[u8], max_fragment: usize) -> Option<Vec<Vec<u8>>> {
        let content = max_fragment.checked_sub(OVERHEAD).filter(|content| *content > 0)?;
        if message.len() > MAX_MESSAGE {
            return None;
        }
        self.last_number += 1;
        let time = milliseconds(&self.clock);
        let count = u32::try_from(message.len().div_ceil(content).max(1)).ok()?;
        let mut contents = message.chunks(content);
        let fragments = (0..count).map(|index| {
            let content = contents.next().unwrap_or_default();
            let mut fragment = Vec::with_capacity(content.len() + OVERHEAD);
            fragment.put_slice(&self.node.bytes());
            fragment.put_u64(self.last_number);
            fragment.put_i64(time);
            fragment.put_u32(index);
            fragment.put_u32(count);
            fragment.put_slice(content);
            key.seal(fragment)
        });
        fragments.collect()
    }
}

/// Returns the time now in milliseconds since 1970.
fn milliseconds(clock: &Clock) -> i64 {
    let now = clock.now();
    now.unix_timestamp() * 1_000 + i64::from(now.millisecond())
}

/// Puts the fragments of other servers together.
#[derive(Debug)]
pub(super) struct Unwrapper {
    clock: Clock,
    servers: HashMap<NodeId, UnfinishedMessage>,
    /// Messages were dropped because of their time.
    has_dropped: bool,
}

#[derive(Debug, Default)]
struct UnfinishedMessage {
    /// The last message that was complete, and the latest time of any message.
    last_number: u64,
    last_time: i64,
    /// The message whose fragments arrive.
    number: u64,
    received: u32,
    content: BytesMut,
}

impl UnfinishedMessage {
    /// Drops the fragments that have arrived.
    fn restart(&mut self) {
        (self.number, self.received, self.content) = (0, 0, BytesMut::new());
    }
}

impl Unwrapper {
    pub fn new(clock: Clock) -> Self {
        Self { clock, servers: HashMap::new(), has_dropped: false }
    }

    /// Adds a fragment. Returns the message that it completes, and the server that it comes from.
    /// Fragments of one server arrive in order; a message whose fragment is missing is dropped.
    pub fn unwrap(&mut self, key: &ClusterKey, own: NodeId, fragment: &[u8]) -> Option<(NodeId, Bytes)> {
        let mut fragment = key.open(fragment)?;
        if fragment.len() < HEAD {
            return None;
        }
        let mut node = [0; 6];
        fragment.copy_to_slice(&mut node);
        let node = NodeId::from(node);
        let (number, time, index, count) =
            (fragment.get_u64(), fragment.get_i64(), fragment.get_u32(), fragment.get_u32());
        if node == own {
            return None;
        }
        let now = milliseconds(&self.clock);
        if is_old(time, now) {
            self.has_dropped = true;
            return None;
        }
        if !self.servers.contains_key(&node) {
            // Old messages of these servers are dropped because of their time
            self.servers.retain(|_, server| !is_old(server.last_time, now));
        }
        let server = self.servers.entry(node).or_default();
        if number <= server.last_number {
            return None;
        }
        server.last_time = server.last_time.max(time);
        if index == 0 {
            server.restart();
            server.number = number;
        }
        if number != server.number || index != server.received || server.content.len() + fragment.len() > MAX_MESSAGE {
            return None;
        }
        server.received += 1;
        let content = if count == 1 {
            fragment
        } else {
            server.content.put(fragment);
            if server.received < count {
                return None;
            }
            std::mem::take(&mut server.content).freeze()
        };
        server.restart();
        server.last_number = number;
        Some((node, content))
    }

    /// Removes the unfinished message of a server that has gone. The number stays, so that its
    /// messages cannot be sent again.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(server) = self.servers.get_mut(&node) {
            server.restart();
        }
    }

    /// Returns true if messages were dropped because of their time since the last call.
    pub fn take_dropped(&mut self) -> bool {
        std::mem::take(&mut self.has_dropped)
    }
}

fn is_old(time: i64, now: i64) -> bool {
    u128::from(time.abs_diff(now)) > MAX_AGE.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &str) -> ClusterKey {
        ClusterKey::derive(&Secret::new(secret))
    }

    #[test]
    fn messages_of_every_size_arrive_once() {
        let (key, node, own) = (key("a"), NodeId::random(), NodeId::random());
        let (mut wrapper, mut unwrapper) = (Wrapper::new(node, Clock::system()), Unwrapper::new(Clock::system()));
        for size in [0, 1, 49, 50, 51, 100, 1_000] {
            let message = vec![7; size];
            let fragments = wrapper.wrap(&key, &message, OVERHEAD + 50).unwrap();
            assert_eq!(fragments.len(), size.div_ceil(50).max(1));
            assert!(fragments.iter().all(|fragment| fragment.len() <= OVERHEAD + 50));
            let arrived: Vec<_> =
                fragments.iter().filter_map(|fragment| unwrapper.unwrap(&key, own, fragment)).collect();
            assert_eq!(arrived, [(node, Bytes::from(message))]);
            assert!(fragments.iter().all(|fragment| unwrapper.unwrap(&key, own, fragment).is_none()), "sent again");
        }
        assert!(wrapper.wrap(&key, &vec![0; MAX_MESSAGE + 1], 1_000).is_none());
    }

    #[test]
    fn an_incomplete_message_is_dropped_and_the_next_one_is_not() {
        let (key, node, own) = (key("a"), NodeId::random(), NodeId::random());
        let (mut wrapper, mut unwrapper) = (Wrapper::new(node, Clock::system()), Unwrapper::new(Clock::system()));
        let mut wrap = || wrapper.wrap(&key, &[1; 100], OVERHEAD + 40).unwrap();
        for missing in 0..3 {
            let mut fragments = wrap();
            fragments.remove(missing);
            assert!(fragments.iter().all(|fragment| unwrapper.unwrap(&key, own, fragment).is_none()), "{missing}");
        }
        let arrived = wrap().iter().filter_map(|fragment| unwrapper.unwrap(&key, own, fragment)).count();
        assert_eq!(arrived, 1);
    }

    #[test]
    fn fragments_of_others_are_dropped() {
        let (own, node) = (NodeId::random(), NodeId::random());
        let fragment = Wrapper::new(node, Clock::system()).wrap(&key("a"), b"x", 200).unwrap().remove(0);
        let mut unwrapper = Unwrapper::new(Clock::system());
        assert_eq!(unwrapper.unwrap(&key("b"), own, &fragment), None, "another project");
        for index in 0..fragment.len() {
            let mut changed = fragment.clone();
            changed[index] ^= 1;
            assert_eq!(unwrapper.unwrap(&key("a"), own, &changed), None);
            assert_eq!(unwrapper.unwrap(&key("a"), own, &fragment[..index]), None);
        }
        assert_eq!(unwrapper.unwrap(&key("a"), node, &fragment), None, "its own");
        assert!(unwrapper.unwrap(&key("a"), own, &fragment).is_some());
    }

    #[test]
    fn recorded_messages_are_dropped_by_a_server_that_starts_later() {
        let (key, node, own) = (key("a"), NodeId::random(), NodeId::random());
        let clock = Clock::movable(time::OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let fragment = Wrapper::new(node, clock.clone()).wrap(&key, b"x", 200).unwrap().remove(0);
        let arrives = |clock: &Clock| Unwrapper::new(clock.clone()).unwrap(&key, own, &fragment).is_some();
        assert!(arrives(&clock));
        clock.advance(time::Duration::try_from(MAX_AGE).unwrap());
        assert!(arrives(&clock));
        clock.advance(time::Duration::milliseconds(1));
        assert!(!arrives(&clock));
        clock.advance(-2 * time::Duration::try_from(MAX_AGE).unwrap() - time::Duration::milliseconds(2));
        assert!(!arrives(&clock), "from the future");
    }

    #[test]
    fn servers_that_have_gone_are_forgotten_when_their_messages_are_old() {
        let (key, own) = (key("a"), NodeId::random());
        let clock = Clock::movable(time::OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let mut unwrapper = Unwrapper::new(clock.clone());
        for _ in 0..10 {
            let fragment = Wrapper::new(NodeId::random(), clock.clone()).wrap(&key, b"x", 200).unwrap().remove(0);
            assert!(unwrapper.unwrap(&key, own, &fragment).is_some());
            assert!(unwrapper.unwrap(&key, own, &fragment).is_none(), "sent again");
            clock.advance(time::Duration::seconds(61));
            assert!(unwrapper.unwrap(&key, own, &fragment).is_none(), "sent again");
            assert!(unwrapper.take_dropped() && !unwrapper.take_dropped());
        }
        assert_eq!(unwrapper.servers.len(), 1);
    }
}
