//! Rooms: which channels receive a message, and the way of a message to all of them.
//!
//! A room is a topic, public or private: the two are different rooms. Each worker thread has a
//! shard with the channels of its own sockets. A message is delivered to the sender's shard at
//! once, and to the others through their queues, so no lock is shared by the threads on its way,
//! and only the thread of a socket wakes that socket. A message is encoded once for each version of
//! the protocol; all receivers share the bytes.

mod message;
mod publication;
mod shard;
mod subscriber;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

pub(crate) use message::{RoomMessage, RoomMessageBody};
pub(crate) use publication::{Publication, RemoteRooms, RoomKey};
pub(crate) use shard::Shard;
pub(crate) use subscriber::{Subscriber, SubscriberHead};

use crate::meter::Meter;
use shard::DeliveryLimit;

/// The number of shards at most. Threads beyond it share them.
const MAX_SHARDS: usize = 64;

/// The rooms of this server. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Rooms(Arc<RoomsState>);

#[derive(Debug)]
struct RoomsState {
    shards: [OnceLock<Arc<Shard>>; MAX_SHARDS],
    /// The shards in use are the first ones.
    count: AtomicUsize,
    threads: Mutex<HashMap<ThreadId, usize>>,
    hasher: RandomState,
    /// Those of the other servers, if there are any.
    remote: OnceLock<Arc<dyn RemoteRooms>>,
    /// Counts deliveries.
    deliveries: Arc<Meter>,
    /// Deliveries per second, from which on the receiving channels are ended.
    max_deliveries: Option<u32>,
}

impl Rooms {
    /// Returns no rooms. Deliveries are counted by `deliveries`; while there are more than
    /// `max_deliveries` per second, a message ends the channels that would receive it.
    pub fn new(deliveries: Arc<Meter>, max_deliveries: Option<u32>) -> Self {
        Self(Arc::new(RoomsState {
            shards: [const { OnceLock::new() }; MAX_SHARDS],
            count: AtomicUsize::new(0),
            threads: Mutex::default(),
            hasher: RandomState::new(),
            remote: OnceLock::new(),
            deliveries,
            max_deliveries,
        }))
    }

    /// Returns the shard of the current thread, and starts it if this is its first use. Needs a
    /// Tokio runtime.
    pub fn shard(&self) -> Arc<Shard> {
        let mut threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let next = threads.len();
        let number = *threads.entry(std::thread::current().id()).or_insert(next) % MAX_SHARDS;
        let shard = self.0.shards[number].get_or_init(|| {
            let limit = DeliveryLimit { meter: Arc::clone(&self.0.deliveries), max: self.0.max_deliveries };
            Shard::start(number, self.0.hasher.clone(), limit)
        });
        self.0.count.fetch_max(number + 1, Ordering::Release);
        Arc::clone(shard)
    }

    /// Delivers a message to every channel of its room. `own` is the shard of the sender, which
    /// gets it at once; the other shards get it through their queues. Waits while a queue is full.
    pub async fn publish(&self, own: Option<&Shard>, publication: Publication) {
        if let Some(waiting) = self.try_publish(own, publication) {
            waiting.finish().await;
        }
    }

    /// Like [`publish`](Self::publish), but without waiting: returns the deliveries that are left
    /// if a queue is full.
    pub fn try_publish(&self, own: Option<&Shard>, publication: Publication) -> Option<UnfinishedPublication> {
        if let Some(remote) = self.0.remote.get() {
            remote.publish(&publication);
        }
        self.try_deliver(own, publication)
    }

    /// Shares the messages of clients with other servers from now on.
    pub fn share(&self, remote: Arc<dyn RemoteRooms>) {
        // There is one cluster in the life of a server
        let _ = self.0.remote.set(remote);
    }

    /// Delivers a message of another server to the channels of this one.
    pub async fn deliver(&self, publication: Publication) {
        if let Some(waiting) = self.try_deliver(None, publication) {
            waiting.finish().await;
        }
    }

    /// Returns false if no channel of this server is in the room. True is also possible for a room
    /// without channels.
    pub fn may_have(&self, room: &RoomKey) -> bool {
        let hash = self.0.hasher.hash_one(room);
        self.shards().any(|shard| shard.may_have(hash))
    }

    fn try_deliver(&self, own: Option<&Shard>, publication: Publication) -> Option<UnfinishedPublication> {
        let hash = self.0.hasher.hash_one(&publication.room);
        let mut full = Vec::new();
        for shard in self.shards() {
            if !shard.may_have(hash) {
                continue;
            }
            if own.is_some_and(|own| own.number() == shard.number()) {
                shard.deliver(&publication);
            } else if !shard.try_enqueue(publication.clone()) {
                full.push(Arc::clone(shard));
            }
        }
        (!full.is_empty()).then_some(UnfinishedPublication { shards: full, publication })
    }

    /// Calls `each` with every channel of this server.
    pub fn for_each_subscriber(&self, mut each: impl FnMut(&Arc<Subscriber>)) {
        for shard in self.shards() {
            shard.for_each(&mut each);
        }
    }

    fn shards(&self) -> impl Iterator<Item = &Arc<Shard>> {
        let count = self.0.count.load(Ordering::Acquire);
        self.0.shards[..count].iter().filter_map(OnceLock::get)
    }
}

/// The deliveries of a message to shards whose queues are full.
#[derive(Debug)]
pub(crate) struct UnfinishedPublication {
    shards: Vec<Arc<Shard>>,
    publication: Publication,
}

impl UnfinishedPublication {
    /// Waits for room in the queues.
    pub async fn finish(self) {
        for shard in self.shards {
            shard.enqueue(self.publication.clone()).await;
        }
    }
}

#[cfg(test)]
mod tests;
