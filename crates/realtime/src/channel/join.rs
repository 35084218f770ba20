//! The join of a channel: its checks in their order, its reply, and what it begins.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::abortable;
use serde_json::json;

use super::channels::SocketChannels;
use super::join_payload::{JoinConfig, JoinPayload};
use super::joined::{Channel, JoinState, token_check};
use super::reply::reply;
use super::work::{self, ChannelWork, JoinGrant, WorkResult};
use crate::changes::DatabaseChanges;
use crate::error::{JoinError, TokenRejection};
use crate::identity::ChannelIdentity;
use crate::ids::ChannelId;
use crate::presence::CallLimit;
use crate::rooms::{RoomKey, Subscriber, SubscriberHead};
use crate::socket::SocketEnd;
use crate::socket::frame::{Inbound, InboundBody, TOPIC_PREFIX};

/// The entries of `postgres_changes` of a channel.
const MAX_BINDINGS: usize = 100;
/// The longest payload of a join, in bytes.
const MAX_JOIN_BYTES: usize = 256 * 1024;

/// A join that is being checked.
struct JoinRequest<'a> {
    /// The topic without its prefix.
    topic: &'a str,
    inbound: &'a Inbound,
    token: Arc<str>,
    config: JoinConfig,
    /// The payload has no configuration: it is that of a client of the first generation.
    is_legacy: bool,
}

impl SocketChannels {
    /// Handles `phx_join`. `keys_are_fresh`: the keys were read again for its token.
    pub(super) fn join(&mut self, inbound: &Inbound, keys_are_fresh: bool) -> Option<SocketEnd> {
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
        (rejection == JoinError::TooManyJoins).then_some(SocketEnd::GOING_AWAY)
    }

    /// Checks what needs no database, and begins the join.
    fn begin_join(&mut self, topic: &str, inbound: &Inbound, payload: JoinPayload) -> Result<(), JoinError> {
        let (token, is_legacy) = (self.token_of(&payload), payload.config.is_none());
        let config = payload.config.unwrap_or_default();
        let mut request = JoinRequest { topic, inbound, token, config, is_legacy };
        let identity = self.check_join(&request)?;
        let replay = request.config.replay.take();
        let channel = self.new_channel(request, Arc::new(identity));
        if channel.is_private() {
            let (subscriber, subject) = (Arc::clone(&channel.subscriber), channel.subject(&self.socket.headers));
            if replay.is_some() {
                subscriber.begin_replay();
                subscriber.set_broadcasts(true);
                self.shard.subscribe(Arc::clone(&subscriber));
            }
            let service = Arc::clone(&self.service);
            let work = work::join(service, subscriber, subject, channel.presence_enabled, replay);
            self.channels.insert(inbound.topic.clone(), Box::new(channel));
            self.start(&inbound.topic, work);
        } else {
            self.channels.insert(inbound.topic.clone(), Box::new(channel));
            self.accept(&inbound.topic, None);
        }
        Ok(())
    }

    /// Checks a join in the order of the protocol, and counts it.
    fn check_join(&self, request: &JoinRequest<'_>) -> Result<ChannelIdentity, JoinError> {
        let (service, config) = (&self.service, &request.config);
        let settings = &service.settings;
        if request.topic.is_empty() {
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
        let identity = service.verifier.verify(&request.token, self.socket.may_be_privileged);
        let identity = identity.map_err(JoinError::Token)?;
        if config.postgres_changes.len() > MAX_BINDINGS {
            return Err(JoinError::TooManyBindings { max: MAX_BINDINGS });
        }
        if config.replay.is_some() && !config.private {
            return Err(JoinError::ReplayOfPublicChannel);
        }
        Ok(identity)
    }

    /// Returns the channel of a join that has passed the checks.
    fn new_channel(&self, request: JoinRequest<'_>, identity: Arc<ChannelIdentity>) -> Channel {
        let JoinRequest { topic, inbound, token, config, is_legacy } = request;
        let settings = &self.service.settings;
        let room = RoomKey { private: config.private, topic: topic.into() };
        let join_ref = match inbound.join_ref.is_null() {
            true => inbound.reference.clone(),
            false => inbound.join_ref.clone(),
        };
        let head =
            SubscriberHead { id: ChannelId::next(), room, version: self.socket.version, join_ref: join_ref.clone() };
        let key = config.presence_key.unwrap_or_else(|| portico_base::random::uuid().to_string());
        let changes = match is_legacy {
            true => DatabaseChanges::prepare_topic(topic),
            false => Some(DatabaseChanges::prepare(&config.postgres_changes)),
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

    /// Answers a join that was granted, and begins what the channel asked for.
    pub(super) fn accept(&mut self, topic: &str, grant: Option<JoinGrant>) {
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
        match grant {
            None => {
                subscriber.set_broadcasts(true);
                subscriber.set_presence(true);
            }
            Some(grant) => {
                channel.set_read(grant.permissions);
                stored = grant.stored;
            }
        }
        // A join with stored messages has subscribed before it read them
        self.shard.subscribe(Arc::clone(&subscriber));
        let ids: Vec<_> = stored.iter().map(|message| message.id).collect();
        stored.into_iter().filter_map(|message| message.frame).for_each(|frame| subscriber.send_own(frame));
        subscriber.finish_replay(ids);
        channel.send_presence_state(&service.presence);
        if let Some(prepared) = channel.changes.as_ref().filter(|prepared| !prepared.is_empty()) {
            let identity = Arc::clone(&channel.identity);
            channel.subscription = Some(service.changes.subscribe(Arc::clone(&subscriber), prepared, &identity));
        }
        let (check, waits) = (channel.check_token_at, channel.replication_ready);
        if waits {
            let (wait, handle) = abortable(work::await_replication(service, subscriber.id()));
            channel.replication = Some(handle);
            self.waits.push(wait);
        }
        self.next_token_check = Some(self.next_token_check.map_or(check, |next| next.min(check)));
    }

    /// Answers a join that was rejected after its first checks, and the messages that waited for
    /// it.
    pub(super) fn reject(&mut self, topic: &str, reason: &str) {
        let Some(channel) = self.remove(topic) else { return };
        self.service.rejected_joins.add(1);
        let response = json!({ "reason": reason }).to_string();
        reply(&self.outbox, &channel, &channel.join_reference, "error", response.as_bytes());
        for inbound in channel.waiting {
            let _ = self.receive(inbound);
        }
    }

    fn reject_join(&self, inbound: &Inbound, rejection: &JoinError) {
        self.service.rejected_joins.add(1);
        let response = json!({ "reason": rejection.to_string() }).to_string();
        self.reply_to(inbound, &inbound.join_ref, "error", response.as_bytes());
    }
}
