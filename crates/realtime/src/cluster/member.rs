//! The task of a member: it sends what this server has to share, and applies what others send.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portico_base::Clock;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::envelope::{ClusterKey, MAX_AGE, Unwrapper, Wrapper};
use super::link::{ClusterLink, LinkError, LinkSettings};
use super::message::{ClusterMessage, StateEntry};
use super::outgoing::ClusterQueue;
use super::times::ClusterTimes;
use crate::ids::{ChannelId, NodeId};
use crate::presence::Presence;
use crate::rooms::{Publication, RoomMessage, Rooms};

/// The number of other servers at most.
const MAX_PEERS: usize = 1_000;
/// The size from which on entries of the presence are sent in a further message.
const STATE_ENTRIES_BYTES: usize = 256 * 1024;
/// The time between two reports of messages that were dropped because of their time.
const REPORT_PERIOD: Duration = Duration::from_secs(60);

/// The state of the task.
pub(super) struct ClusterTask {
    node: NodeId,
    times: ClusterTimes,
    key: ClusterKey,
    wrapper: Wrapper,
    unwrapper: Unwrapper,
    /// The last report of messages that were dropped because of their time.
    dropped_reported_at: Option<Instant>,
    rooms: Rooms,
    presence: Presence,
    peers: HashMap<NodeId, ClusterPeer>,
    /// The number of the last change of this server's presence.
    last_change: u64,
    /// Another server asks for the whole presence.
    is_state_wanted: bool,
    sockets: Box<dyn Fn() -> u64 + Send + Sync>,
    remote_sockets: Arc<AtomicU64>,
}

/// Another server.
#[derive(Debug)]
struct ClusterPeer {
    seen_at: Instant,
    sockets: u64,
    /// The number of the change up to which its presence is complete here. `None`: it is not.
    change: Option<u64>,
    /// The entries of its state that have arrived, while it is sent.
    state: Option<HashSet<ChannelId>>,
}

impl fmt::Debug for ClusterTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTask").field("node", &self.node).field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl ClusterTask {
    /// Returns a member that knows no others.
    pub fn new(
        times: ClusterTimes,
        (key, clock): (ClusterKey, Clock),
        (rooms, presence): (Rooms, Presence),
        (sockets, remote_sockets): (Box<dyn Fn() -> u64 + Send + Sync>, Arc<AtomicU64>),
    ) -> Self {
        let node = presence.node();
        Self {
            node,
            times,
            key,
            wrapper: Wrapper::new(node, clock.clone()),
            unwrapper: Unwrapper::new(clock),
            dropped_reported_at: None,
            rooms,
            presence,
            peers: HashMap::new(),
            last_change: 0,
            is_state_wanted: false,
            sockets,
            remote_sockets,
        }
    }

    /// Runs until `leave` is cancelled. A way that is lost is opened again.
    pub async fn run(mut self, way: LinkSettings, mut queue: ClusterQueue, leave: CancellationToken) {
        let mut was_reported = false;
        loop {
            let opened = tokio::select! {
                () = leave.cancelled() => return,
                opened = way.open() => opened,
            };
            let error = match opened {
                Ok(mut link) => {
                    tracing::info!(node = %self.node, "connected to the other servers");
                    was_reported = false;
                    // Clients do not expect broadcasts of long ago; the presence is sent as a whole
                    queue.drop_waiting();
                    match self.serve(&mut link, &mut queue, &leave).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => Some(error),
            };
            if !was_reported {
                let error = error.as_ref().map(tracing::field::display);
                tracing::warn!(error, "the other servers cannot be reached");
                was_reported = true;
            }
            tokio::select! {
                () = leave.cancelled() => return,
                () = tokio::time::sleep(self.times.heartbeat) => self.remove_silent(),
            }
        }
    }

    /// Sends and receives until `leave` is cancelled, or the way is lost.
    async fn serve(
        &mut self,
        link: &mut ClusterLink,
        queue: &mut ClusterQueue,
        leave: &CancellationToken,
    ) -> Result<(), Option<LinkError>> {
        let mut heartbeats = tokio::time::interval(self.times.heartbeat);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = leave.cancelled() => {
                    let _ = self.send(link, &ClusterMessage::Goodbye).await;
                    link.flush().await;
                    return Ok(());
                }
                at = heartbeats.tick() => {
                    // While this task was busy, it has received from none of them
                    if at.elapsed() < self.times.heartbeat {
                        self.remove_silent();
                    }
                    self.report_dropped();
                    self.beat(link, queue).await?;
                }
                message = queue.next() => {
                    if let Some(message) = message {
                        let message = self.numbered(message, queue);
                        self.send(link, &message).await?;
                    }
                }
                fragment = link.next() => {
                    let fragment = fragment.ok_or(None)?;
                    if let Some((node, message)) = self.unwrapper.unwrap(&self.key, self.node, &fragment)
                        && let Some(message) = ClusterMessage::decode(message)
                    {
                        let is_new = !self.peers.contains_key(&node);
                        let answer = self.apply(node, message).await;
                        if let Some(answer) = answer {
                            self.send(link, &answer).await?;
                        }
                        // It learns at once whom it can ask
                        if is_new && self.peers.contains_key(&node) {
                            self.beat(link, queue).await?;
                        }
                    }
                }
            }
            if std::mem::take(&mut self.is_state_wanted) {
                self.send_state(link, queue).await?;
            }
        }
    }

    /// Gives a change of the presence its number. Changes that were dropped have numbers too, so
    /// that the others notice.
    fn numbered(&mut self, message: ClusterMessage, queue: &ClusterQueue) -> ClusterMessage {
        if !matches!(message, ClusterMessage::Tracked { .. } | ClusterMessage::Untracked { .. }) {
            return message;
        }
        self.last_change += 1 + queue.take_lost_changes();
        let number = self.last_change;
        match message {
            ClusterMessage::Tracked { room, channel, key, meta, .. } => {
                ClusterMessage::Tracked { number, room, channel, key, meta }
            }
            ClusterMessage::Untracked { room, channel, .. } => ClusterMessage::Untracked { number, room, channel },
            other => other,
        }
    }

    async fn send(&mut self, link: &mut ClusterLink, message: &ClusterMessage) -> Result<(), LinkError> {
        let fragments =
            message.encode().and_then(|message| self.wrapper.wrap(&self.key, &message, link.max_fragment()));
        match fragments {
            Some(fragments) => link.send(&fragments).await,
            None => {
                tracing::warn!("a message is too large for the other servers");
                Ok(())
            }
        }
    }

    async fn beat(&mut self, link: &mut ClusterLink, queue: &ClusterQueue) -> Result<(), LinkError> {
        self.last_change += queue.take_lost_changes();
        let heartbeat = ClusterMessage::Heartbeat { sockets: (self.sockets)(), presence: self.last_change };
        self.send(link, &heartbeat).await
    }

    /// Sends the whole presence of this server. Changes that wait in the queue come after it, and
    /// lead to the same state whether it contains them or not.
    async fn send_state(&mut self, link: &mut ClusterLink, queue: &ClusterQueue) -> Result<(), LinkError> {
        self.last_change += queue.take_lost_changes();
        let all = self.presence.local_entries();
        self.send(link, &ClusterMessage::StateBegin { number: self.last_change }).await?;
        let count = all.len() as u64;
        let (mut entries, mut size) = (Vec::new(), 0);
        for (room, channel, key, meta) in all {
            let entry = StateEntry { room, channel, key, meta: meta.json().clone() };
            size += entry.size();
            entries.push(entry);
            if size >= STATE_ENTRIES_BYTES {
                let entries = std::mem::take(&mut entries);
                self.send(link, &ClusterMessage::StateEntries { entries }).await?;
                size = 0;
            }
        }
        if !entries.is_empty() {
            self.send(link, &ClusterMessage::StateEntries { entries }).await?;
        }
        self.send(link, &ClusterMessage::StateEnd { entries: count }).await
    }

    /// Applies a message of another server. Returns the response, if it needs one.
    async fn apply(&mut self, node: NodeId, message: ClusterMessage) -> Option<ClusterMessage> {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&node) {
            return None;
        }
        let new = || ClusterPeer { seen_at: Instant::now(), sockets: 0, change: Some(0), state: None };
        let peer = self.peers.entry(node).or_insert_with(new);
        peer.seen_at = Instant::now();
        match message {
            ClusterMessage::Heartbeat { sockets, presence } => {
                peer.sockets = sockets;
                let is_complete = peer.change == Some(presence);
                self.count_sockets();
                return (!is_complete).then_some(ClusterMessage::StateRequest { of: node });
            }
            ClusterMessage::Goodbye => self.remove(node),
            ClusterMessage::Broadcast { room, body } => {
                let message = RoomMessage::new(&room.topic, body);
                self.rooms.deliver(Publication { room, message, except: None }).await;
            }
            ClusterMessage::Tracked { number, room, channel, key, meta } => {
                peer.note(number);
                if let Some(state) = &mut peer.state {
                    state.insert(channel);
                }
                self.presence.track_remote(&room, (node, channel), &key, meta);
            }
            ClusterMessage::Untracked { number, room, channel } => {
                peer.note(number);
                self.presence.untrack_remote(&room, (node, channel));
            }
            ClusterMessage::StateRequest { of } => self.is_state_wanted |= of == self.node,
            ClusterMessage::StateBegin { number } => {
                peer.change = Some(number);
                peer.state = Some(HashSet::new());
            }
            ClusterMessage::StateEntries { entries } => {
                for StateEntry { room, channel, key, meta } in entries {
                    if let Some(state) = &mut peer.state {
                        state.insert(channel);
                    }
                    self.presence.track_remote(&room, (node, channel), &key, meta);
                }
            }
            ClusterMessage::StateEnd { entries } => match peer.state.take() {
                Some(state) if state.len() as u64 == entries => {
                    self.presence.retain_remote(node, |channel| state.contains(&channel));
                }
                // The next heartbeat asks again
                _ => peer.change = None,
            },
        }
        None
    }

    /// Reports messages that were dropped because of their time, once a minute.
    fn report_dropped(&mut self) {
        let was_reported = self.dropped_reported_at.is_some_and(|at| at.elapsed() < REPORT_PERIOD);
        if self.unwrapper.take_dropped() && !was_reported {
            self.dropped_reported_at = Some(Instant::now());
            tracing::warn!(
                max_seconds = MAX_AGE.as_secs(),
                "messages of other servers were dropped: the clocks differ, or old messages are sent again"
            );
        }
    }

    /// Removes the servers that have been silent for too long.
    fn remove_silent(&mut self) {
        let now = Instant::now();
        let is_gone = |peer: &ClusterPeer| now.duration_since(peer.seen_at) >= self.times.gone_after;
        let gone: Vec<_> = self.peers.iter().filter(|(_, peer)| is_gone(peer)).map(|(node, _)| *node).collect();
        for node in gone {
            tracing::warn!(node = %node, "a server is silent and counts as stopped");
            self.remove(node);
        }
    }

    fn remove(&mut self, node: NodeId) {
        self.peers.remove(&node);
        self.unwrapper.remove(node);
        self.presence.retain_remote(node, |_| false);
        self.count_sockets();
    }

    fn count_sockets(&self) {
        let sockets = self.peers.values().fold(0, |sum: u64, peer| sum.saturating_add(peer.sockets));
        self.remote_sockets.store(sockets, Ordering::Relaxed);
    }
}

impl ClusterPeer {
    /// Notes a change of its presence. After a gap it stays incomplete until its next state.
    fn note(&mut self, number: u64) {
        self.change = self.change.filter(|change| change + 1 == number).map(|_| number);
    }
}
