//! Presence: which keys are in a room, each with what its channels track about themselves.
//!
//! Each change of a room becomes a `presence_diff`. A room is changed, and its diff put into the
//! queues of all threads, under one lock, so every receiver gets the diffs of a room in the order
//! of the changes. Rooms are distributed over many locks. With several servers, each has the whole
//! presence, and makes the diffs for its own channels.

mod call_limit;
mod diff;
mod remote;
mod room;

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Map, Value};

pub(crate) use call_limit::CallLimit;
pub(crate) use diff::PresenceMeta;
pub(crate) use remote::RemotePresence;

use crate::ids::{ChannelId, NodeId};
use crate::rooms::{Publication, RoomKey, RoomMessage, RoomMessageBody, Rooms, Subscriber, UnfinishedPublication};
use crate::settings::RealtimeLimits;
use room::{PresenceChange, PresenceHolder, RoomPresence};

/// The number of locks.
const SHARDS: usize = 64;

/// The outcome of a `track`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrackOutcome {
    /// The channel is present now.
    Joined,
    /// The channel was present with another payload.
    Updated,
    /// The channel was present with this payload. Nothing was sent.
    Unchanged,
    /// The socket, the room or the server has no space for the payload. Nothing has changed.
    TooLarge,
}

/// The presence of all rooms. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Presence(Arc<PresenceState>);

#[derive(Debug)]
struct PresenceState {
    rooms: Rooms,
    node: NodeId,
    last_reference: AtomicU64,
    hasher: RandomState,
    shards: [Mutex<PresenceShard>; SHARDS],
    /// The size of all entries.
    bytes: AtomicUsize,
    max_room_bytes: usize,
    max_socket_bytes: usize,
    max_bytes: usize,
    /// That of the other servers, if there are any.
    remote: OnceLock<Arc<dyn RemotePresence>>,
}

type PresenceShard = HashMap<RoomKey, RoomPresence>;

impl Presence {
    /// Returns empty rooms, whose diffs go to `rooms`.
    pub fn new(rooms: Rooms, limits: &RealtimeLimits) -> Self {
        Self(Arc::new(PresenceState {
            rooms,
            node: NodeId::random(),
            last_reference: AtomicU64::new(0),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            bytes: AtomicUsize::new(0),
            max_room_bytes: limits.max_room_presence_bytes,
            max_socket_bytes: limits.max_socket_presence_bytes,
            max_bytes: limits.max_presence_bytes,
            remote: OnceLock::new(),
        }))
    }

    /// Sets what a channel tracks under its key, and sends the diff to its room. The caller has
    /// checked the size of the payload.
    pub fn track(&self, channel: &Arc<Subscriber>, key: &str, payload: Map<String, Value>) -> TrackOutcome {
        let holder = self.holder(channel);
        let mut tracked = TrackOutcome::Unchanged;
        self.change(channel.room(), |room| {
            let previous = room.get(holder);
            if previous.is_some_and(|meta| meta.has_payload(&payload)) {
                return PresenceChange::default();
            }
            let is_present = previous.is_some();
            let previous = previous.map(|meta| Arc::clone(&meta.reference));
            let meta = PresenceMeta::new(self.next_reference(), previous.as_deref(), payload);
            let (before, after) = (room.size(), room.size_with(holder, key, &meta));
            let of_socket = (channel.tracked_bytes().load(Ordering::Relaxed) + after).saturating_sub(before);
            if (after > before && of_socket > self.0.max_socket_bytes) || !self.has_room_for(room, after) {
                tracked = TrackOutcome::TooLarge;
                return PresenceChange::default();
            }
            tracked = if is_present { TrackOutcome::Updated } else { TrackOutcome::Joined };
            if let Some(remote) = self.0.remote.get() {
                remote.tracked(channel.room(), holder.channel, &key.into(), &meta);
            }
            adjust(channel.tracked_bytes(), before, after);
            room.set(holder, key, meta)
        });
        tracked
    }

    /// Removes what a channel tracks under its key, and sends the diff to its room. Does nothing if
    /// it tracks nothing. To be called at the end of every channel too, whatever ends it.
    pub fn untrack(&self, channel: &Arc<Subscriber>, key: &str) {
        let holder = self.holder(channel);
        self.change(channel.room(), |room| match room.key(holder) == Some(key) {
            true => {
                if let Some(remote) = self.0.remote.get() {
                    remote.untracked(channel.room(), holder.channel);
                }
                let before = room.size();
                let change = room.remove(holder);
                adjust(channel.tracked_bytes(), before, room.size());
                change
            }
            false => PresenceChange::default(),
        });
    }

    /// Returns true if a channel tracks something.
    pub fn is_tracking(&self, channel: &Subscriber) -> bool {
        let shard = self.shard(channel.room());
        shard.get(channel.room()).is_some_and(|room| room.get(self.holder(channel)).is_some())
    }

    /// Returns the payload of `presence_state`. Channels that receive the diffs of the room before
    /// this is called miss nothing.
    pub fn state(&self, room: &RoomKey) -> Bytes {
        match self.shard(room).get_mut(room) {
            Some(room) => room.state(),
            None => Bytes::from_static(b"{}"),
        }
    }

    /// Returns the id of this server.
    pub fn node(&self) -> NodeId {
        self.0.node
    }

    /// Shares the changes of this server's channels with other servers from now on.
    pub fn share(&self, remote: Arc<dyn RemotePresence>) {
        // There is one cluster in the life of a server
        let _ = self.0.remote.set(remote);
    }

    /// Returns what the channels of this server track.
    pub fn local_entries(&self) -> Vec<(RoomKey, ChannelId, Arc<str>, PresenceMeta)> {
        let mut local = Vec::new();
        for shard in &self.0.shards {
            for (key, room) in &*lock(shard) {
                let own = room.entries().filter(|(_, holder, _)| holder.node == self.0.node);
                local.extend(
                    own.map(|(name, holder, meta)| (key.clone(), holder.channel, Arc::clone(name), meta.clone())),
                );
            }
        }
        local
    }

    /// Sets what a channel of another server tracks, as JSON, and sends the diff to the room here.
    pub fn track_remote(&self, room: &RoomKey, (node, channel): (NodeId, ChannelId), key: &str, meta: Bytes) {
        let holder = PresenceHolder { node, channel };
        let Some(meta) = PresenceMeta::of_json(meta).filter(|_| node != self.0.node) else { return };
        self.change(room, |room| match room.get(holder) {
            // The state of its server repeats it
            Some(known) if known.reference == meta.reference => PresenceChange::default(),
            _ => room.set(holder, key, meta),
        });
    }

    /// Removes what a channel of another server tracks, and sends the diff to the room here.
    pub fn untrack_remote(&self, room: &RoomKey, (node, channel): (NodeId, ChannelId)) {
        self.change(room, |room| room.remove(PresenceHolder { node, channel }));
    }

    /// Removes what the channels of another server track, except for those that `keeps` returns
    /// true for. Each room gets one diff.
    pub fn retain_remote(&self, node: NodeId, keeps: impl Fn(ChannelId) -> bool) {
        let is_gone = |holder: PresenceHolder| holder.node == node && !keeps(holder.channel);
        for shard in &self.0.shards {
            let mut shard = lock(shard);
            let has_gone = |room: &RoomPresence| room.entries().any(|(_, holder, _)| is_gone(holder));
            let rooms: Vec<RoomKey> =
                shard.iter().filter(|(_, room)| has_gone(room)).map(|(key, _)| key.clone()).collect();
            for key in rooms {
                self.change_in(&mut shard, &key, |room| room.remove_all(is_gone));
            }
        }
    }

    /// Returns true if a room may grow to this size. What other servers track counts, and is always
    /// accepted: they have checked it.
    fn has_room_for(&self, room: &RoomPresence, size: usize) -> bool {
        let others = self.0.bytes.load(Ordering::Relaxed).saturating_sub(room.size());
        size <= room.size() || (size <= self.0.max_room_bytes && others.saturating_add(size) <= self.0.max_bytes)
    }

    fn holder(&self, channel: &Subscriber) -> PresenceHolder {
        PresenceHolder { node: self.0.node, channel: channel.id() }
    }

    /// Returns a new `phx_ref` of 16 characters, which no other server returns either.
    fn next_reference(&self) -> String {
        let number = self.0.last_reference.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&self.0.node.bytes());
        bytes[6..].copy_from_slice(&number[2..]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn shard(&self, room: &RoomKey) -> MutexGuard<'_, PresenceShard> {
        let index = self.0.hasher.hash_one(room) as usize % SHARDS;
        lock(&self.0.shards[index])
    }

    /// Changes a room and sends the diff.
    fn change(&self, key: &RoomKey, change: impl FnOnce(&mut RoomPresence) -> PresenceChange) {
        self.change_in(&mut self.shard(key), key, change);
    }

    fn change_in(
        &self,
        shard: &mut PresenceShard,
        key: &RoomKey,
        change: impl FnOnce(&mut RoomPresence) -> PresenceChange,
    ) {
        let room = shard.entry(key.clone()).or_default();
        let before = room.size();
        let change = change(room);
        adjust(&self.0.bytes, before, room.size());
        if !change.is_empty() {
            let message = RoomMessage::new(&key.topic, RoomMessageBody::PresenceDiff(change.json()));
            self.publish(room, Publication { room: key.clone(), message, except: None });
        }
        if room.is_unused() {
            shard.remove(key);
        }
    }

    /// Sends a diff, behind those before it. It takes the queue of every thread: the thread of a
    /// sender would otherwise overtake the diffs of others.
    fn publish(&self, room: &mut RoomPresence, publication: Publication) {
        if let Some(backlog) = &mut room.backlog {
            backlog.push_back(publication);
            return;
        }
        let key = publication.room.clone();
        if let Some(unfinished) = self.0.rooms.try_publish(None, publication) {
            // A runtime that has ended has no receivers either
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                room.backlog = Some(VecDeque::new());
                runtime.spawn(self.clone().finish(key, unfinished));
            }
        }
    }

    /// Finishes a diff, and sends those that have come meanwhile.
    async fn finish(self, key: RoomKey, mut unfinished: UnfinishedPublication) {
        loop {
            unfinished.finish().await;
            match self.send_backlog(&key) {
                Some(next) => unfinished = next,
                None => return,
            }
        }
    }

    /// Sends the diffs that wait, up to the first one that cannot be finished at once.
    fn send_backlog(&self, key: &RoomKey) -> Option<UnfinishedPublication> {
        let mut shard = self.shard(key);
        let room = shard.get_mut(key)?;
        while let Some(next) = room.backlog.as_mut().and_then(VecDeque::pop_front) {
            let unfinished = self.0.rooms.try_publish(None, next);
            if unfinished.is_some() {
                return unfinished;
            }
        }
        room.backlog = None;
        if room.is_unused() {
            shard.remove(key);
        }
        None
    }
}

/// Adds what a size has grown by, or subtracts what it has shrunk by: at no moment is more counted
/// than there is.
fn adjust(bytes: &AtomicUsize, before: usize, after: usize) {
    match after.checked_sub(before) {
        Some(more) => bytes.fetch_add(more, Ordering::Relaxed),
        None => bytes.fetch_sub(before - after, Ordering::Relaxed),
    };
}

fn lock(shard: &Mutex<PresenceShard>) -> MutexGuard<'_, PresenceShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
