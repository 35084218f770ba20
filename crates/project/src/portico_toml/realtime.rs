//! `[realtime]`: settings of the realtime service that `config.toml` does not have.

use std::time::Duration;

use portico_base::Secret;
use url::Url;

use crate::section::Section;

/// `[realtime]`
#[derive(Debug, Clone, Default)]
pub struct RealtimeExtras {
    /// The time for which decisions of the policies of private channels are kept. Zero: each join
    /// asks PostgreSQL.
    pub decisions_for: Duration,
    /// `[realtime.cluster]`; `None`: there is one server.
    pub cluster: Option<ClusterWay>,
}

/// The way between the servers of a project.
#[derive(Debug, Clone)]
pub enum ClusterWay {
    /// `notify`: notifications of the database.
    Notify,
    /// `nats`: the URL of a NATS server, which may contain a password.
    Nats(Secret),
}

impl RealtimeExtras {
    pub(super) fn read(mut realtime: Section<'_, '_, '_>) -> Self {
        Self {
            decisions_for: realtime.duration_or("decisions_for", Duration::ZERO),
            cluster: ClusterWay::read(realtime.section("cluster")),
        }
    }
}

impl ClusterWay {
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
