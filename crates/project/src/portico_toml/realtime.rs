//! `[realtime]`: settings of the realtime service that `config.toml` does not have.

use std::time::Duration;

use portico_base::Secret;
use url::Url;

use crate::section::Section;

/// `[realtime]`
#[derive(Debug, Clone, Default)]
pub struct RealtimeExtras {
    /// Refuses channels that are not private.
    pub private_only: bool,
    /// Sends the presence of a room to every channel.
    pub presence_enabled: bool,
    /// The time for which decisions of the policies of private channels are kept. Zero: each join
    /// asks PostgreSQL.
    pub decisions_for: Duration,
    /// Sends the events of deleted rows also to roles that may not select any column.
    pub deletes_without_privilege: bool,
    /// Compares filters with hidden values of deleted rows.
    pub deletes_compared_whole: bool,
    /// The limits; `None`: the service's own default.
    pub limits: RealtimeLimitExtras,
    /// `[realtime.cluster]`; `None`: there is one server.
    pub cluster: Option<ClusterMode>,
}

/// The limits of `[realtime]`. Rates are averages over a minute.
#[derive(Debug, Clone, Default)]
pub struct RealtimeLimitExtras {
    /// The sockets with at least one channel.
    pub max_concurrent_users: Option<u32>,
    /// The channels of one socket.
    pub max_channels_per_client: Option<u32>,
    /// Joins per second.
    pub max_joins_per_second: Option<u32>,
    /// Messages per second, sent and delivered.
    pub max_events_per_second: Option<u32>,
    /// Delivered database changes per second.
    pub max_changes_per_second: Option<u32>,
    /// Presence messages per second.
    pub max_presence_events_per_second: Option<u32>,
    /// The largest payload of a message, in bytes.
    pub max_payload_size: Option<u64>,
}

/// The way between the servers of a project.
#[derive(Debug, Clone)]
pub enum ClusterMode {
    /// `notify`: notifications of the database.
    Notify,
    /// `nats`: the URL of a NATS server, which may contain a password.
    Nats(Secret),
}

impl RealtimeExtras {
    pub(super) fn read(mut realtime: Section<'_, '_, '_>) -> Self {
        Self {
            private_only: realtime.flag_or("private_only", false),
            presence_enabled: realtime.flag_or("presence_enabled", false),
            limits: RealtimeLimitExtras::read(&mut realtime),
            decisions_for: realtime.duration_or("decisions_for", Duration::ZERO),
            deletes_without_privilege: realtime.flag_or("deletes_without_privilege", false),
            deletes_compared_whole: realtime.flag_or("deletes_compared_whole", false),
            cluster: ClusterMode::read(realtime.section("cluster")),
        }
    }
}

impl RealtimeLimitExtras {
    fn read(realtime: &mut Section<'_, '_, '_>) -> Self {
        let mut limit = |name: &'static str| {
            let number = realtime.number::<u32>(name);
            if number == Some(0) {
                realtime.fail(name, format!("{}: expected a number of at least 1", realtime.key(name)));
            }
            number
        };
        Self {
            max_concurrent_users: limit("max_concurrent_users"),
            max_channels_per_client: limit("max_channels_per_client"),
            max_joins_per_second: limit("max_joins_per_second"),
            max_events_per_second: limit("max_events_per_second"),
            max_changes_per_second: limit("max_changes_per_second"),
            max_presence_events_per_second: limit("max_presence_events_per_second"),
            max_payload_size: realtime.size("max_payload_size"),
        }
    }
}

impl ClusterMode {
    fn read(mut cluster: Section<'_, '_, '_>) -> Option<Self> {
        let nats = cluster.secret("nats");
        let notify = cluster.flag_or("notify", false);
        let is_server = |url: &Secret| {
            Url::parse(url.expose()).is_ok_and(|url| matches!(url.scheme(), "nats" | "tls") && url.host().is_some())
        };
        match nats {
            Some(_) if notify => {
                let message = format!("{}: expected either a NATS server or notify = true", cluster.key("nats"));
                cluster.fail("nats", message);
                None
            }
            Some(url) if !is_server(&url) => {
                let key = cluster.key("nats");
                cluster.fail("nats", format!("{key}: expected the URL of a NATS server, such as nats://10.0.0.5:4222"));
                None
            }
            Some(url) => Some(Self::Nats(url)),
            None => notify.then_some(Self::Notify),
        }
    }
}
