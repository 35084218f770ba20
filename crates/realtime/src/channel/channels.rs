//! The channels of one socket, and the messages of its client.
//!
//! Each channel processes its messages in order. While a channel has work in progress, its later
//! messages wait, and those of the other channels do not.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream as _;
use futures_util::future::{AbortHandle, Aborted, abortable};
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::joined::{Channel, JoinState, MessageContent, WaitingMessage};
use super::reply::{EMPTY, reply, reply_payload};
use super::work::{self, AbortableWork, ChannelWork, MessagePermissions, WorkResult};
use crate::authorise::{AuthoriseError, ReadPermissions};
use crate::error::Shutdown;
use crate::ids::ChannelId;
use crate::rooms::Shard;
use crate::service::{JoinedSocketCount, RealtimeService};
use crate::socket::frame::{EventHead, Inbound, InboundBody, Reference, encode_event, is_object};
use crate::socket::outbox::Outbox;
use crate::socket::{SocketEnd, SocketHead};

/// The messages that may wait for work of their channels before no more are read.
const MAX_PENDING: usize = 128;
/// The bytes of such messages.
const MAX_PENDING_BYTES: usize = 8 * 1024 * 1024;
/// The pieces of work of a socket before no more messages are read.
const MAX_WORK: usize = 256;

/// The channels of one socket.
pub(crate) struct SocketChannels {
    pub(super) service: Arc<RealtimeService>,
    pub(super) socket: SocketHead,
    pub(super) outbox: Arc<Outbox>,
    pub(super) shard: Arc<Shard>,
    /// By whole topic. Boxed, because a map has room for more than the one channel that most
    /// sockets have.
    pub(super) channels: HashMap<Box<str>, Box<Channel>>,
    pub(super) work: FuturesUnordered<AbortableWork>,
    /// The waits for the messages of the database, one for each channel at most.
    pub(super) waits: FuturesUnordered<AbortableWork>,
    /// The messages that wait in all channels, and their size in bytes.
    pending: usize,
    pending_bytes: usize,
    /// Counts this socket among those with a channel, from its first join on.
    pub(super) count: Option<JoinedSocketCount>,
    /// The earliest check of a token.
    pub(super) next_token_check: Option<Instant>,
}

impl SocketChannels {
    /// Returns no channels, for a new socket.
    pub fn new(service: &Arc<RealtimeService>, socket: SocketHead, outbox: Arc<Outbox>) -> Self {
        Self {
            service: Arc::clone(service),
            shard: service.rooms.shard(),
            socket,
            outbox,
            channels: HashMap::new(),
            work: FuturesUnordered::new(),
            waits: FuturesUnordered::new(),
            pending: 0,
            pending_bytes: 0,
            count: None,
            next_token_check: None,
        }
    }

    /// Returns true if there are no channels.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Returns false while so much waits for work of the channels that nothing more is to be read.
    pub fn may_receive(&self) -> bool {
        self.pending < MAX_PENDING && self.pending_bytes < MAX_PENDING_BYTES && self.work.len() < MAX_WORK
    }

    /// Returns the time of the next check.
    pub fn next_limit(&self) -> Option<Instant> {
        self.next_token_check
    }

    /// Polls the work of the channels. Ready when the result of a piece of work was handled.
    pub fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Option<SocketEnd>> {
        let next = match poll_next(&mut self.work, context) {
            Poll::Pending => poll_next(&mut self.waits, context),
            next => next,
        };
        match next {
            Poll::Ready(Some(Ok((channel, result)))) => {
                let end = self.handle_result(channel, result);
                self.resume(channel);
                Poll::Ready(end)
            }
            // Its channel has ended
            Poll::Ready(Some(Err(_))) => Poll::Ready(None),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Handles a message of the client.
    pub fn receive(&mut self, inbound: Inbound) -> Option<SocketEnd> {
        let event = match &inbound.body {
            InboundBody::Event { event, .. } => Some(&**event),
            InboundBody::UserBroadcast(_) => None,
        };
        match event {
            Some("heartbeat") if &*inbound.topic == "phoenix" => {
                self.reply_to(&inbound, &Reference::NULL, "ok", EMPTY);
                None
            }
            Some("phx_join") => self.join(&inbound, false),
            _ if self.channels.contains_key(&inbound.topic) => self.receive_on_channel(inbound),
            Some("phx_leave") => {
                self.reply_to(&inbound, &inbound.join_ref, "ok", EMPTY);
                None
            }
            _ => {
                self.reject_topic(&inbound);
                None
            }
        }
    }

    /// Ends a channel for a reason of the server.
    pub fn shut_down(&mut self, id: ChannelId, reason: &Shutdown) {
        let Some(channel) = self.channels.values().find(|channel| channel.subscriber.id() == id) else { return };
        let topic = channel.subscriber.wire_topic();
        if channel.state == JoinState::Joining {
            // A client joins again after an error, and not after the end of a channel
            return self.reject(&topic, &reason.to_string());
        }
        channel.subscriber.send_system("system", "error", &reason.to_string());
        self.close_channel(&topic);
    }

    /// Ends all channels without a message: the socket is closing.
    pub fn end(&mut self) {
        let topics: Vec<Box<str>> = self.channels.keys().cloned().collect();
        topics.iter().for_each(|topic| drop(self.remove(topic)));
        self.work.clear();
        self.waits.clear();
        self.count = None;
    }

    /// Handles a message on a channel that exists, now or after the channel's work.
    fn receive_on_channel(&mut self, inbound: Inbound) -> Option<SocketEnd> {
        let channel = self.channels.get_mut(&inbound.topic)?;
        if channel.busy {
            self.pending += 1;
            self.pending_bytes += inbound.size();
            channel.waiting.push_back(inbound);
            return None;
        }
        self.handle(inbound);
        None
    }

    /// Handles the messages that waited for the work of a channel.
    fn resume(&mut self, id: ChannelId) {
        while let Some(channel) = self.channels.values_mut().find(|channel| channel.subscriber.id() == id)
            && !channel.busy
            && let Some(inbound) = channel.waiting.pop_front()
        {
            self.pending -= 1;
            self.pending_bytes -= inbound.size();
            self.handle(inbound);
        }
    }

    fn handle(&mut self, inbound: Inbound) {
        let Inbound { join_ref, reference, topic, body } = inbound;
        match body {
            InboundBody::UserBroadcast(broadcast) => {
                self.service.events.add(1);
                self.broadcast(&topic, reference, MessageContent::UserBroadcast(broadcast));
            }
            InboundBody::Event { event, payload } => match &*event {
                "phx_leave" => self.leave(&topic, &join_ref, &reference),
                "access_token" => self.refresh_token(&topic, &payload, false),
                // The payload is forwarded as it is
                "broadcast" if is_object(&payload) => {
                    self.service.events.add(1);
                    self.broadcast(&topic, reference, MessageContent::Broadcast(payload));
                }
                "presence" => self.presence(&topic, reference, payload),
                _ => self.service.events.add(1),
            },
        }
    }

    fn leave(&mut self, topic: &str, join_ref: &Reference, reference: &Reference) {
        let Some(channel) = self.channels.get(topic) else { return };
        // A message of an earlier join of the same topic
        if join_ref != &channel.join_ref && !channel.joined_without_reference {
            return;
        }
        reply(&self.outbox, channel, reference, "ok", EMPTY);
        self.close_channel(topic);
    }

    fn handle_result(&mut self, id: ChannelId, result: WorkResult) -> Option<SocketEnd> {
        if let WorkResult::KeysRead(inbound) = result {
            return self.join(&inbound, true);
        }
        // A channel that has ended needs no result
        let found = self.channels.iter().find(|(_, channel)| channel.subscriber.id() == id);
        let topic = found.map(|(topic, _)| topic.clone())?;
        match result {
            WorkResult::KeysRead(_) => {}
            WorkResult::KeysReadForToken(payload) => {
                self.release(&topic);
                self.refresh_token(&topic, &payload, true);
            }
            WorkResult::Joined(Ok(admission)) => self.accept(&topic, Some(admission)),
            WorkResult::Joined(Err(rejection)) => self.reject(&topic, &rejection.to_string()),
            WorkResult::Refreshed(identity, permissions) => self.apply_refresh(&topic, &identity, permissions),
            WorkResult::PermissionsChecked(permissions, message) => {
                self.apply_permissions(&topic, permissions, message);
            }
            WorkResult::Published => self.release(&topic),
            WorkResult::ReplicationReady(Some(state)) => {
                if let Some(channel) = self.channels.get_mut(&topic) {
                    channel.subscriber.send_system("system", "ok", "Replication connection established");
                    let (wait, handle) = abortable(work::await_next_replication(state, id));
                    channel.replication = Some(handle);
                    self.waits.push(wait);
                }
            }
            WorkResult::ReplicationReady(None) => self.shut_down(id, &Shutdown::ReplicationNotReady),
        }
        None
    }

    /// Applies the permissions that a message waited for, and handles the message.
    fn apply_permissions(
        &mut self,
        topic: &str,
        permissions: Result<MessagePermissions, AuthoriseError>,
        message: WaitingMessage,
    ) {
        self.release(topic);
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let WaitingMessage { reference, content } = message;
        match permissions {
            Ok(MessagePermissions { read, write }) => {
                channel.write = Some(write);
                if let Some(read) = read {
                    // The decision about broadcasts holds until the next token
                    let broadcast = channel.read.map_or(read.broadcast, |before| before.broadcast);
                    channel.set_read(ReadPermissions { broadcast, ..read });
                }
                match content {
                    MessageContent::Presence(payload) => self.handle_presence(topic, &reference, &payload),
                    content => self.broadcast(topic, reference, content),
                }
            }
            // The next message is checked anew
            Err(error) => {
                tracing::warn!(error = %error, "a message of a client could not be authorised");
                // A broadcast is dropped without a reply
                if matches!(content, MessageContent::Presence(_)) {
                    reply(&self.outbox, channel, &reference, "error", EMPTY);
                }
            }
        }
    }

    /// Starts work of a channel, which ends with the channel. Later messages wait for it.
    pub(super) fn start(&mut self, topic: &str, work: ChannelWork) {
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let (work, handle) = abortable(work);
        channel.busy = true;
        channel.work = Some(handle);
        self.work.push(work);
    }

    /// Ends the wait of the messages that come after work of a channel.
    pub(super) fn release(&mut self, topic: &str) {
        if let Some(channel) = self.channels.get_mut(topic) {
            channel.busy = false;
        }
    }

    /// Ends a channel with `phx_close`.
    pub(super) fn close_channel(&mut self, topic: &str) {
        let Some(channel) = self.remove(topic) else { return };
        let head = EventHead { join_ref: &channel.join_ref, reference: &channel.join_ref, topic, event: "phx_close" };
        self.outbox.push_reply(encode_event(self.socket.version, head, EMPTY));
    }

    /// Removes a channel from everything that knows it.
    pub(super) fn remove(&mut self, topic: &str) -> Option<Box<Channel>> {
        let mut channel = self.channels.remove(topic)?;
        let subscriber = &channel.subscriber;
        // Before anything else, so that nothing is delivered behind the end of the channel
        self.shard.unsubscribe(subscriber.room(), subscriber.id());
        channel.subscription = None;
        self.service.presence.untrack(subscriber, &channel.presence_key);
        self.pending -= channel.waiting.len();
        self.pending_bytes -= channel.waiting.iter().map(Inbound::size).sum::<usize>();
        channel.work.iter().chain(&channel.replication).for_each(AbortHandle::abort);
        Some(channel)
    }

    /// Replies that a topic is not one of channels, or that there is no channel.
    pub(super) fn reject_topic(&self, inbound: &Inbound) {
        self.reply_to(inbound, &Reference::NULL, "error", br#"{"reason":"unmatched topic"}"#);
    }

    /// Replies to a message that belongs to no channel.
    pub(super) fn reply_to(&self, inbound: &Inbound, join_ref: &Reference, status: &str, response: &[u8]) {
        let head = EventHead { join_ref, reference: &inbound.reference, topic: &inbound.topic, event: "phx_reply" };
        self.outbox.push_reply(encode_event(self.socket.version, head, &reply_payload(status, response)));
    }
}

/// Polls pieces of work. Pending while there are none.
fn poll_next(
    work: &mut FuturesUnordered<AbortableWork>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<(ChannelId, WorkResult), Aborted>>> {
    match work.is_empty() {
        true => Poll::Pending,
        false => Pin::new(work).poll_next(context),
    }
}

impl Drop for SocketChannels {
    fn drop(&mut self) {
        self.end();
    }
}
