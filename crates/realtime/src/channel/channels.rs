//! The channels of one socket, and the messages of its client.
//!
//! Each channel processes its messages in order. While a channel has work in progress, its later
//! messages wait, and those of the other channels do not.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream as _;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::ChannelId;
use super::join::{JoinConfig, JoinPayload};
use super::joined::{Channel, JoinState, MessageContent, WaitingMessage, token_check};
use super::work::{self, AbortableWork, ChannelWork, JoinGrant, WorkResult};
use crate::authorise::{AuthoriseError, ReadPermissions, WritePermissions};
use crate::changes::DatabaseChanges;
use crate::error::{JoinError, Shutdown, TokenRejection};
use crate::identity::ChannelIdentity;
use crate::presence::CallLimit;
use crate::realtime::{JoinedSocketCount, RealtimeService};
use crate::rooms::{Publication, RoomKey, RoomMessage, RoomMessageBody, Shard, Subscriber, SubscriberHead};
use crate::socket::connection::SocketHead;
use crate::socket::frame::{EventHead, Inbound, InboundBody, Reference, TOPIC_PREFIX, encode_event, is_object};
use crate::socket::outbox::Outbox;

/// The end of a socket that the server closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketEnd {
    /// The code of the close frame.
    pub code: u16,
    pub reason: &'static str,
}

/// The messages that may wait for work of their channels before no more are read.
const MAX_PENDING: usize = 128;
/// The bytes of such messages.
const MAX_PENDING_BYTES: usize = 8 * 1024 * 1024;
/// The pieces of work of a socket before no more messages are read.
const MAX_WORK: usize = 256;
/// The entries of `postgres_changes` of a channel.
const MAX_BINDINGS: usize = 100;
/// The longest payload of a join, in bytes.
const MAX_JOIN_BYTES: usize = 256 * 1024;

/// The code for a socket whose joins are too frequent.
const GOING_AWAY: u16 = 1001;

const EMPTY: &[u8] = b"{}";

/// The channels of one socket.
pub(crate) struct SocketChannels {
    service: Arc<RealtimeService>,
    socket: SocketHead,
    outbox: Arc<Outbox>,
    shard: Arc<Shard>,
    /// By whole topic.
    channels: HashMap<Box<str>, Channel>,
    work: FuturesUnordered<AbortableWork>,
    /// The messages that wait in all channels, and their size in bytes.
    pending: usize,
    pending_bytes: usize,
    /// Counts this socket among those with a channel, from its first join on.
    count: Option<JoinedSocketCount>,
    /// The earliest check of a token.
    next_token_check: Option<Instant>,
}

impl SocketChannels {
    pub fn new(service: &Arc<RealtimeService>, socket: SocketHead, outbox: Arc<Outbox>) -> Self {
        Self {
            service: Arc::clone(service),
            shard: service.rooms.shard(),
            socket,
            outbox,
            channels: HashMap::new(),
            work: FuturesUnordered::new(),
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
        if self.work.is_empty() {
            return Poll::Pending;
        }
        match Pin::new(&mut self.work).poll_next(context) {
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
        let topic = whole_topic(&channel.subscriber);
        if channel.state == JoinState::Joining {
            // A client joins again after an error, and not after the end of a channel
            return self.reject(&topic, &reason.to_string());
        }
        channel.subscriber.send_system("system", "error", &reason.to_string());
        self.close_channel(&topic);
    }

    /// Checks the tokens whose time has come.
    pub fn check_times(&mut self) {
        let now = Instant::now();
        self.check_tokens_if(|channel| channel.check_token_at <= now);
    }

    /// Checks all tokens.
    pub fn check_tokens(&mut self) {
        self.check_tokens_if(|_| true);
    }

    fn check_tokens_if(&mut self, is_due: impl Fn(&Channel) -> bool) {
        let mut rejected = Vec::new();
        for channel in self.channels.values_mut().filter(|channel| is_due(channel)) {
            match self.service.verifier.verify(&channel.token, self.socket.may_be_privileged) {
                Ok(identity) => channel.check_token_at = token_check(&identity, &self.service.verifier),
                Err(rejection) => rejected.push((channel.subscriber.id(), rejection)),
            }
        }
        for (channel, rejection) in rejected {
            self.shut_down(channel, &Shutdown::Token(rejection));
        }
        self.next_token_check = self.channels.values().map(|channel| channel.check_token_at).min();
    }

    /// Ends all channels without a message: the socket is closing.
    pub fn end(&mut self) {
        let topics: Vec<Box<str>> = self.channels.keys().cloned().collect();
        topics.iter().for_each(|topic| drop(self.remove(topic)));
        self.work.clear();
        self.count = None;
    }

    fn join(&mut self, inbound: &Inbound, keys_are_fresh: bool) -> Option<SocketEnd> {
        let Some(topic) = inbound.topic.strip_prefix(TOPIC_PREFIX) else {
            self.reject_topic(inbound);
            return None;
        };
        if self.channels.contains_key(&inbound.topic) {
            // The client has begun anew
            self.close_channel(&inbound.topic);
        }
        let InboundBody::Event { payload, .. } = &inbound.body else { return None };
        let joined = match payload.len() <= MAX_JOIN_BYTES {
            true => self.begin_join(topic, inbound, JoinPayload::parse(payload)),
            false => Err(JoinError::TooLarge { max: MAX_JOIN_BYTES }),
        };
        let rejection = joined.err()?;
        if let JoinError::Token(TokenRejection::NoSigner { kid: Some(_) }) = rejection
            && !keys_are_fresh
            && let Some(refresh) = self.service.verifier.refresh(&self.token_of(&JoinPayload::parse(payload)))
        {
            let inbound = inbound.clone();
            let joined = async move {
                refresh.await;
                (ChannelId::next(), WorkResult::KeysRead(inbound))
            };
            self.work.push(abortable(Box::pin(joined) as ChannelWork).0);
            return None;
        }
        self.reject_join(inbound, &rejection);
        (rejection == JoinError::TooManyJoins).then_some(SocketEnd { code: GOING_AWAY, reason: "" })
    }

    /// Checks what needs no database, and begins the join.
    fn begin_join(&mut self, topic: &str, inbound: &Inbound, payload: JoinPayload) -> Result<(), JoinError> {
        let service = Arc::clone(&self.service);
        let settings = &service.settings;
        let legacy = payload.config.is_none();
        let token = self.token_of(&payload);
        let config = payload.config.unwrap_or_default();
        if topic.is_empty() {
            return Err(JoinError::TopicNameRequired);
        }
        if service.is_closing() {
            return Err(JoinError::Restarting);
        }
        if settings.private_only && !config.private {
            return Err(JoinError::PrivateOnly);
        }
        if self.count.is_none() && !service.has_room_for_channels() {
            return Err(JoinError::TooManySockets);
        }
        if service.joins.exceeds(settings.limits.max_joins_per_second) {
            return Err(JoinError::TooManyJoins);
        }
        service.joins.add(1);
        if self.channels.len() >= settings.limits.max_channels_per_socket {
            return Err(JoinError::TooManyChannels);
        }
        let identity = service.verifier.verify(&token, self.socket.may_be_privileged).map_err(JoinError::Token)?;
        if config.postgres_changes.len() > MAX_BINDINGS {
            return Err(JoinError::TooManyBindings { max: MAX_BINDINGS });
        }
        if config.replay.is_some() && !config.private {
            return Err(JoinError::ReplayOfPublicChannel);
        }
        let channel = self.new_channel(topic, inbound, token, Arc::new(identity), &config, legacy);
        if channel.is_private() {
            let (subscriber, subject) = (Arc::clone(&channel.subscriber), channel.subject(&self.socket.headers));
            if config.replay.is_some() {
                subscriber.begin_replay();
                subscriber.set_broadcasts(true);
                self.shard.subscribe(Arc::clone(&subscriber));
            }
            let work = work::join(Arc::clone(&service), subscriber, subject, channel.presence_enabled, config.replay);
            self.channels.insert(inbound.topic.clone(), channel);
            self.start(&inbound.topic, work);
        } else {
            self.channels.insert(inbound.topic.clone(), channel);
            self.accept(&inbound.topic, None);
        }
        Ok(())
    }

    fn new_channel(
        &self,
        topic: &str,
        inbound: &Inbound,
        token: Arc<str>,
        identity: Arc<ChannelIdentity>,
        config: &JoinConfig,
        legacy: bool,
    ) -> Channel {
        let settings = &self.service.settings;
        let room = RoomKey { private: config.private, topic: topic.into() };
        let join_ref = match inbound.join_ref.is_null() {
            true => inbound.reference.clone(),
            false => inbound.join_ref.clone(),
        };
        let head =
            SubscriberHead { id: ChannelId::next(), room, version: self.socket.version, join_ref: join_ref.clone() };
        let key = config.presence_key.clone().unwrap_or_else(|| portico_base::random::uuid().to_string());
        let changes = if legacy {
            DatabaseChanges::prepare_topic(topic)
        } else {
            Some(DatabaseChanges::prepare(&config.postgres_changes))
        };
        Channel {
            subscriber: Subscriber::new(head, Arc::clone(&self.outbox)),
            state: JoinState::Joining,
            join_reference: inbound.reference.clone(),
            join_ref,
            broadcast_self: config.broadcast_self,
            broadcast_ack: config.broadcast_ack,
            presence_enabled: config.presence_enabled || settings.presence_enabled,
            presence_key: key.into(),
            replication_ready: config.replication_ready,
            changes,
            subscription: None,
            token,
            check_token_at: token_check(&identity, &self.service.verifier),
            identity,
            read: None,
            write: None,
            presence_calls: CallLimit::default(),
            busy: config.private,
            waiting: VecDeque::new(),
            work: None,
            replication: None,
            joined_without_reference: inbound.join_ref.is_null(),
        }
    }

    /// Returns the token of a join: its own, unless it is a key that stands for that of the socket.
    fn token_of(&self, payload: &JoinPayload) -> Arc<str> {
        let own = payload.access_token.as_ref().or(payload.user_token.as_ref());
        if own.is_some_and(|token| is_api_key(token)) {
            return Arc::clone(&self.socket.token);
        }
        let token = payload.user_token.as_deref().or(payload.access_token.as_deref());
        token.map_or_else(|| Arc::clone(&self.socket.token), Arc::from)
    }

    /// Answers a join that was granted, and begins what the channel asked for.
    fn accept(&mut self, topic: &str, admission: Option<JoinGrant>) {
        let service = Arc::clone(&self.service);
        let Some(channel) = self.channels.get_mut(topic) else { return };
        self.count.get_or_insert_with(|| service.count_socket());
        channel.state = JoinState::Joined;
        channel.busy = false;
        let subscriber = Arc::clone(&channel.subscriber);
        let echo = channel.changes.as_ref().map_or_else(|| json!([]), |prepared| prepared.echo().clone());
        let response = json!({ "postgres_changes": echo }).to_string();
        let reference = channel.join_reference.clone();
        reply(&self.outbox, channel, &reference, "ok", response.as_bytes());
        let mut stored = Vec::new();
        match admission {
            None => {
                subscriber.set_broadcasts(true);
                subscriber.set_presence(true);
            }
            Some(admission) => {
                channel.set_read(admission.permissions);
                stored = admission.stored;
            }
        }
        // A join with stored messages has subscribed before it read them
        self.shard.subscribe(Arc::clone(&subscriber));
        let ids: Vec<_> = stored.iter().map(|message| message.id).collect();
        stored.into_iter().filter_map(|message| message.frame).for_each(|frame| subscriber.send(frame));
        subscriber.finish_replay(ids);
        let may_read_presence = channel.read.is_none_or(|read| read.presence == Some(true));
        if channel.presence_enabled && may_read_presence {
            subscriber.send_event("presence_state", &service.presence.state(subscriber.room()));
        }
        if let Some(prepared) = channel.changes.as_ref().filter(|prepared| !prepared.is_empty()) {
            let identity = Arc::clone(&channel.identity);
            channel.subscription = Some(service.changes.subscribe(Arc::clone(&subscriber), prepared, &identity));
        }
        let (check, waits) = (channel.check_token_at, channel.replication_ready);
        if waits {
            let (work, handle) = abortable(work::await_replication(service, subscriber.id()));
            channel.replication = Some(handle);
            self.work.push(work);
        }
        self.next_token_check = Some(self.next_token_check.map_or(check, |next| next.min(check)));
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
                self.broadcast(&topic, reference, MessageContent::UserBroadcast(broadcast));
            }
            InboundBody::Event { event, payload } => match &*event {
                "phx_leave" => self.leave(&topic, &join_ref, &reference),
                "access_token" => self.refresh_token(&topic, &payload, false),
                // The payload is forwarded as it is
                "broadcast" if is_object(&payload) => {
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

    fn refresh_token(&mut self, topic: &str, payload: &Bytes, keys_are_fresh: bool) {
        #[derive(Deserialize)]
        struct AccessTokenPayload {
            access_token: Option<String>,
        }
        let Ok(AccessTokenPayload { access_token: Some(token) }) = serde_json::from_slice(payload) else { return };
        let Some(channel) = self.channels.get_mut(topic) else { return };
        if is_api_key(&token) || *token == *channel.token {
            return;
        }
        let id = channel.subscriber.id();
        let identity = match self.service.verifier.verify(&token, self.socket.may_be_privileged) {
            Ok(identity) => Arc::new(identity),
            Err(rejection) => {
                if let TokenRejection::NoSigner { kid: Some(_) } = rejection
                    && !keys_are_fresh
                    && let Some(refresh) = self.service.verifier.refresh(&token)
                {
                    let payload = payload.clone();
                    let read = async move {
                        refresh.await;
                        (id, WorkResult::KeysReadForToken(payload))
                    };
                    return self.start(topic, Box::pin(read));
                }
                return self.shut_down(id, &Shutdown::Token(rejection));
            }
        };
        channel.token = token.into();
        // The grants of the token before it are void from now on
        channel.write = None;
        channel.set_identity(identity, &self.service.verifier);
        if channel.is_private() {
            let subject = channel.subject(&self.socket.headers);
            let presence = channel.read.is_some_and(|read| read.presence.is_some());
            let work = work::refresh(Arc::clone(&self.service), id, subject, presence);
            self.start(topic, work);
        } else {
            self.subscribe_again(topic);
        }
        self.next_token_check = self.channels.values().map(|channel| channel.check_token_at).min();
    }

    /// Subscribes to database changes with the identity of a new token.
    fn subscribe_again(&mut self, topic: &str) {
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let Some(prepared) = channel.changes.as_ref().filter(|prepared| !prepared.is_empty()) else { return };
        // First the end of the old one: nothing more is delivered with the old identity
        channel.subscription = None;
        let identity = Arc::clone(&channel.identity);
        let subscriber = Arc::clone(&channel.subscriber);
        channel.subscription = Some(self.service.changes.subscribe(subscriber, prepared, &identity));
    }

    fn broadcast(&mut self, topic: &str, reference: Reference, content: MessageContent) {
        self.service.events.add(1);
        let Some(channel) = self.channels.get_mut(topic) else { return };
        if channel.is_private() {
            match channel.write {
                Some(write) if write.broadcast => {}
                // Without a reply, even where one is configured
                Some(_) => return,
                None => {
                    let subject = channel.subject(&self.socket.headers);
                    let message = WaitingMessage { reference, content };
                    let id = channel.subscriber.id();
                    let work = work::check_write(Arc::clone(&self.service), id, subject, message);
                    return self.start(topic, work);
                }
            }
        }
        let (bytes, body) = match content {
            MessageContent::Broadcast(payload) => (payload.len(), RoomMessageBody::Broadcast(payload)),
            MessageContent::UserBroadcast(broadcast) => {
                (broadcast.payload.len(), RoomMessageBody::UserBroadcast { broadcast, metadata: "".into() })
            }
            MessageContent::Presence(_) => return,
        };
        if bytes > self.service.settings.limits.max_payload_bytes {
            if channel.broadcast_ack {
                reply(&self.outbox, channel, &reference, "error", br#""payload_size_exceeded""#);
            }
            return;
        }
        let subscriber = &channel.subscriber;
        let publication = Publication {
            room: subscriber.room().clone(),
            message: RoomMessage::new(&subscriber.room().topic, body),
            except: (!channel.broadcast_self).then(|| subscriber.id()),
        };
        let id = subscriber.id();
        let unfinished = self.service.rooms.try_publish(Some(&self.shard), publication);
        if channel.broadcast_ack {
            reply(&self.outbox, channel, &reference, "ok", EMPTY);
        }
        if let Some(unfinished) = unfinished {
            self.start(topic, work::publish(id, unfinished));
        }
    }

    fn presence(&mut self, topic: &str, reference: Reference, payload: Bytes) {
        self.service.events.add(1);
        self.service.presence_events.add(1);
        let limits = &self.service.settings.limits;
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let excess = if self.service.presence_events.exceeds(limits.max_presence_events_per_second) {
            Some(Shutdown::TooManyPresenceMessages)
        } else if !channel.presence_calls.allows(limits, Instant::now()) {
            Some(Shutdown::TooManyPresenceCalls)
        } else {
            None
        };
        if let Some(reason) = excess {
            let id = channel.subscriber.id();
            return self.shut_down(id, &reason);
        }
        if channel.is_private() && (channel.write.is_none() || channel.read.is_none_or(|read| read.presence.is_none()))
        {
            let subject = channel.subject(&self.socket.headers);
            let message = WaitingMessage { reference, content: MessageContent::Presence(payload) };
            let id = channel.subscriber.id();
            let work = work::check_presence(Arc::clone(&self.service), id, subject, message);
            return self.start(topic, work);
        }
        self.handle_presence(topic, &reference, &payload);
    }

    /// Handles a presence event whose permissions are known.
    fn handle_presence(&mut self, topic: &str, reference: &Reference, payload: &[u8]) {
        let service = Arc::clone(&self.service);
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let may_write = !channel.is_private() || channel.write.is_some_and(|write| write.presence);
        let call = PresenceCall::parse(payload);
        let (status, response): (_, &[u8]) = match call {
            PresenceCall::None => ("ok", EMPTY),
            _ if !may_write => ("error", EMPTY),
            PresenceCall::Track(_) if payload.len() > service.settings.limits.max_payload_bytes => {
                let id = channel.subscriber.id();
                return self.shut_down(id, &Shutdown::TrackTooLarge);
            }
            PresenceCall::Track(Value::Object(state)) => {
                service.presence.track(&channel.subscriber, &channel.presence_key, state);
                ("ok", EMPTY)
            }
            PresenceCall::Track(_) => ("error", br#"{"reason":"Presence track payload must be a map"}"#),
            PresenceCall::Untrack => {
                service.presence.untrack(&channel.subscriber, &channel.presence_key);
                ("ok", EMPTY)
            }
            PresenceCall::Unknown => ("error", EMPTY),
        };
        reply(&self.outbox, channel, reference, status, response);
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
            WorkResult::WriteChecked(permissions, message) => self.apply_write(&topic, permissions, message),
            WorkResult::PresenceChecked(permissions, message) => self.apply_presence(&topic, permissions, message),
            WorkResult::Published => self.release(&topic),
            WorkResult::ReplicationReady(true) => {
                if let Some(channel) = self.channels.get(&topic) {
                    channel.subscriber.send_system("system", "ok", "Replication connection established");
                }
            }
            WorkResult::ReplicationReady(false) => self.shut_down(id, &Shutdown::ReplicationNotReady),
        }
        None
    }

    /// Answers a join that was rejected later, and the messages that waited for it.
    fn reject(&mut self, topic: &str, reason: &str) {
        let Some(channel) = self.remove(topic) else { return };
        let response = json!({ "reason": reason }).to_string();
        reply(&self.outbox, &channel, &channel.join_reference, "error", response.as_bytes());
        for inbound in channel.waiting {
            let _ = self.receive(inbound);
        }
    }

    fn apply_refresh(
        &mut self,
        topic: &str,
        identity: &Arc<ChannelIdentity>,
        permissions: Result<ReadPermissions, AuthoriseError>,
    ) {
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let (id, name) = (channel.subscriber.id(), channel.subscriber.room().topic.to_string());
        debug_assert!(Arc::ptr_eq(identity, &channel.identity), "messages wait for a refresh");
        let permissions = match permissions {
            Ok(permissions) => permissions,
            Err(error) => return self.shut_down(id, &error.into_shutdown(&name)),
        };
        let before = channel.read;
        let lost = |was: Option<bool>, is: Option<bool>| was == Some(true) && is != Some(true);
        let reason = if !permissions.any() {
            Some(Shutdown::NoReadPermission { topic: name })
        } else if lost(before.map(|read| read.broadcast), Some(permissions.broadcast))
            || lost(before.and_then(|read| read.presence), permissions.presence)
        {
            Some(Shutdown::ReadPermissionLost { topic: name })
        } else {
            None
        };
        if let Some(reason) = reason {
            return self.shut_down(id, &reason);
        }
        channel.set_read(permissions);
        channel.busy = false;
        self.subscribe_again(topic);
    }

    fn apply_write(
        &mut self,
        topic: &str,
        permissions: Result<WritePermissions, AuthoriseError>,
        message: WaitingMessage,
    ) {
        self.release(topic);
        let Some(channel) = self.channels.get_mut(topic) else { return };
        match permissions {
            Ok(permissions) => {
                channel.write = Some(permissions);
                self.broadcast(topic, message.reference, message.content);
            }
            // The message is dropped without a reply; the next one is checked anew
            Err(error) => tracing::warn!(error = ?error, "a broadcast could not be authorised"),
        }
    }

    fn apply_presence(
        &mut self,
        topic: &str,
        permissions: Result<(ReadPermissions, WritePermissions), AuthoriseError>,
        message: WaitingMessage,
    ) {
        self.release(topic);
        let Some(channel) = self.channels.get_mut(topic) else { return };
        match permissions {
            Ok((read, write)) => {
                channel.write = Some(write);
                // The decision about broadcasts holds until the next token
                let broadcast = channel.read.map_or(read.broadcast, |before| before.broadcast);
                channel.set_read(ReadPermissions { broadcast, ..read });
                if let MessageContent::Presence(payload) = &message.content {
                    self.handle_presence(topic, &message.reference, payload);
                }
            }
            Err(error) => {
                tracing::warn!(error = ?error, "a presence could not be authorised");
                reply(&self.outbox, channel, &message.reference, "error", EMPTY);
            }
        }
    }

    /// Starts work of a channel, which ends with the channel. Later messages wait for it.
    fn start(&mut self, topic: &str, work: ChannelWork) {
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let (work, handle) = abortable(work);
        channel.busy = true;
        channel.work = Some(handle);
        self.work.push(work);
    }

    fn release(&mut self, topic: &str) {
        if let Some(channel) = self.channels.get_mut(topic) {
            channel.busy = false;
        }
    }

    /// Ends a channel with `phx_close`.
    fn close_channel(&mut self, topic: &str) {
        let Some(channel) = self.remove(topic) else { return };
        let head = EventHead { join_ref: &channel.join_ref, reference: &channel.join_ref, topic, event: "phx_close" };
        self.outbox.push_reply(encode_event(self.socket.version, head, EMPTY));
    }

    /// Removes a channel from everything that knows it.
    fn remove(&mut self, topic: &str) -> Option<Channel> {
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

    fn reject_topic(&self, inbound: &Inbound) {
        self.reply_to(inbound, &Reference::NULL, "error", br#"{"reason":"unmatched topic"}"#);
    }

    fn reject_join(&self, inbound: &Inbound, rejection: &JoinError) {
        let response = json!({ "reason": rejection.to_string() }).to_string();
        self.reply_to(inbound, &inbound.join_ref, "error", response.as_bytes());
    }

    fn reply_to(&self, inbound: &Inbound, join_ref: &Reference, status: &str, response: &[u8]) {
        let head = EventHead { join_ref, reference: &inbound.reference, topic: &inbound.topic, event: "phx_reply" };
        self.outbox.push_reply(encode_event(self.socket.version, head, &reply_payload(status, response)));
    }
}

impl Drop for SocketChannels {
    fn drop(&mut self) {
        self.end();
    }
}

/// Replies to a message on a channel.
fn reply(outbox: &Outbox, channel: &Channel, reference: &Reference, status: &str, response: &[u8]) {
    let topic = whole_topic(&channel.subscriber);
    let head = EventHead { join_ref: &channel.join_ref, reference, topic: &topic, event: "phx_reply" };
    outbox.push_reply(encode_event(channel.subscriber.version(), head, &reply_payload(status, response)));
}

fn reply_payload(status: &str, response: &[u8]) -> Vec<u8> {
    [br#"{"status":""#, status.as_bytes(), br#"","response":"#, response, b"}"].concat()
}

fn whole_topic(subscriber: &Subscriber) -> String {
    format!("{TOPIC_PREFIX}{}", subscriber.room().topic)
}

/// Returns true for an API key in place of a token.
fn is_api_key(token: &str) -> bool {
    token.starts_with("sb_")
}

/// A presence event.
enum PresenceCall {
    Track(Value),
    Untrack,
    /// Without `event`.
    None,
    Unknown,
}

impl PresenceCall {
    fn parse(payload: &[u8]) -> Self {
        let mut payload: Map<String, Value> = serde_json::from_slice(payload).unwrap_or_default();
        let event = payload.get("event").and_then(Value::as_str).map(str::to_ascii_lowercase);
        match event.as_deref() {
            Some("track") => Self::Track(payload.remove("payload").unwrap_or_else(|| Value::Object(Map::new()))),
            Some("untrack") => Self::Untrack,
            Some(_) => Self::Unknown,
            None if payload.contains_key("event") => Self::Unknown,
            None => Self::None,
        }
    }
}
