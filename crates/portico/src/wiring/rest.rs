//! From `[api]` of the project to the settings of the data API.

use portico_project::Config;
use portico_rest::RestSettings;
use portico_rest::config::Config as ApiConfig;
use portico_rest::plan::PlanSettings;

/// The data API as the project wants it; `None`: switched off. `public_url` is where people reach the server, `connections` the most that
/// it opens to the database. In `development` every key may read the root, as tools on a developer's machine do.
#[must_use]
pub fn settings(config: &Config, public_url: &str, connections: usize, development: bool) -> Option<RestSettings> {
    let api = &config.api;
    if !api.enabled {
        return None;
    }
    let defaults = RestSettings::default();
    let schemas = if api.schemas.is_empty() { vec!["public".to_owned()] } else { api.schemas.clone() };
    Some(RestSettings {
        config: ApiConfig {
            schemas,
            extra_search_path: api.extra_search_path.clone(),
            // 0 is how the reference's configuration says that there is no limit
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
