//! Several servers of one project: broadcasts, presence and the number of sockets are shared.
//!
//! Each server sends its messages once, to all others. What the others send is delivered here and
//! not sent again. Delivery is at most once, as it is to clients. The presence repairs itself: a
//! server numbers its changes, names the last number with each heartbeat, and sends its whole state
//! to a server that has missed one. A server without a heartbeat for some seconds takes its
//! presence with it.
//!
//! - `message`: the messages as bytes
//! - `envelope`: the parts in which they travel, encrypted
//! - `outgoing`: the queue of this server
//! - `link`: NATS, or notifications of PostgreSQL
//! - `member`: the task, and what it knows about the other servers

mod envelope;
mod link;
mod member;
mod message;
mod node;
mod outgoing;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portico_base::{Clock, Secret, hash};
use portico_database::Database;
use portico_database::wire::Pool;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use node::NodeId;
pub(crate) use outgoing::ClusterSender;

use crate::presence::Presence;
use crate::rooms::Rooms;
use envelope::ClusterKey;
use link::Way;
use member::Member;

/// The settings of a cluster.
#[derive(Clone)]
pub struct ClusterSettings {
    /// The way between the servers.
    pub transport: ClusterTransport,
    /// A secret that the servers of the project share, and no others. Messages are encrypted with a
    /// key that is derived from it.
    pub secret: Secret,
}

/// The way between the servers of a project.
#[derive(Clone)]
pub enum ClusterTransport {
    /// Notifications of the project's database, for a few servers.
    Notify,
    /// A NATS server: `nats://host:4222`, or `tls://…`, with a user and a password if it needs
    /// them.
    Nats {
        /// The URL.
        url: Secret,
    },
}

impl fmt::Debug for ClusterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSettings").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClusterTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notify => f.write_str("Notify"),
            // It may contain a password
            Self::Nats { .. } => f.write_str("Nats"),
        }
    }
}

/// The parts of a server that it shares with the others.
pub(crate) struct ClusterParts {
    pub database: Database,
    pub pool: Pool,
    pub rooms: Rooms,
    pub presence: Presence,
    pub clock: Clock,
    /// Returns the number of its sockets.
    pub sockets: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// The times of a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterTimes {
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// The time without a message after which a server is gone.
    pub gone_after: Duration,
}

impl Default for ClusterTimes {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(1), gone_after: Duration::from_secs(5) }
    }
}

/// A running member of a cluster. It leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    remote_sockets: Arc<AtomicU64>,
    leave: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl Cluster {
    /// Joins the cluster, in a task. Needs a Tokio runtime.
    pub fn start(settings: &ClusterSettings, times: ClusterTimes, parts: ClusterParts) -> Self {
        let ClusterParts { database, pool, rooms, presence, clock, sockets } = parts;
        let way = match &settings.transport {
            ClusterTransport::Notify => Way::Notify { database, pool },
            ClusterTransport::Nats { url } => Way::Nats { address: url.clone(), subject: subject(&settings.secret) },
        };
        let (sender, queue) = ClusterSender::new();
        rooms.share(sender.clone());
        presence.share(sender);
        let remote_sockets = Arc::new(AtomicU64::new(0));
        let key = ClusterKey::derive(&settings.secret);
        let member = Member::new(times, (key, clock), (rooms, presence), (sockets, Arc::clone(&remote_sockets)));
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
