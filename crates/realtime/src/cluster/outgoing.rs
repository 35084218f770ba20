//! The queue of messages to the other servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::message::ClusterMessage;
use crate::ids::ChannelId;
use crate::presence::{PresenceMeta, RemotePresence};
use crate::rooms::{Publication, RemoteRooms, RoomKey};

/// The messages that may wait.
const MAX_MESSAGES: usize = 16 * 1024;
/// The bytes of all messages that may wait.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Sends to the other servers. Nothing waits for them: what has no room is dropped. Broadcasts are
/// lost then; for the presence the others notice it, and ask for the whole state.
#[derive(Debug, Clone)]
pub(super) struct ClusterSender(Arc<OutgoingQueue>);

#[derive(Debug)]
struct OutgoingQueue {
    queue: mpsc::Sender<(ClusterMessage, usize)>,
    bytes: AtomicUsize,
    lost_changes: AtomicU64,
}

/// The other end of a [`ClusterSender`].
#[derive(Debug)]
pub(super) struct ClusterQueue {
    queue: mpsc::Receiver<(ClusterMessage, usize)>,
    sender: ClusterSender,
}

impl ClusterSender {
    /// Returns both ends of a queue.
    pub(super) fn new() -> (Self, ClusterQueue) {
        let (sender, queue) = mpsc::channel(MAX_MESSAGES);
        let outgoing = OutgoingQueue { queue: sender, bytes: AtomicUsize::new(0), lost_changes: AtomicU64::new(0) };
        let sender = Self(Arc::new(outgoing));
        (sender.clone(), ClusterQueue { queue, sender })
    }

    fn send_change(&self, message: ClusterMessage, size: usize) {
        if !self.send(message, size) {
            self.0.lost_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn send(&self, message: ClusterMessage, size: usize) -> bool {
        let waiting = self.0.bytes.fetch_add(size, Ordering::Relaxed);
        let is_sent = waiting + size <= MAX_BYTES && self.0.queue.try_send((message, size)).is_ok();
        if !is_sent {
            self.0.bytes.fetch_sub(size, Ordering::Relaxed);
        }
        is_sent
    }
}

impl RemoteRooms for ClusterSender {
    /// Sends a message of a client. Messages of the database's own log are left out, because every
    /// server reads it, and so are changes of the presence.
    fn publish(&self, publication: &Publication) {
        let message = &publication.message;
        if message.is_presence() || message.id().is_some() {
            return;
        }
        let body = message.body().clone();
        let message = ClusterMessage::Broadcast { room: publication.room.clone(), body };
        if !self.send(message, publication.message.payload_len()) {
            tracing::warn!("a broadcast is not sent to the other servers: too many wait");
        }
    }
}

impl RemotePresence for ClusterSender {
    fn tracked(&self, room: &RoomKey, channel: ChannelId, key: &Arc<str>, meta: &PresenceMeta) {
        let (room, key, meta) = (room.clone(), Arc::clone(key), meta.json().clone());
        let size = meta.len();
        self.send_change(ClusterMessage::Tracked { number: 0, room, channel, key, meta }, size);
    }

    fn untracked(&self, room: &RoomKey, channel: ChannelId) {
        self.send_change(ClusterMessage::Untracked { number: 0, room: room.clone(), channel }, 0);
    }
}

impl ClusterQueue {
    /// Waits for the next message.
    pub async fn next(&mut self) -> Option<ClusterMessage> {
        let (message, size) = self.queue.recv().await?;
        self.sender.0.bytes.fetch_sub(size, Ordering::Relaxed);
        Some(message)
    }

    /// Drops the messages that wait. Their changes of the presence count as lost.
    pub fn drop_waiting(&mut self) {
        while let Ok((message, size)) = self.queue.try_recv() {
            self.sender.0.bytes.fetch_sub(size, Ordering::Relaxed);
            if !matches!(message, ClusterMessage::Broadcast { .. }) {
                self.sender.0.lost_changes.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of changes of the presence that were dropped since the last call.
    pub fn take_lost_changes(&self) -> u64 {
        self.sender.0.lost_changes.swap(0, Ordering::Relaxed)
    }
}
