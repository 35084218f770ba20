//! The rooms of one thread.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;
use tokio::sync::mpsc;

use super::publication::{Publication, RoomKey};
use super::subscriber::Subscriber;
use crate::error::Shutdown;
use crate::ids::ChannelId;
use crate::meter::Meter;

/// The messages of other threads that may wait; their senders wait when there are more.
const QUEUE: usize = 1024;
/// The messages that are taken from the queue at once. One at a time, a thread with many sockets
/// would deliver fewer in its turn than arrive meanwhile, and each socket would write them one by
/// one.
const BATCH: usize = 256;
/// The deliveries after which the other tasks of the thread have their turn: a few milliseconds.
/// With fewer, the sockets of a large room would write its messages one by one.
pub(super) const DELIVERIES_PER_TURN: usize = 16 * 1024;
/// The number of counters by which other threads see that a shard has no such room.
const BUCKETS: usize = 4096;

/// The channels of a room.
type Room = IndexMap<ChannelId, Arc<Subscriber>>;

/// The channels of the sockets of one thread, by room.
#[derive(Debug)]
pub(crate) struct Shard {
    number: usize,
    rooms: Mutex<HashMap<RoomKey, Room>>,
    /// The number of rooms by the last bits of their hash.
    counts: Box<[AtomicU32]>,
    hasher: RandomState,
    queue: mpsc::Sender<Publication>,
    limit: DeliveryLimit,
}

/// The limit of deliveries per second.
#[derive(Debug)]
pub(super) struct DeliveryLimit {
    pub meter: Arc<Meter>,
    pub max: Option<u32>,
}

impl Shard {
    /// Starts a shard on the current thread's runtime. It ends when nothing refers to it.
    pub(super) fn start(number: usize, hasher: RandomState, limit: DeliveryLimit) -> Arc<Self> {
        let (queue, mut waiting) = mpsc::channel::<Publication>(QUEUE);
        let counts = std::iter::repeat_with(AtomicU32::default).take(BUCKETS).collect();
        let shard = Arc::new(Self { number, rooms: Mutex::default(), counts, hasher, queue, limit });
        let weak = Arc::downgrade(&shard);
        tokio::spawn(async move {
            let (mut batch, mut work) = (Vec::with_capacity(BATCH), 0);
            while waiting.recv_many(&mut batch, BATCH).await > 0 {
                for publication in batch.drain(..) {
                    let Some(shard) = weak.upgrade() else { return };
                    // One without receivers is work, too
                    work += 1 + shard.deliver(&publication);
                    if work >= DELIVERIES_PER_TURN {
                        work = 0;
                        tokio::task::yield_now().await;
                    }
                }
            }
        });
        shard
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Adds a channel to its room.
    pub fn subscribe(&self, subscriber: Arc<Subscriber>) {
        let key = subscriber.room().clone();
        let bucket = self.bucket(self.hasher.hash_one(&key));
        match self.rooms().entry(key) {
            Entry::Occupied(mut room) => {
                room.get_mut().insert(subscriber.id(), subscriber);
            }
            Entry::Vacant(room) => {
                // Before the room exists, so that no sender misses it
                bucket.fetch_add(1, Ordering::SeqCst);
                room.insert(Room::from([(subscriber.id(), subscriber)]));
            }
        }
    }

    /// Removes a channel from its room.
    pub fn unsubscribe(&self, key: &RoomKey, channel: ChannelId) {
        let mut rooms = self.rooms();
        let Some(room) = rooms.get_mut(key) else { return };
        room.swap_remove(&channel);
        if room.is_empty() {
            rooms.remove(key);
            self.bucket(self.hasher.hash_one(key)).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns false if the shard has no room with this hash.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.bucket(hash).load(Ordering::SeqCst) > 0
    }

    /// Delivers a message to the channels of its room on this thread. Returns their number.
    pub(super) fn deliver(&self, publication: &Publication) -> usize {
        let rooms = self.rooms();
        let Some(room) = rooms.get(&publication.room) else { return 0 };
        let receivers = room.values().filter(|subscriber| Some(subscriber.id()) != publication.except);
        if self.limit.meter.exceeds(self.limit.max) {
            receivers.for_each(|subscriber| subscriber.shut_down(Shutdown::TooManyMessages));
            return room.len();
        }
        let sent = receivers.filter(|subscriber| subscriber.deliver(&publication.message)).count();
        self.limit.meter.add(sent as u64);
        sent
    }

    /// Adds a message of another thread to the queue; false if it is full. A shard whose thread has
    /// ended takes nothing, and needs nothing.
    pub(super) fn try_enqueue(&self, publication: Publication) -> bool {
        !matches!(self.queue.try_send(publication), Err(mpsc::error::TrySendError::Full(_)))
    }

    /// Adds a message to the queue when there is room.
    pub(super) async fn enqueue(&self, publication: Publication) {
        let _ = self.queue.send(publication).await;
    }

    pub(super) fn for_each(&self, each: &mut impl FnMut(&Arc<Subscriber>)) {
        for room in self.rooms().values() {
            room.values().for_each(&mut *each);
        }
    }

    fn bucket(&self, hash: u64) -> &AtomicU32 {
        &self.counts[hash as usize % BUCKETS]
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<RoomKey, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
