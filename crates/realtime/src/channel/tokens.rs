//! The tokens of channels: which one a channel has, their checks, and new ones.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use super::channels::SocketChannels;
use super::join_payload::JoinPayload;
use super::joined::{Channel, JoinState, token_check};
use super::work::{self, NeededPermissions, RefreshedPermissions, WorkResult};
use crate::authorise::AuthoriseError;
use crate::error::{Shutdown, TokenRejection};
use crate::identity::ChannelIdentity;
use crate::socket::SocketEnd;

/// The payload of `access_token`.
#[derive(Deserialize)]
struct AccessTokenPayload {
    access_token: Option<String>,
}

impl SocketChannels {
    /// Checks the tokens whose time has come.
    pub fn check_times(&mut self) {
        let now = Instant::now();
        self.check_tokens_if(|channel| channel.check_token_at <= now);
    }

    /// Checks all tokens, since the keys have changed. If the token of the socket itself is void,
    /// the socket ends: its client connects again, and its API key stands for a valid token then.
    /// Clients do not join again after the end of a channel alone.
    pub fn check_tokens(&mut self) -> Option<SocketEnd> {
        let own = self.service.verifier.verify(&self.socket.token, self.socket.may_be_privileged);
        // An expired one matters to channels without a token of their own alone
        if own.is_err_and(|rejection| !matches!(rejection, TokenRejection::Expired { .. })) {
            self.announce_disconnect();
            return Some(SocketEnd::SERVICE_RESTART);
        }
        self.check_tokens_if(|_| true);
        None
    }

    /// Announces to the channels that the server closes the socket.
    pub fn announce_disconnect(&self) {
        let joined = self.channels.values().filter(|channel| channel.state == JoinState::Joined);
        joined.for_each(|channel| channel.subscriber.send_disconnect());
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

    /// Returns the token of a join: its own, unless it is a key that stands for that of the socket.
    pub(super) fn token_of(&self, payload: &JoinPayload) -> Arc<str> {
        let own = payload.access_token.as_ref().or(payload.user_token.as_ref());
        if own.is_some_and(|token| is_api_key(token)) {
            return Arc::clone(&self.socket.token);
        }
        let token = payload.user_token.as_deref().or(payload.access_token.as_deref());
        token.map_or_else(|| Arc::clone(&self.socket.token), Arc::from)
    }

    /// Puts the token of an `access_token` event in force. `keys_are_fresh`: the keys were read
    /// again for it.
    pub(super) fn refresh_token(&mut self, topic: &str, payload: &Bytes, keys_are_fresh: bool) {
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
        let before = &channel.identity;
        let is_same_reader = identity.role() == before.role() && identity.is_same_person(before);
        channel.token = token.into();
        // The grants of the token before it are void from now on
        channel.write = None;
        channel.set_identity(identity, &self.service.verifier);
        if channel.is_private() {
            if !is_same_reader {
                // Another person receives nothing by the permissions of the one before
                channel.subscription = None;
                channel.subscriber.set_broadcasts(false);
                channel.subscriber.set_presence(false);
            }
            let subject = channel.subject(&self.socket.headers);
            let needed = NeededPermissions {
                presence: channel.read.is_some_and(|read| read.presence.is_some()),
                // It was tracked by the right of the person before
                write: !is_same_reader && self.service.presence.is_tracking(&channel.subscriber),
            };
            let work = work::refresh(Arc::clone(&self.service), id, subject, needed);
            self.start(topic, work);
        } else {
            self.subscribe_again(topic);
        }
        self.next_token_check = self.channels.values().map(|channel| channel.check_token_at).min();
    }

    /// Applies the permissions of a new token: the channel ends if it may not read any more what it
    /// could. What it tracks ends with the right to track.
    pub(super) fn apply_refresh(
        &mut self,
        topic: &str,
        identity: &Arc<ChannelIdentity>,
        permissions: Result<RefreshedPermissions, AuthoriseError>,
    ) {
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let (id, name) = (channel.subscriber.id(), channel.subscriber.room().topic.to_string());
        debug_assert!(Arc::ptr_eq(identity, &channel.identity), "messages wait for a refresh");
        let RefreshedPermissions { read: permissions, write } = match permissions {
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
        if write.is_some_and(|write| !write.presence) {
            self.service.presence.untrack(&channel.subscriber, &channel.presence_key);
        }
        channel.write = write;
        let received_presence = channel.subscriber.receives_presence();
        channel.set_read(permissions);
        if !received_presence {
            channel.send_presence_state(&self.service.presence);
        }
        channel.busy = false;
        self.subscribe_again(topic);
    }

    /// Subscribes to database changes with the identity of a new token.
    fn subscribe_again(&mut self, topic: &str) {
        let Some(channel) = self.channels.get_mut(topic) else { return };
        let Some(prepared) = channel.changes.as_ref().filter(|prepared| !prepared.is_empty()) else { return };
        let identity = Arc::clone(&channel.identity);
        if channel.subscription.as_mut().is_some_and(|subscription| subscription.renew(&identity)) {
            return;
        }
        // First the end of the old one: nothing more is delivered with the old identity
        channel.subscription = None;
        let subscriber = Arc::clone(&channel.subscriber);
        channel.subscription = Some(self.service.changes.subscribe(subscriber, prepared, &identity));
    }
}

/// Returns true for an API key in place of a token.
fn is_api_key(token: &str) -> bool {
    token.starts_with("sb_")
}
