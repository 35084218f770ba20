//! Settings that this version reads but does not implement yet.
//!
//! Development prints a warning. Production rejects settings that promise protection: a missing
//! protection that the configuration promises is worse than none.

use anyhow::bail;
use portico_project::Config;

/// Returns a warning for each setting that has no effect.
pub fn warnings(config: &Config) -> Vec<String> {
    let unfinished = found(config).into_iter().map(|key| format!("{key} has no effect yet"));
    unfinished.chain(unknown_providers(config)).collect()
}

/// Returns a warning for each enabled identity provider that does not exist here.
fn unknown_providers(config: &Config) -> Vec<String> {
    let is_known = |name: &str| portico_auth::provider_names().any(|known| known == name);
    let unknown = config.auth.external.iter().filter(|(name, provider)| provider.enabled && !is_known(name));
    let known: Vec<&str> = portico_auth::provider_names().collect();
    unknown
        .map(|(name, _)| {
            format!("[auth.external.{name}] has no effect: there is no provider {name}. Known are {}", known.join(", "))
        })
        .collect()
}

/// Rejects settings that promise protection which this version does not implement, and logs the
/// others.
///
/// # Errors
/// When there is such a setting; the text names all of them.
pub fn reject(config: &Config) -> anyhow::Result<()> {
    let promises = promises(config);
    if !promises.is_empty() {
        bail!("this version does not carry out: {}. Remove these settings to serve without them", promises.join(", "));
    }
    for warning in warnings(config) {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// Returns the configured settings that promise protection.
fn promises(config: &Config) -> Vec<&'static str> {
    let mut promises = Vec::new();
    if config.api.tls.enabled {
        promises.push("[api.tls]");
    }
    promises
}

fn found(config: &Config) -> Vec<&'static str> {
    let auth = &config.auth;
    let mut found = promises(config);
    if auth.oauth_server.enabled {
        found.push("[auth.oauth_server]");
    }
    if !config.functions.is_empty() {
        found.push("[functions]");
    }
    found
}
