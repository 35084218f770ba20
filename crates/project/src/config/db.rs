//! `[db]`: PostgreSQL, migrations and seeds.

use std::collections::BTreeMap;
use std::time::Duration;

use portico_base::Secret;

use crate::error::WarningKind;
use crate::section::Section;

/// The seed file that the format, and the file that `init` writes, name by default.
pub(crate) const DEFAULT_SEED_PATH: &str = "./seed.sql";

/// `[db]`
#[derive(Debug, Clone)]
pub struct DbConfig {
    /// Local PostgreSQL port.
    pub port: u16,
    /// Port of the temporary database for diffs.
    pub shadow_port: u16,
    /// The time to wait for the database.
    pub health_timeout: Duration,
    /// The PostgreSQL version that the project was made for. A request, not a requirement.
    pub major_version: u16,
    /// Root key of the vault.
    pub root_key: Secret,
    /// `[db.pooler]`
    pub pooler: DbPooler,
    /// `[db.migrations]`
    pub migrations: DbMigrations,
    /// `[db.seed]`
    pub seed: DbSeed,
    /// `[db.vault]`: secrets to store in the vault, by name.
    pub vault: BTreeMap<String, Secret>,
    /// `[db.settings]`
    pub settings: DbSettings,
    /// `[db.network_restrictions]`: no local effect.
    pub network_restrictions: NetworkRestrictions,
    /// `[db.ssl_enforcement] enabled`: no local effect.
    pub ssl_enforcement: Option<bool>,
}

/// `[db.pooler]`
#[derive(Debug, Clone)]
pub struct DbPooler {
    /// True if a connection pooler is wanted.
    pub enabled: bool,
    /// Its port.
    pub port: u16,
    /// The moment at which a connection returns to the pool.
    pub pool_mode: PoolMode,
    /// Connections per user and database.
    pub default_pool_size: u32,
    /// The largest number of clients.
    pub max_client_conn: u32,
}

/// The moment at which a pooled connection is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// It is returned at the end of each transaction.
    Transaction,
    /// It is returned when the client disconnects.
    Session,
}

/// `[db.migrations]`
#[derive(Debug, Clone)]
pub struct DbMigrations {
    /// False: migrations are skipped.
    pub enabled: bool,
    /// Globs of declarative schema files, in order.
    pub schema_paths: Vec<String>,
}

/// `[db.seed]`
#[derive(Debug, Clone)]
pub struct DbSeed {
    /// True if seeds run on a fresh database.
    pub enabled: bool,
    /// Globs of seed files, from `supabase/`, in order.
    pub sql_paths: Vec<String>,
}

/// `[db.settings]`: settings of PostgreSQL by name, as written in `postgresql.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DbSettings {
    /// Names and values.
    pub parameters: BTreeMap<String, String>,
}

/// `[db.network_restrictions]`
#[derive(Debug, Clone)]
pub struct NetworkRestrictions {
    /// True if restrictions are wanted.
    pub enabled: bool,
    /// Allowed IPv4 networks.
    pub allowed_cidrs: Vec<String>,
    /// Allowed IPv6 networks.
    pub allowed_cidrs_v6: Vec<String>,
}

const ROOT_KEY: &str = "d4dc5b6d4a1d6a10b2c1e76112c994d65db7cec380572cc1839624d4be3fa275";

const TEXT_SETTINGS: [&str; 13] = [
    "effective_cache_size",
    "logical_decoding_work_mem",
    "maintenance_work_mem",
    "max_slot_wal_keep_size",
    "max_standby_archive_delay",
    "max_standby_streaming_delay",
    "max_wal_size",
    "shared_buffers",
    "statement_timeout",
    "track_activity_query_size",
    "wal_keep_size",
    "wal_sender_timeout",
    "work_mem",
];

const NUMBER_SETTINGS: [&str; 8] = [
    "max_connections",
    "max_locks_per_transaction",
    "max_parallel_maintenance_workers",
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "max_replication_slots",
    "max_wal_senders",
    "max_worker_processes",
];

impl DbConfig {
    pub(crate) fn read(mut db: Section<'_, '_, '_>) -> Self {
        let port = db.number_or("port", 54322);
        let major_version = db.number_or("major_version", 17);
        check_major_version(&db, major_version);
        Self {
            port,
            shadow_port: db.number_or("shadow_port", 54320),
            health_timeout: db.duration_or("health_timeout", Duration::from_secs(120)),
            major_version,
            root_key: db.secret("root_key").unwrap_or_else(|| Secret::new(ROOT_KEY)),
            pooler: DbPooler::read(db.section("pooler")),
            migrations: DbMigrations::read(db.section("migrations")),
            seed: DbSeed::read(db.section("seed")),
            vault: vault(db.section("vault")),
            settings: DbSettings::read(db.section("settings")),
            network_restrictions: NetworkRestrictions::read(db.section("network_restrictions")),
            ssl_enforcement: {
                let mut ssl = db.section("ssl_enforcement");
                ssl.is_present().then(|| ssl.flag_or("enabled", false))
            },
        }
    }
}

/// Checks the major version. Portico runs the PostgreSQL that it has; only impossible version
/// numbers are rejected.
fn check_major_version(db: &Section<'_, '_, '_>, version: u16) {
    match version {
        13..=18 => {}
        0 => db.require("major_version", false),
        12 => db.fail("major_version", "PostgreSQL version 12 is not supported; set db.major_version to 17"),
        other => db.fail("major_version", format!("Failed reading config: Invalid db.major_version: {other}.")),
    }
    if (13..=15).contains(&version) {
        db.reading().warn(
            WarningKind::Information,
            db.position("major_version"),
            "db.major_version",
            format!("db.major_version asks for PostgreSQL {version}; Portico runs the version it finds"),
        );
    }
}

impl DbPooler {
    fn read(mut pooler: Section<'_, '_, '_>) -> Self {
        Self {
            enabled: pooler.flag_or("enabled", false),
            port: pooler.number_or("port", 54329),
            pool_mode: pooler
                .choice("pool_mode", &[("transaction", PoolMode::Transaction), ("session", PoolMode::Session)])
                .unwrap_or(PoolMode::Transaction),
            default_pool_size: pooler.number_or("default_pool_size", 20),
            max_client_conn: pooler.number_or("max_client_conn", 100),
        }
    }
}

impl DbMigrations {
    fn read(mut migrations: Section<'_, '_, '_>) -> Self {
        Self { enabled: migrations.flag_or("enabled", true), schema_paths: migrations.list_or("schema_paths", &[]) }
    }
}

impl DbSeed {
    fn read(mut seed: Section<'_, '_, '_>) -> Self {
        Self { enabled: seed.flag_or("enabled", true), sql_paths: seed.list_or("sql_paths", &[DEFAULT_SEED_PATH]) }
    }
}

fn vault(mut vault: Section<'_, '_, '_>) -> BTreeMap<String, Secret> {
    let names = vault.names();
    names.into_iter().filter_map(|name| Some((name.to_owned(), vault.any_secret(name)?))).collect()
}

impl DbSettings {
    fn read(mut settings: Section<'_, '_, '_>) -> Self {
        let mut parameters = BTreeMap::new();
        for name in TEXT_SETTINGS {
            if let Some(value) = settings.text(name) {
                parameters.insert(name.to_owned(), value);
            }
        }
        for name in NUMBER_SETTINGS {
            if let Some(value) = settings.number::<u32>(name) {
                parameters.insert(name.to_owned(), value.to_string());
            }
        }
        let roles = [("origin", "origin"), ("replica", "replica"), ("local", "local")];
        if let Some(role) = settings.choice("session_replication_role", &roles) {
            parameters.insert("session_replication_role".to_owned(), role.to_owned());
        }
        if let Some(is_on) = settings.flag("track_commit_timestamp") {
            parameters.insert("track_commit_timestamp".to_owned(), if is_on { "on" } else { "off" }.to_owned());
        }
        Self { parameters }
    }
}

impl NetworkRestrictions {
    fn read(mut restrictions: Section<'_, '_, '_>) -> Self {
        Self {
            enabled: restrictions.flag_or("enabled", false),
            allowed_cidrs: restrictions.list_or("allowed_cidrs", &["0.0.0.0/0"]),
            allowed_cidrs_v6: restrictions.list_or("allowed_cidrs_v6", &["::/0"]),
        }
    }
}
