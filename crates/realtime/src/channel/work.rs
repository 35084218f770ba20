//! The work of channels: policies, stored messages, room in a queue. It runs beside the socket; its
//! result comes back to the channel that waits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Abortable, BoxFuture};
use serde_json::Value;
use tokio::sync::watch;

use super::joined::{MessageContent, WaitingMessage};
use crate::authorise::{AuthoriseError, OwnedSubject, ReadPermissions, WritePermissions};
use crate::error::JoinError;
use crate::identity::ChannelIdentity;
use crate::ids::ChannelId;
use crate::replay::{self, ReplayParameters, StoredMessage};
use crate::rooms::{Subscriber, UnfinishedPublication};
use crate::service::RealtimeService;
use crate::socket::frame::Inbound;
use crate::stream::StreamState;

/// The time for the messages of the database to be delivered, for a client that waits for them.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Work of a channel, and its result.
pub(super) type ChannelWork = BoxFuture<'static, (ChannelId, WorkResult)>;
/// Work that ends with its channel.
pub(super) type AbortableWork = Abortable<ChannelWork>;

/// The result of work.
pub(super) enum WorkResult {
    Joined(Result<JoinGrant, JoinError>),
    /// The permissions after a new token.
    Refreshed(Arc<ChannelIdentity>, Result<RefreshedPermissions, AuthoriseError>),
    /// The permissions for a message that waits for them.
    PermissionsChecked(Result<MessagePermissions, AuthoriseError>, WaitingMessage),
    /// A message has been handed to every queue.
    Published,
    /// The messages of the database are delivered, until the state changes. `None`: they were not
    /// delivered in time.
    ReplicationReady(Option<watch::Receiver<StreamState>>),
    /// The keys were read again for the token of this join.
    KeysRead(Inbound),
    /// The keys were read again for the token in this payload of `access_token`.
    KeysReadForToken(Bytes),
}

/// The permissions that a channel needs after a new token, besides that to receive broadcasts.
#[derive(Debug, Clone, Copy)]
pub(super) struct NeededPermissions {
    /// To receive the presence.
    pub presence: bool,
    /// To send. Without it, it is evaluated for the first message that needs it.
    pub write: bool,
}

/// The permissions of a channel after a new token.
pub(super) struct RefreshedPermissions {
    pub read: ReadPermissions,
    pub write: Option<WritePermissions>,
}

/// The permissions that a message needs.
pub(super) struct MessagePermissions {
    /// Evaluated for presence events only.
    pub read: Option<ReadPermissions>,
    pub write: WritePermissions,
}

/// The grant of a join.
pub(super) struct JoinGrant {
    pub permissions: ReadPermissions,
    pub stored: Vec<StoredMessage>,
}

/// Checks the read permissions of a private channel, and reads the stored messages it asks for.
pub(super) fn join(
    service: Arc<RealtimeService>,
    channel: Arc<Subscriber>,
    subject: OwnedSubject,
    presence: bool,
    replay: Option<Value>,
) -> ChannelWork {
    Box::pin(async move {
        let admitted = admit(&service, &channel, &subject, presence, replay).await;
        (channel.id(), WorkResult::Joined(admitted))
    })
}

async fn admit(
    service: &RealtimeService,
    channel: &Subscriber,
    subject: &OwnedSubject,
    presence: bool,
    replay: Option<Value>,
) -> Result<JoinGrant, JoinError> {
    let topic = &subject.topic;
    let permissions = service.authoriser.read(&subject.borrowed(), presence).await;
    let permissions = permissions.map_err(|error| error.into_join_error(topic))?;
    let unauthorized = || JoinError::Unauthorized { topic: topic.to_string() };
    if !permissions.any() {
        return Err(unauthorized());
    }
    let stored = match replay {
        None => Vec::new(),
        Some(_) if !permissions.broadcast => return Err(unauthorized()),
        Some(parameters) => {
            let parameters = ReplayParameters::parse(&parameters)?;
            let now = service.clock.now();
            replay::replay(service.reads.pool(), channel, &parameters, now).await?
        }
    };
    Ok(JoinGrant { permissions, stored })
}

/// Checks the permissions again, for a new token.
pub(super) fn refresh(
    service: Arc<RealtimeService>,
    channel: ChannelId,
    subject: OwnedSubject,
    needed: NeededPermissions,
) -> ChannelWork {
    Box::pin(async move {
        let permissions = refreshed(&service, &subject, needed).await;
        (channel, WorkResult::Refreshed(subject.identity, permissions))
    })
}

async fn refreshed(
    service: &RealtimeService,
    subject: &OwnedSubject,
    needed: NeededPermissions,
) -> Result<RefreshedPermissions, AuthoriseError> {
    let subject = subject.borrowed();
    let read = service.authoriser.read(&subject, needed.presence).await?;
    let write = match needed.write {
        true => Some(service.authoriser.write(&subject).await?),
        false => None,
    };
    Ok(RefreshedPermissions { read, write })
}

/// Checks the permissions that a message needs.
pub(super) fn check_permissions(
    service: Arc<RealtimeService>,
    channel: ChannelId,
    subject: OwnedSubject,
    message: WaitingMessage,
) -> ChannelWork {
    Box::pin(async move {
        let permissions = permissions_for(&service, &subject, &message.content).await;
        (channel, WorkResult::PermissionsChecked(permissions, message))
    })
}

async fn permissions_for(
    service: &RealtimeService,
    subject: &OwnedSubject,
    content: &MessageContent,
) -> Result<MessagePermissions, AuthoriseError> {
    let subject = subject.borrowed();
    let read = match content {
        // Of a channel that did not ask for the presence when it joined
        MessageContent::Presence(_) => Some(service.authoriser.read(&subject, true).await?),
        MessageContent::Broadcast(_) | MessageContent::UserBroadcast(_) => None,
    };
    Ok(MessagePermissions { read, write: service.authoriser.write(&subject).await? })
}

/// Waits until a message is in every queue.
pub(super) fn publish(channel: ChannelId, publication: UnfinishedPublication) -> ChannelWork {
    Box::pin(async move {
        publication.finish().await;
        (channel, WorkResult::Published)
    })
}

/// Waits until the messages of the database are delivered.
pub(super) fn await_replication(service: Arc<RealtimeService>, channel: ChannelId) -> ChannelWork {
    Box::pin(async move {
        let mut state = service.stream.state();
        let running = state.wait_for(|state| *state == StreamState::Running);
        let ready = matches!(tokio::time::timeout(REPLICATION_TIMEOUT, running).await, Ok(Ok(_)));
        (channel, WorkResult::ReplicationReady(ready.then_some(state)))
    })
}

/// Waits until the messages of the database are delivered again after a loss. `state` has seen the
/// run before.
pub(super) fn await_next_replication(mut state: watch::Receiver<StreamState>, channel: ChannelId) -> ChannelWork {
    Box::pin(async move {
        // Each run sets the state once, so a change to it is a run that was not seen
        while state.changed().await.is_ok() {
            if *state.borrow_and_update() == StreamState::Running {
                return (channel, WorkResult::ReplicationReady(Some(state)));
            }
        }
        // The stream has ended with the server
        std::future::pending().await
    })
}
