//! Roles, schemas and the objects that applications and services expect, made once and kept up to
//! date.
//!
//! The SQL is in `sql/`, one file per step, each one idempotent: it creates missing objects and
//! drops none. A fingerprint of the whole in schema `portico` reduces a warm start to one query.
//!
//! The fence: on the embedded cluster the login role is a superuser, and a superuser's session runs
//! nothing that a role of the project owns. A statement on a table runs the code that the table's
//! owner has attached to it (triggers, rules, defaults, casts of its columns' types), and
//! `set role` does not confine such code, since it can run `reset role`. Therefore a session that
//! has logged in as `postgres` creates the objects of the services. The superuser's own session
//! names only the catalog and the schemas `portico` and `vault`, resolves names nowhere else, and
//! fires no event triggers.

mod extensions;
mod limitation;
mod logins;
mod role_names;
mod session;
mod settings;
mod step;
mod versions;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};
use tracing::{debug, warn};

pub use extensions::{EMULATED as EMULATED_EXTENSIONS, install as install_extensions};
pub use limitation::Limitation;
pub use session::MigrationSession;
pub use settings::BootstrapSettings;

use self::step::{digest, step};
use crate::Database;
use crate::acting;
use crate::acting::logins::Logins;
use crate::acting::names::{Names, OWNER};
use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::lock::HeldLock;
use crate::pooler::detection;
use crate::quote;
use crate::replication::end_streams;
use crate::sqlstate;

/// A step: its name in errors, and its text.
type BootstrapStep = (&'static str, &'static str);

/// The time within which streams of changes have to end before a database is dropped.
const STREAMS_END: Duration = Duration::from_secs(30);

/// The tools of all other steps. Every transaction begins with them, since some last as long as
/// one.
const TOOLS: BootstrapStep = ("bootstrap tools", include_str!("sql/helpers.sql"));

/// The first steps, which the login role runs.
const FOUNDATIONS: &[BootstrapStep] = &[
    ("roles", include_str!("sql/roles.sql")),
    ("schemas and grants", include_str!("sql/schemas.sql")),
    ("extensions", include_str!("sql/extensions.sql")),
    ("entries of services", include_str!("sql/entries.sql")),
    ("leakproof functions", include_str!("sql/leakproof.sql")),
];

/// The steps for objects that roles of the project own, which run with the rights of `postgres`.
const SERVICES: &[BootstrapStep] = &[
    ("types and functions of schema auth", include_str!("sql/auth_types.sql")),
    ("tables of schema auth", include_str!("sql/auth_tables.sql")),
    ("access to schema auth", include_str!("sql/auth_access.sql")),
    ("tables of schema storage", include_str!("sql/storage_tables.sql")),
    ("functions of schema storage", include_str!("sql/storage_functions.sql")),
    ("listings of schema storage", include_str!("sql/storage_lists.sql")),
    ("access to schema storage", include_str!("sql/storage_access.sql")),
    ("tables of schema realtime", include_str!("sql/realtime_tables.sql")),
    ("functions of schema realtime", include_str!("sql/realtime_functions.sql")),
    ("changes of schema realtime", include_str!("sql/realtime_changes.sql")),
    ("access to schema realtime", include_str!("sql/realtime_access.sql")),
    ("messages about sessions", include_str!("sql/account_sessions.sql")),
    ("platform schemas", include_str!("sql/platform.sql")),
    ("partitions of realtime.messages", MESSAGE_PARTITIONS),
];

/// The last steps, which the login role runs, before and after our own migrations.
const RIGHTS: &[BootstrapStep] = &[
    ("migrations of schema realtime", include_str!("sql/realtime_migrations.sql")),
    ("rights of postgres", include_str!("sql/powers.sql")),
    ("key of the vault", include_str!("sql/vault_key.sql")),
    ("statements for postgres", include_str!("sql/run.sql")),
];
const VAULT: BootstrapStep = ("vault", include_str!("sql/vault.sql"));
const EVENT_TRIGGERS: BootstrapStep = ("event triggers", include_str!("sql/watch.sql"));
/// Behind all steps that make functions.
const SESSION_TRAITS: BootstrapStep = ("functions and sessions", include_str!("sql/session_traits.sql"));

const MESSAGE_PARTITIONS: &str = include_str!("sql/message_partitions.sql");

/// Schemas whose functions are ours to replace, even by ones that return something else.
const SERVICE_SCHEMAS: &[&str] =
    &["auth.", "storage.", "realtime.", "graphql_public.", "supabase_functions.", "pgbouncer."];

/// The number of restarts of a bootstrap that met another one: roles belong to the whole server,
/// and two databases of it may be set up at the same time.
const ATTEMPTS: usize = 8;

impl Database {
    /// Brings roles, schemas and the services' objects up to date; does nothing, for the price of
    /// one query, when they are. Safe to call from several servers at once and on a database that
    /// the hosted service's objects already fill.
    ///
    /// What the login role of an external server may not set up is left out, and tried again with
    /// each call: [`limitations`](Self::limitations) lists it.
    ///
    /// # Errors
    /// [`DatabaseError::Bootstrap`] with the step that failed. The next run repeats it and
    /// everything behind it.
    pub async fn bootstrap(&self, settings: &BootstrapSettings) -> Result<(), DatabaseError> {
        let endpoint = self.endpoint().direct();
        if !endpoint.trusts_any_role() {
            detection::detect(self.endpoint()).await?;
        }
        if self.endpoint().has_direct() {
            detection::check_direct(self.endpoint()).await?;
        }
        let is_pooled = self.endpoint().is_pooled();
        let mut client = self.guarded_administrator().await?;
        if !endpoint.trusts_any_role() {
            limitation::check_login(&client, endpoint).await?;
        }
        let mut names = choose_names(&client, endpoint).await?;
        let mut attempt = 1;
        loop {
            let roles = names.identity() + endpoint.detected().logins().map_or("", Logins::identity);
            let work = BootstrapRun {
                endpoint,
                is_pooled,
                names: &names,
                settings,
                fingerprint: fingerprint(settings, &roles),
            };
            match work.run(&client).await {
                Ok(mut limitations) => {
                    limitations.extend(self.inspect_pooler(&names).await?);
                    if !limitations.is_empty() {
                        warn!(
                            missing = limitations.len(),
                            "the database login lacks rights for a part of the set-up, which an administrator of the server can give"
                        );
                    }
                    self.set_limitations(limitations);
                    return Ok(());
                }
                Err(error) if attempt < ATTEMPTS && met_another(&error) => {
                    debug!(error = %error, attempt, "another bootstrap was at work: starting again");
                    attempt += 1;
                    client = self.guarded_administrator().await?;
                    names = choose_names(&client, endpoint).await?;
                }
                Err(error) => {
                    // Roles belong to the whole server: another project may have taken a name that
                    // was free
                    let Ok(again) = self.guarded_administrator().await else { return Err(error) };
                    client = again;
                    let chosen = choose_names(&client, endpoint).await?;
                    if attempt == ATTEMPTS || *chosen == *names {
                        return Err(error);
                    }
                    debug!(error = %error, attempt, "other roles are needed by now: starting again");
                    attempt += 1;
                    names = chosen;
                }
            }
        }
    }

    /// Finds out which logins a connection pooler admits, where the bootstrap has passed it by.
    async fn inspect_pooler(&self, names: &Names) -> Result<Option<Limitation>, DatabaseError> {
        let endpoint = self.endpoint();
        if !endpoint.has_direct() {
            return Ok(None);
        }
        endpoint.detected().set_names(names.clone());
        Ok(logins::limitation(endpoint, &logins::probe(endpoint).await?))
    }

    /// Returns a connection of its own that acts as `postgres`, for a project's migrations and
    /// seeds.
    ///
    /// # Errors
    /// When the server cannot be reached, or the login role may not act as `postgres`.
    pub async fn migrations(&self) -> Result<MigrationSession, DatabaseError> {
        MigrationSession::open(self.endpoint().direct()).await
    }

    /// Drops the database with everything in it, and sets up an empty one in its place. Connections
    /// to it are ended.
    ///
    /// # Errors
    /// When the login role may not drop the database, or another one cannot be reached to do so
    /// from.
    pub async fn recreate(&self, settings: &BootstrapSettings) -> Result<(), DatabaseError> {
        let name = self.endpoint().database();
        let elsewhere = if name == "template1" { "postgres" } else { "template1" };
        let client = connection::connect_guarded(&self.endpoint().direct().with_database(elsewhere)).await?;
        let quoted = quote::identifier(name);
        let _recreation = self.note_recreation();
        // Before they are ended from the other side, which a pool would find odd
        self.drop_idle_connections();
        let deadline = Instant::now() + STREAMS_END;
        loop {
            end_streams(&client, name).await?;
            match client.batch_execute(&format!("drop database if exists {quoted} with (force)")).await {
                // A stream has begun meanwhile
                Err(error) if error.code() == Some(&sqlstate::OBJECT_IN_USE) && Instant::now() < deadline => {}
                outcome => break outcome?,
            }
        }
        client.batch_execute(&format!("create database {quoted} template template0")).await?;
        drop(client);
        self.drop_idle_connections();
        self.bootstrap(settings).await
    }

    /// Creates the daily partitions of `realtime.messages` from yesterday to three days ahead, and
    /// drops those older than three days. To be called at start and at least once a day.
    ///
    /// # Errors
    /// PostgreSQL's error: `55P03` if the table is locked for more than some seconds. Nothing has
    /// changed then.
    pub async fn maintain_message_partitions(&self) -> Result<(), DatabaseError> {
        let endpoint = self.endpoint().direct();
        let names = acting::names_of(endpoint).await?;
        let client = connection::connect_guarded(&endpoint.for_part(OWNER)).await?;
        client.batch_execute(&names.in_sql(MESSAGE_PARTITIONS)).await?;
        Ok(())
    }
}

async fn choose_names(client: &Client, endpoint: &Endpoint) -> Result<Arc<Names>, DatabaseError> {
    match endpoint.trusts_any_role() {
        true => Ok(Arc::default()),
        false => Ok(endpoint.detected().set_names(Names::choose(client).await?)),
    }
}

/// Checks that the fingerprint's table and its schema belong to the login role or a superuser. The
/// owner of a database can drop it and prepare another one under its name, with a view in the
/// table's place that runs functions.
const IS_OURS: &str = "
    select coalesce(pg_catalog.bool_and(owner.rolsuper or owner.rolname = session_user), false)
      from pg_catalog.pg_class as c
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
      join pg_catalog.pg_roles as owner on owner.oid in (c.relowner, n.nspowner)
     where n.nspname = 'portico' and c.relname = 'bootstrap' and c.relkind = 'r'";

async fn is_done(client: &Client, fingerprint: &str) -> Result<bool, DatabaseError> {
    if !client.query_one(IS_OURS, &[]).await?.get::<_, bool>(0) {
        return Ok(false);
    }
    let rows = client.query("select fingerprint from portico.bootstrap", &[]).await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, String>(0) == fingerprint))
}

/// One run of the bootstrap.
struct BootstrapRun<'a> {
    endpoint: &'a Endpoint,
    /// The services reach the database through a connection pooler.
    is_pooled: bool,
    names: &'a Names,
    settings: &'a BootstrapSettings,
    fingerprint: String,
}

impl BootstrapRun<'_> {
    /// Returns what could not be set up.
    async fn run(&self, client: &Client) -> Result<Vec<Limitation>, DatabaseError> {
        if self.is_done(client).await? && logins::probe(self.endpoint).await?.is_empty() {
            return Ok(Vec::new());
        }
        let lock = HeldLock::acquire(self.endpoint, 7_306_352_187_423).await?;
        let outcome = self.run_locked(client).await;
        if outcome.is_err() {
            let _ = client.batch_execute("rollback").await;
        }
        lock.release().await;
        outcome
    }

    async fn is_done(&self, client: &Client) -> Result<bool, DatabaseError> {
        let is_ours = self.endpoint.trusts_any_role();
        Ok(is_done(client, &self.fingerprint).await? && (is_ours || limitation::none(client).await?))
    }

    async fn run_locked(&self, client: &Client) -> Result<Vec<Limitation>, DatabaseError> {
        let rejections = logins::probe(self.endpoint).await?;
        if rejections.is_empty() && self.is_done(client).await? {
            return Ok(Vec::new());
        }
        let mut limitations = Vec::new();
        self.begin(client).await?;
        self.run_steps(client, FOUNDATIONS).await?;
        if !rejections.is_empty() {
            logins::create(client, self.endpoint, self.names, self.is_pooled).await?;
        }
        commit(client, &mut limitations).await?;
        if !rejections.is_empty() {
            limitations.extend(logins::limitation(self.endpoint, &logins::probe(self.endpoint).await?));
        }
        let services = connection::connect_guarded(&self.endpoint.for_part(OWNER)).await?;
        self.begin(&services).await?;
        self.run_steps(&services, SERVICES).await?;
        commit(&services, &mut limitations).await?;
        self.begin(client).await?;
        self.run_steps(client, RIGHTS).await?;
        versions::apply(client, self.names).await?;
        extensions::create(client, self.names).await?;
        self.run_steps(client, &[VAULT]).await?;
        extensions::renew_vault(client, self.names).await?;
        self.run_steps(client, &[EVENT_TRIGGERS, SESSION_TRAITS]).await?;
        client.batch_execute(&settings_text(self.settings, self.names)).await.map_err(step("database settings"))?;
        client
            .execute(
                "insert into portico.bootstrap (fingerprint) values ($1)
                 on conflict (only_row) do update set fingerprint = excluded.fingerprint, done_at = now()",
                &[&self.fingerprint],
            )
            .await?;
        limitations.extend(limitation::noted(client).await?);
        limitation::keep(client, &limitations).await?;
        client.batch_execute("commit").await?;
        Ok(limitations)
    }

    async fn begin(&self, client: &Client) -> Result<(), DatabaseError> {
        client.batch_execute("begin").await?;
        self.run_steps(client, &[TOOLS]).await
    }

    async fn run_steps(&self, client: &Client, steps: &[BootstrapStep]) -> Result<(), DatabaseError> {
        for (what, text) in steps {
            run_step(client, &self.names.in_sql(text)).await.map_err(step(what))?;
        }
        Ok(())
    }
}

/// Commits, and collects what the login role was refused.
async fn commit(client: &Client, limitations: &mut Vec<Limitation>) -> Result<(), DatabaseError> {
    limitations.extend(limitation::noted(client).await?);
    client.batch_execute("commit").await?;
    Ok(())
}

/// Runs one step. `create or replace` cannot change what an older version of a function returns or
/// how its arguments are called; PostgreSQL's hint names the function, which is dropped then.
async fn run_step(client: &Client, text: &str) -> Result<(), Error> {
    let mut dropped = HashSet::new();
    loop {
        client.batch_execute("savepoint step").await?;
        let error = match client.batch_execute(text).await {
            Ok(()) => return client.batch_execute("release savepoint step").await,
            Err(error) => error,
        };
        let hint = error.as_db_error().filter(|error| *error.code() == SqlState::INVALID_FUNCTION_DEFINITION);
        let function = hint.and_then(|error| error.hint()?.strip_prefix("Use DROP FUNCTION ")?.strip_suffix(" first."));
        match function {
            Some(function) if SERVICE_SCHEMAS.iter().any(|schema| function.starts_with(schema)) => {
                if !dropped.insert(function.to_owned()) {
                    return Err(error);
                }
                client.batch_execute("rollback to savepoint step").await?;
                for function in &dropped {
                    client.batch_execute(&format!("drop function if exists {function}")).await?;
                }
            }
            _ => return Err(error),
        }
    }
}

fn settings_text(settings: &BootstrapSettings, names: &Names) -> String {
    let exposure = match settings.auto_expose_new_tables {
        true => include_str!("sql/expose_new_tables.sql"),
        false => include_str!("sql/keep_new_tables.sql"),
    };
    let mut text = names.in_sql(exposure).into_owned();
    text.push_str(&format!(
        "select pg_temp.set_database_setting('app.settings.jwt_exp', {});",
        quote::literal(&settings.jwt_expiry.as_secs().to_string())
    ));
    if let Some(secret) = &settings.jwt_secret {
        text.push_str(&format!(
            "select pg_temp.set_database_setting('app.settings.jwt_secret', {});",
            quote::literal(secret.expose())
        ));
    }
    text.push_str(&format!("select pg_temp.secure_new_tables({});", settings.secure_new_tables));
    for (role, password) in &settings.role_passwords {
        let verifier = postgres_protocol::password::scram_sha_256(password.expose().as_bytes());
        text.push_str(&format!(
            "alter role {} password {};",
            quote::identifier(names.of(role)),
            quote::literal(&verifier)
        ));
    }
    text
}

impl BootstrapSettings {
    /// Returns the fingerprint of a database that this program has set up with these settings, for
    /// the name of a template.
    pub fn fingerprint(&self) -> String {
        fingerprint(self, "")
    }
}

/// Returns the fingerprint of a database that this program has set up with these settings.
fn fingerprint(settings: &BootstrapSettings, roles: &str) -> String {
    let identity = settings.identity();
    let fixed = [
        include_str!("sql/expose_new_tables.sql"),
        include_str!("sql/keep_new_tables.sql"),
        // The rest of this program's version, for what is code and not SQL
        env!("CARGO_PKG_VERSION"),
    ];
    let steps = [&[TOOLS], FOUNDATIONS, SERVICES, RIGHTS, &[VAULT, EVENT_TRIGGERS, SESSION_TRAITS]];
    let texts = steps
        .concat()
        .into_iter()
        .map(|(_, text)| text)
        .chain(versions::texts())
        .chain(extensions::texts())
        .chain(fixed);
    let mut bytes: Vec<&[u8]> = texts.map(str::as_bytes).collect();
    bytes.push(&identity);
    bytes.push(roles.as_bytes());
    digest(bytes)
}

/// Returns true if another bootstrap ran at the same time. The one that fails starts again and
/// finds the other's work.
fn met_another(error: &DatabaseError) -> bool {
    let concurrent = |error: &Error| error.as_db_error().is_some_and(|error| error.message().contains("concurrently"));
    let source = match error {
        DatabaseError::Bootstrap { source, .. } | DatabaseError::Postgres(source) => source,
        _ => return false,
    };
    concurrent(source)
        || matches!(
            source.code(),
            Some(
                &SqlState::UNIQUE_VIOLATION
                    | &SqlState::DUPLICATE_OBJECT
                    | &SqlState::T_R_DEADLOCK_DETECTED
                    | &SqlState::T_R_SERIALIZATION_FAILURE
                    | &SqlState::LOCK_NOT_AVAILABLE
            )
        )
}
