//! The realtime service, at `/realtime/v1`: `[realtime]` of the configuration as its settings, its
//! routes and rules. The partitions of `realtime.messages` are maintained even where the service is
//! turned off: SQL can write messages.

use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use portico_base::Secret;
use portico_database::wire::{CoalescingSettings, Pool, ReadCoalescer, WirePoolSettings};
use portico_gateway::{AccessRules, BoxedResponse, ConnectionGuard, Cors, GatewayHeaders};
use portico_project::Config;
use portico_project::portico_toml::{ClusterMode, RealtimeExtras};
use portico_realtime::{
    ChangesSettings, Realtime, RealtimeClusterSettings, RealtimeClusterTransport, RealtimeFoundation, RealtimeLimits,
    RealtimeSettings, RequestOrigin,
};
use portico_tokens::{KeyRefresh, LOGIN_ROLE};
use serde_json::json;

use super::service::{Foundation, Service, json_error, unavailable};

/// The period at which partitions are made: well within the days that exist ahead.
const PARTITION_PERIOD: Duration = Duration::from_secs(6 * 60 * 60);
/// The connections to the database where the data API, which shares its own, is turned off.
const CONNECTIONS: usize = 10;
/// The sockets beyond the limit that may be open without a channel.
const SOCKETS_WITHOUT_CHANNELS: usize = 10_000;
/// The part of the listener's connections that sockets may take. A connection with a socket is
/// never idle, so none of them is closed for a request of another service: the rest is theirs.
const SHARE_OF_CONNECTIONS: (usize, usize) = (3, 4);
/// The time for clients to acknowledge that their sockets are closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the settings that the configuration describes; `None` if the service is turned off. The
/// servers of a project share `secret`. The listener has `connections`, of which sockets leave some
/// to the other services.
#[must_use]
pub fn settings(
    config: &Config,
    extras: &RealtimeExtras,
    secret: &Secret,
    connections: usize,
) -> Option<RealtimeSettings> {
    let (defaults, given) = (RealtimeLimits::default(), &extras.limits);
    let number = |limit: Option<u32>, default: usize| {
        limit.map_or(default, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    };
    let max_sockets = number(given.max_concurrent_users, defaults.max_sockets);
    let limits = RealtimeLimits {
        max_sockets,
        max_connections: max_sockets.saturating_add(SOCKETS_WITHOUT_CHANNELS).min(share_of(connections)),
        max_channels_per_socket: number(given.max_channels_per_client, defaults.max_channels_per_socket),
        max_joins_per_second: given.max_joins_per_second.or(defaults.max_joins_per_second),
        max_events_per_second: given.max_events_per_second.or(defaults.max_events_per_second),
        max_changes_per_second: given.max_changes_per_second.or(defaults.max_changes_per_second),
        max_presence_events_per_second: given
            .max_presence_events_per_second
            .or(defaults.max_presence_events_per_second),
        max_payload_bytes: given
            .max_payload_size
            .map_or(defaults.max_payload_bytes, |size| usize::try_from(size).unwrap_or(usize::MAX)),
        ..defaults
    };
    config.realtime.enabled.then(|| RealtimeSettings {
        private_only: extras.private_only,
        presence_enabled: extras.presence_enabled,
        decisions_for: extras.decisions_for,
        cluster: extras
            .cluster
            .as_ref()
            .map(|way| RealtimeClusterSettings { transport: transport(way), secret: secret.clone() }),
        changes: ChangesSettings {
            deletes_without_privilege: extras.deletes_without_privilege,
            deletes_compared_whole: extras.deletes_compared_whole,
            ..ChangesSettings::default()
        },
        limits,
    })
}

/// Returns how many of the listener's connections may be sockets: at least one.
fn share_of(connections: usize) -> usize {
    let (part, whole) = SHARE_OF_CONNECTIONS;
    (connections.saturating_mul(part) / whole).max(1)
}

fn transport(mode: &ClusterMode) -> RealtimeClusterTransport {
    match mode {
        ClusterMode::Notify => RealtimeClusterTransport::Notify,
        ClusterMode::Nats(url) => RealtimeClusterTransport::Nats { url: url.clone() },
    }
}

/// Opens the service on the connections of the data API, or on its own if that is turned off.
///
/// # Errors
/// When the endpoint of the database is invalid.
pub(super) fn open(
    settings: RealtimeSettings,
    reads: Option<ReadCoalescer>,
    refresh_keys: KeyRefresh,
    foundation: &Foundation,
) -> anyhow::Result<Realtime> {
    let Foundation { database, keys, clock } = foundation.clone();
    let reads = match reads {
        Some(reads) => reads,
        None => {
            let pool_settings = WirePoolSettings { max_connections: CONNECTIONS, ..WirePoolSettings::default() };
            ReadCoalescer::new(
                Pool::open(database.endpoint(), LOGIN_ROLE, pool_settings)?,
                &CoalescingSettings::default(),
            )
        }
    };
    Ok(Realtime::new(settings, RealtimeFoundation { database, reads, keys, clock, refresh_keys: Some(refresh_keys) }))
}

/// Returns the routes of the service. Without it connections are rejected before they are upgraded,
/// as for a project in which it is suspended.
pub(super) fn service(realtime: Option<&Realtime>, foundation: &Foundation) -> Service {
    let database = foundation.database.clone();
    let service = match realtime {
        None => unavailable("/realtime/v1", reject),
        Some(realtime) => {
            let (maintained, closed) = (realtime.clone(), realtime.clone());
            let respond = |realtime: Realtime| {
                move |mut request: Request, gateway: GatewayHeaders| -> BoxedResponse {
                    let realtime = realtime.clone();
                    let guard = request.extensions_mut().remove::<ConnectionGuard>();
                    let connection = guard.map(|guard| Box::new(guard) as Box<dyn Send + Sync>);
                    let origin = RequestOrigin { may_be_privileged: gateway.may_be_privileged(), connection };
                    Box::pin(async move { realtime.respond(request, origin).await })
                }
            };
            Service::new()
                .mount_function("/realtime/v1", respond(realtime.clone()), access())
                // Clients that are configured for the service itself
                .mount_function("/socket", respond(realtime.clone()), access())
                .run(maintained.maintain())
                .before_close(move || async move { close(&closed).await })
        }
    };
    service.every(PARTITION_PERIOD, move || {
        let database = database.clone();
        async move {
            if let Err(error) = database.maintain_message_partitions().await {
                tracing::warn!(error = %error, "the partitions of messages could not be made");
            }
        }
    })
}

/// Closes the sockets, now unless the server has begun to, and waits a moment for their clients.
async fn close(realtime: &Realtime) {
    let until_last = realtime.close(Duration::ZERO);
    let closed = async {
        while realtime.sockets() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(until_last + CLOSE_TIMEOUT, closed).await;
    realtime.leave_cluster().await;
}

/// Returns the rules for requests to the service, which checks API keys and sizes itself.
fn access() -> AccessRules {
    AccessRules::open().own_keys().body_limit(usize::MAX).cors(Cors::default())
}

fn reject() -> Response {
    let message = "Realtime was disabled for this tenant";
    let body = json!({ "error": message, "code": "RealtimeDisabledForTenant", "message": message });
    json_error(StatusCode::FORBIDDEN, &body)
}

#[cfg(test)]
mod tests {
    use portico_project::{LoadOptions, Project};

    use super::*;

    /// Returns the settings of a project with these settings of `portico.toml`, whose listener has
    /// `connections`.
    fn settings_of(extras: &RealtimeExtras, connections: usize) -> RealtimeSettings {
        let folder = tempfile::tempdir().expect("a folder");
        let options = LoadOptions { workdir: Some(folder.path().to_owned()), ..LoadOptions::default() };
        let project = Project::load(options).expect("it is valid");
        settings(project.config(), extras, &Secret::new("a secret"), connections).expect("it is on")
    }

    #[test]
    fn sockets_leave_a_quarter_of_the_connections_to_the_other_services() {
        let most = |connections| settings_of(&RealtimeExtras::default(), connections).limits.max_connections;
        assert_eq!([10_000, 768, 4, 1].map(most), [7_500, 576, 3, 1]);
        assert_eq!(most(1_000_000), 60_000, "the limit of sockets, and those without a channel");
    }

    #[test]
    fn the_rules_of_deletions_are_those_of_the_configuration() {
        let changes = |extras: &RealtimeExtras| {
            let changes = settings_of(extras, 10_000).changes;
            (changes.deletes_without_privilege, changes.deletes_compared_whole)
        };
        assert_eq!(changes(&RealtimeExtras::default()), (false, false));
        let without = RealtimeExtras { deletes_without_privilege: true, ..RealtimeExtras::default() };
        let whole = RealtimeExtras { deletes_compared_whole: true, ..RealtimeExtras::default() };
        assert_eq!((changes(&without), changes(&whole)), ((true, false), (false, true)));
    }

    #[test]
    fn a_lower_limit_of_the_configuration_stays() {
        let mut extras = RealtimeExtras::default();
        extras.limits.max_concurrent_users = Some(100);
        let limits = settings_of(&extras, 20_000).limits;
        assert_eq!((limits.max_sockets, limits.max_connections), (100, 10_100));
    }
}
