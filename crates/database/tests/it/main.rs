//! The crate against real PostgreSQL servers.
#![allow(clippy::unwrap_used)]

mod bootstrap;
mod bootstrap_account_sessions;
mod bootstrap_application;
mod bootstrap_catalog;
mod bootstrap_extensions;
mod bootstrap_fetched_extensions;
mod bootstrap_services;
mod bootstrap_session_traits;
mod bootstrap_storage_lists;
mod cluster;
mod external;
mod faults;
mod fence;
mod fence_bootstrap;
mod fence_external;
mod fence_run;
mod fence_vault;
mod pool;
mod pooler;
mod replication;
mod replication_silence;
mod scratch;
mod tls;
mod wire;
mod wire_coalescing;
mod wire_fixed_read;
mod wire_login;
mod wire_pool;
mod wire_runtimes;
mod wire_session;

/// The role profile of a service, as one declares it.
const AUTH: portico_database::RoleProfile = portico_database::RoleProfile::acting_as("supabase_auth_admin", "auth");
