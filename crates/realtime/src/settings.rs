//! The settings of the service.

use std::fmt;
use std::time::Duration;

use portico_base::Secret;

/// The operator's settings of the service.
#[derive(Debug, Clone)]
pub struct RealtimeSettings {
    /// Rejects channels that are not private.
    pub private_only: bool,
    /// Sends the presence of a room to every channel, whether it asked for it or not.
    pub presence_enabled: bool,
    /// The time for which the decisions of policies are kept and used for further joins of the same
    /// subject. Zero: each join asks PostgreSQL.
    pub decisions_for: Duration,
    /// The settings of database changes.
    pub changes: ChangesSettings,
    /// The other servers of the project. `None`: there is one server.
    pub cluster: Option<RealtimeClusterSettings>,
    /// The limits.
    pub limits: RealtimeLimits,
}

/// The settings of database changes.
#[derive(Debug, Clone)]
pub struct ChangesSettings {
    /// The largest change, as JSON text, whose event has all values (`poll_max_record_bytes`).
    pub max_record_bytes: usize,
    /// Sends the events of deleted rows, without any value, also to roles that may not select any
    /// column of the table.
    pub deletes_without_privilege: bool,
    /// Compares filters with all columns of a deleted row that its replica identity has, also on
    /// tables with row-level security: everyone of the role can find out its hidden values then.
    /// Otherwise they are compared with the primary key alone there.
    pub deletes_compared_whole: bool,
}

impl Default for ChangesSettings {
    fn default() -> Self {
        Self { max_record_bytes: 1024 * 1024, deletes_without_privilege: false, deletes_compared_whole: false }
    }
}

/// The limits of the service. A rate of `None` is not limited; an average is taken over a minute.
#[derive(Debug, Clone)]
pub struct RealtimeLimits {
    /// The number of sockets with at least one channel (`max_concurrent_users`).
    pub max_sockets: usize,
    /// The number of sockets, with and without channels.
    pub max_connections: usize,
    /// The average number of joins per second.
    pub max_joins_per_second: Option<u32>,
    /// The number of channels of one socket (`max_channels_per_client`).
    pub max_channels_per_socket: usize,
    /// The average number of messages per second, sent and delivered.
    pub max_events_per_second: Option<u32>,
    /// The average number of delivered database changes per second.
    pub max_changes_per_second: Option<u32>,
    /// The average number of presence messages per second.
    pub max_presence_events_per_second: Option<u32>,
    /// The number of presence calls of one channel within [`Self::presence_window`].
    pub max_presence_calls: u32,
    /// The time within which presence calls are counted, from the first one on.
    pub presence_window: Duration,
    /// The bytes that the channels of one room may track together: with each join, one frame
    /// contains them all.
    pub max_room_presence_bytes: usize,
    /// The bytes that the channels of one socket may track together, in all rooms.
    pub max_socket_presence_bytes: usize,
    /// The bytes that the channels of all rooms may track together.
    pub max_presence_bytes: usize,
    /// The largest payload of a broadcast, a presence or a message of the database, in bytes.
    pub max_payload_bytes: usize,
    /// The largest frame of a client, in bytes.
    pub max_frame_bytes: usize,
    /// The time after which a socket without a frame of the client is closed.
    pub idle_timeout: Duration,
    /// The bytes that may wait for a client that does not read. A client that is further behind is
    /// disconnected.
    pub max_waiting_bytes: usize,
    /// The frames that may wait for a client that does not read.
    pub max_waiting_frames: usize,
    /// The bytes that may wait for all clients together. While it is more, clients that do not read
    /// at that moment are disconnected.
    pub max_all_waiting_bytes: usize,
}

/// The settings of a cluster.
#[derive(Clone)]
pub struct RealtimeClusterSettings {
    /// The way between the servers.
    pub transport: RealtimeClusterTransport,
    /// A secret that the servers of the project share, and no others. Messages are encrypted with a
    /// key that is derived from it.
    pub secret: Secret,
}

/// The way between the servers of a project.
#[derive(Clone)]
pub enum RealtimeClusterTransport {
    /// Notifications of the project's database, for a few servers.
    Notify,
    /// A NATS server: `nats://host:4222`, or `tls://…`, with a user and a password if it needs
    /// them.
    Nats {
        /// The URL.
        url: Secret,
    },
}

impl fmt::Debug for RealtimeClusterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealtimeClusterSettings").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl fmt::Debug for RealtimeClusterTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notify => f.write_str("Notify"),
            // It may contain a password
            Self::Nats { .. } => f.write_str("Nats"),
        }
    }
}

impl Default for RealtimeSettings {
    fn default() -> Self {
        Self {
            private_only: false,
            presence_enabled: false,
            decisions_for: Duration::ZERO,
            changes: ChangesSettings::default(),
            cluster: None,
            limits: RealtimeLimits::default(),
        }
    }
}

impl Default for RealtimeLimits {
    fn default() -> Self {
        Self {
            max_sockets: 50_000,
            max_connections: 60_000,
            max_joins_per_second: None,
            max_channels_per_socket: 100,
            max_events_per_second: None,
            max_changes_per_second: None,
            max_presence_events_per_second: Some(1_000),
            max_presence_calls: 5,
            presence_window: Duration::from_secs(30),
            max_room_presence_bytes: 1024 * 1024,
            max_socket_presence_bytes: 8 * 1024 * 1024,
            max_presence_bytes: 256 * 1024 * 1024,
            max_payload_bytes: 3_000 * 1_000 + 500,
            max_frame_bytes: 5_000_000,
            idle_timeout: Duration::from_secs(60),
            max_waiting_bytes: 32 * 1024 * 1024,
            max_waiting_frames: 16 * 1024,
            max_all_waiting_bytes: 256 * 1024 * 1024,
        }
    }
}
