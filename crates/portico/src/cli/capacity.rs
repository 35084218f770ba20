//! The connections to the database and the threads of a server.

use std::num::NonZero;

use anyhow::Context as _;
use portico_database::PoolSettings;
use portico_gateway::Workers;
use portico_project::portico_toml::Settings;

use crate::telemetry;

/// Returns the pool sizes that follow from `[database] pool_size`.
pub(super) fn pool_settings(settings: &Settings) -> PoolSettings {
    PoolSettings { role_connections: settings.database.pool_size as usize, ..PoolSettings::default() }
}

/// Starts the threads that serve connections. They have to live for as long as anything uses the
/// database connections that were opened there.
pub(super) fn workers() -> anyhow::Result<Workers> {
    let count = std::thread::available_parallelism().map_or(1, NonZero::get);
    Workers::start(count, telemetry::flush).context("the threads that serve connections")
}
