//! Broadcasts of a client.

use std::sync::Arc;

use super::channels::SocketChannels;
use super::joined::{MessageContent, WaitingMessage};
use super::reply::{EMPTY, reply};
use super::work;
use crate::rooms::{Publication, RoomMessage, RoomMessageBody};
use crate::socket::frame::Reference;

impl SocketChannels {
    /// Publishes a broadcast, if the channel may send it.
    pub(super) fn broadcast(&mut self, topic: &str, reference: Reference, content: MessageContent) {
        let Some(channel) = self.channels.get_mut(topic) else { return };
        if channel.is_private() {
            match channel.write {
                Some(write) if write.broadcast => {}
                // Without a reply, even where one is configured
                Some(_) => return,
                None => return self.check_permissions(topic, WaitingMessage { reference, content }),
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

    /// Checks the permissions that a message needs. The message, and those after it, wait.
    pub(super) fn check_permissions(&mut self, topic: &str, message: WaitingMessage) {
        let Some(channel) = self.channels.get(topic) else { return };
        let (id, subject) = (channel.subscriber.id(), channel.subject(&self.socket.headers));
        let work = work::check_permissions(Arc::clone(&self.service), id, subject, message);
        self.start(topic, work);
    }
}
