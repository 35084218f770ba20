//! The data API, at `/rest/v1`: `[api]` of the configuration as its settings, its routes and rules.

use std::time::Duration;

use anyhow::Context;
use axum::extract::Request;
use portico_gateway::{AccessRules, BoxedResponse, Cors, GatewayHeaders};
use portico_project::Config;
use portico_rest::config::{PlanSettings, RestConfig};
use portico_rest::{Rest, RestSettings};

use super::service::{Foundation, Service};

/// The largest body of a write, in bytes. The server holds it in memory once.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// The time for a response to begin, as at the hosted gateway; statements have shorter limits of
/// their own.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(125);

/// Opens the data API.
///
/// # Errors
/// When a setting is invalid.
pub(super) fn open(settings: RestSettings, foundation: &Foundation) -> anyhow::Result<Rest> {
    let Foundation { database, keys, clock } = foundation;
    Rest::new(settings, database.clone(), keys.clone(), clock.clone()).context("the data API")
}

/// Returns the routes of the data API.
pub(super) fn service(rest: &Rest) -> Service {
    let (responding, closed) = (rest.clone(), rest.clone());
    let respond = move |request: Request, gateway: GatewayHeaders| -> BoxedResponse {
        let rest = responding.clone();
        Box::pin(async move { rest.respond(request, |headers| gateway.write_to(headers)).await })
    };
    Service::new()
        .mount_function("/rest/v1", respond, access(rest))
        .mount("/rest-admin/v1", rest.admin_router(), AccessRules::open().own_tokens().compressed())
        .before_close(move || async move { closed.close() })
}

/// Returns the rules for requests that the data API responds to, at any prefix.
pub(super) fn access(rest: &Rest) -> AccessRules {
    let rest = rest.clone();
    let cors = Cors::default()
        .methods("GET, POST, PATCH, PUT, DELETE, OPTIONS, HEAD")
        .headers("Authorization, Accept, Accept-Language, Content-Language")
        .max_age(Duration::from_secs(24 * 60 * 60))
        .exposing("Server, Transfer-Encoding, Range-Unit")
        .origins(move |origin| rest.admits_page(origin));
    AccessRules::keyed().body_limit(MAX_BODY_BYTES).timeout(Some(RESPONSE_TIMEOUT)).cors(cors).compressed()
}

/// Returns the settings that the configuration describes; `None` if the data API is turned off.
/// Clients reach the server at `public_url`; the service opens at most `connections` to the
/// database. In `development` every key may read the root, as tools on a developer's machine do.
#[must_use]
pub fn settings(config: &Config, public_url: &str, connections: usize, development: bool) -> Option<RestSettings> {
    let api = &config.api;
    if !api.enabled {
        return None;
    }
    let defaults = RestSettings::default();
    let schemas = if api.schemas.is_empty() { vec!["public".to_owned()] } else { api.schemas.clone() };
    Some(RestSettings {
        config: RestConfig {
            schemas,
            extra_search_path: api.extra_search_path.clone(),
            // 0 means no limit
            plan: PlanSettings {
                max_rows: Some(api.max_rows).filter(|rows| *rows > 0),
                ..defaults.config.plan.clone()
            },
            openapi_secret_key_only: !development,
            ..defaults.config
        },
        connections,
        public_url: format!("{}/rest/v1", public_url.trim_end_matches('/')),
        ..defaults
    })
}
