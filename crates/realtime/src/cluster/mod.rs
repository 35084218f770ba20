//! Several servers of one project: broadcasts, presence and the number of sockets are shared.
//!
//! Each server sends its messages once, to all others. What the others send is delivered here and
//! not sent again. Delivery is at most once, as it is to clients. The presence repairs itself: a
//! server numbers its changes, names the last number with each heartbeat, and sends its whole state
//! to a server that has missed one. A server without a heartbeat for some seconds takes its
//! presence with it.
//!
//! - `message`: the messages as bytes
//! - `envelope`: the fragments in which they travel, encrypted
//! - `outgoing`: the queue of this server
//! - `link`: NATS, or notifications of PostgreSQL
//! - `member`: the task, and what it knows about the other servers

mod envelope;
mod link;
mod member;
mod message;
mod outgoing;
mod times;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portico_base::{Clock, Secret, hash};
use portico_database::Database;
use portico_database::wire::Pool;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use times::ClusterTimes;

use crate::presence::Presence;
use crate::rooms::Rooms;
use crate::settings::{RealtimeClusterSettings, RealtimeClusterTransport};
use envelope::ClusterKey;
use link::LinkSettings;
use member::ClusterTask;
use outgoing::ClusterSender;

/// The connections of a server, and the state that it shares with the others.
pub(crate) struct ClusterFoundation {
    pub database: Database,
    pub pool: Pool,
    pub rooms: Rooms,
    pub presence: Presence,
    pub clock: Clock,
    /// Returns the number of its sockets.
    pub sockets: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// A running member of a cluster. It leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct ClusterMember {
    remote_sockets: Arc<AtomicU64>,
    leave: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl ClusterMember {
    /// Joins the cluster, in a task. Needs a Tokio runtime.
    pub fn start(settings: &RealtimeClusterSettings, times: ClusterTimes, foundation: ClusterFoundation) -> Self {
        let ClusterFoundation { database, pool, rooms, presence, clock, sockets } = foundation;
        let way = match &settings.transport {
            RealtimeClusterTransport::Notify => LinkSettings::Notify { database, pool },
            RealtimeClusterTransport::Nats { url } => {
                LinkSettings::Nats { address: url.clone(), subject: subject(&settings.secret) }
            }
        };
        let (sender, queue) = ClusterSender::new();
        rooms.share(Arc::new(sender.clone()));
        presence.share(Arc::new(sender));
        let remote_sockets = Arc::new(AtomicU64::new(0));
        let key = ClusterKey::derive(&settings.secret);
        let state = (rooms, presence);
        let member = ClusterTask::new(times, (key, clock), state, (sockets, Arc::clone(&remote_sockets)));
        let leave = CancellationToken::new();
        let task = AbortOnDropHandle::new(tokio::spawn(member.run(way, queue, leave.clone())));
        Self { remote_sockets, leave, task }
    }

    /// Returns the number of sockets of all other servers.
    pub fn remote_sockets(&self) -> u64 {
        self.remote_sockets.load(Ordering::Relaxed)
    }

    /// Leaves the cluster, so that the others forget this server at once.
    pub async fn leave(self) {
        self.leave.cancel();
        // It ends by itself, after a last message
        let _ = self.task.await;
    }
}

/// Returns the subject of a project, which tells nothing about its secret.
fn subject(secret: &Secret) -> String {
    let digest = hash::sha256_hex(format!("portico realtime subject\0{}", secret.expose()).as_bytes());
    format!("portico.realtime.{:.32}", digest)
}

#[cfg(test)]
mod tests;
