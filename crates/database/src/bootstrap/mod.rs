//! Roles, schemas and the objects that applications and services expect, made once and kept up to date.
//!
//! The SQL lies in `sql/`, one file a step, each one idempotent: it creates what is missing and drops nothing. All steps and
//! our own migrations run in one transaction. A fingerprint of the whole in schema `portico` makes a warm start one query.

mod extensions;
mod session;
mod settings;
mod versions;

use std::collections::HashSet;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};
use tracing::{debug, warn};

pub use extensions::{EMULATED as EMULATED_EXTENSIONS, install as install_extensions};
pub use session::MigrationSession;
pub use settings::BootstrapSettings;

use crate::Database;
use crate::connection;
use crate::error::DatabaseError;

/// The steps in their order.
const STEPS: &[(&str, &str)] = &[
    ("bootstrap tools", include_str!("sql/helpers.sql")),
    ("roles", include_str!("sql/roles.sql")),
    ("schemas and grants", include_str!("sql/schemas.sql")),
    ("types and functions of schema auth", include_str!("sql/auth_types.sql")),
    ("tables of schema auth", include_str!("sql/auth_tables.sql")),
    ("access to schema auth", include_str!("sql/auth_access.sql")),
    ("extensions", include_str!("sql/extensions.sql")),
    ("tables of schema storage", include_str!("sql/storage_tables.sql")),
    ("functions of schema storage", include_str!("sql/storage_functions.sql")),
    ("listings of schema storage", include_str!("sql/storage_lists.sql")),
    ("access to schema storage", include_str!("sql/storage_access.sql")),
    ("tables of schema realtime", include_str!("sql/realtime_tables.sql")),
    ("functions of schema realtime", include_str!("sql/realtime_functions.sql")),
    ("changes of schema realtime", include_str!("sql/realtime_changes.sql")),
    ("access to schema realtime", include_str!("sql/realtime_access.sql")),
    ("platform schemas", include_str!("sql/platform.sql")),
    ("rights of postgres", include_str!("sql/powers.sql")),
    ("event triggers", include_str!("sql/watch.sql")),
    ("partitions of realtime.messages", MESSAGE_PARTITIONS),
];

/// Behind all steps that make functions.
const SESSION_TRAITS: &str = include_str!("sql/session_traits.sql");
const MESSAGE_PARTITIONS: &str = include_str!("sql/message_partitions.sql");

/// Schemas whose functions are ours to replace, even by ones that return something else.
const SERVICE_SCHEMAS: &[&str] =
    &["auth.", "storage.", "realtime.", "graphql_public.", "supabase_functions.", "pgbouncer."];

/// How often a bootstrap starts again that met another one: roles belong to the whole server, and two databases of it may
/// be set up at the same time.
const ATTEMPTS: usize = 8;

impl Database {
    /// Brings roles, schemas and the services' objects up to date; does nothing, for the price of one query, when they are.
    /// Safe to call from several servers at once and on a database that the hosted service's objects already fill.
    ///
    /// # Errors
    /// [`DatabaseError::Bootstrap`] with the step that failed; nothing of this run stays then.
    pub async fn bootstrap(&self, settings: &BootstrapSettings) -> Result<(), DatabaseError> {
        let mut client = self.administrator().await?;
        let fingerprint = fingerprint(settings);
        let mut attempt = 1;
        loop {
            if is_done(&client, &fingerprint).await? {
                return Ok(());
            }
            match run(&client, settings, &fingerprint).await {
                Ok(()) => return Ok(()),
                Err(error) if attempt < ATTEMPTS && met_another(&error) => {
                    debug!(%error, attempt, "another bootstrap was at work: starting again");
                    attempt += 1;
                    client = self.administrator().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection of its own that acts as `postgres`, for a project's migrations and seeds.
    ///
    /// # Errors
    /// When the server can not be reached, or the login role may not act as `postgres`.
    pub async fn migrations(&self) -> Result<MigrationSession, DatabaseError> {
        MigrationSession::open(self.endpoint()).await
    }

    /// Drops the database with everything in it, and sets up an empty one in its place. Connections to it are ended.
    ///
    /// # Errors
    /// When the login role may not drop the database, or another one can not be reached to do so from.
    pub async fn recreate(&self, settings: &BootstrapSettings) -> Result<(), DatabaseError> {
        let name = self.endpoint().database();
        let elsewhere = if name == "template1" { "postgres" } else { "template1" };
        let client = connection::connect(&self.endpoint().with_database(elsewhere)).await?;
        let quoted = quote_identifier(name);
        let _recreation = self.note_recreation();
        // Before they are ended from the other side, which a pool would find odd
        self.drop_idle_connections();
        client.batch_execute(&format!("drop database if exists {quoted} with (force)")).await?;
        client.batch_execute(&format!("create database {quoted} template template0")).await?;
        drop(client);
        self.drop_idle_connections();
        self.bootstrap(settings).await
    }

    /// Creates the daily partitions of `realtime.messages` from yesterday to three days ahead, and drops those older than
    /// three days. To be called at start and at least once a day.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn maintain_message_partitions(&self) -> Result<(), DatabaseError> {
        let client = self.service().await?;
        client.batch_execute(MESSAGE_PARTITIONS).await?;
        Ok(())
    }
}

async fn is_done(client: &Client, fingerprint: &str) -> Result<bool, DatabaseError> {
    match client.query("select fingerprint from portico.bootstrap", &[]).await {
        Ok(rows) => Ok(rows.first().is_some_and(|row| row.get::<_, String>(0) == fingerprint)),
        Err(error) if matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME)) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

async fn run(client: &Client, settings: &BootstrapSettings, fingerprint: &str) -> Result<(), DatabaseError> {
    // The lock is of this database and ends with the transaction
    client.batch_execute("begin; select pg_advisory_xact_lock(7306352187423)").await?;
    if is_done_in_transaction(client, fingerprint).await? {
        return Ok(client.batch_execute("commit").await?);
    }
    for (what, text) in STEPS {
        run_step(client, text).await.map_err(step(what))?;
    }
    versions::apply(client).await?;
    extensions::create(client).await?;
    run_step(client, SESSION_TRAITS).await.map_err(step("functions and sessions"))?;
    apply_settings(client, settings).await.map_err(step("database settings"))?;
    client
        .execute(
            "insert into portico.bootstrap (fingerprint) values ($1)
             on conflict (only_row) do update set fingerprint = excluded.fingerprint, done_at = now()",
            &[&fingerprint],
        )
        .await?;
    let limitations = client.query("select what, why from pg_temp.portico_limitation order by what", &[]).await?;
    client.batch_execute("commit").await?;
    for row in limitations {
        let (what, why): (&str, &str) = (row.get(0), row.get(1));
        warn!(what, why, "the database login may not set this up; a superuser can do it and start the server again");
    }
    Ok(())
}

/// Runs one step. `create or replace` can not change what an older version of a function returns or how its arguments are
/// called; PostgreSQL's hint names the function, which is dropped then.
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

async fn is_done_in_transaction(client: &Client, fingerprint: &str) -> Result<bool, DatabaseError> {
    let exists: bool = client.query_one("select to_regclass('portico.bootstrap') is not null", &[]).await?.get(0);
    Ok(exists && is_done(client, fingerprint).await?)
}

async fn apply_settings(client: &Client, settings: &BootstrapSettings) -> Result<(), Error> {
    let mut text = String::from(if settings.auto_expose_new_tables {
        include_str!("sql/expose_new_tables.sql")
    } else {
        include_str!("sql/keep_new_tables.sql")
    });
    text.push_str(&format!(
        "select pg_temp.set_database_setting('app.settings.jwt_exp', {});",
        quote_literal(&settings.jwt_expiry.as_secs().to_string())
    ));
    if let Some(secret) = &settings.jwt_secret {
        text.push_str(&format!(
            "select pg_temp.set_database_setting('app.settings.jwt_secret', {});",
            quote_literal(secret.expose())
        ));
    }
    if let Some(key) = &settings.vault_key {
        text.push_str(&format!("select pg_temp.set_vault_key({});", quote_literal(key.expose())));
    }
    text.push_str(&format!("select pg_temp.secure_new_tables({});", settings.secure_new_tables));
    for (role, password) in &settings.role_passwords {
        let verifier = postgres_protocol::password::scram_sha_256(password.expose().as_bytes());
        text.push_str(&format!("alter role {} password {};", quote_identifier(role), quote_literal(&verifier)));
    }
    client.batch_execute(&text).await
}

/// What a database is at that this program has set up with these settings.
fn fingerprint(settings: &BootstrapSettings) -> String {
    let identity = settings.identity();
    let fixed = [
        include_str!("sql/expose_new_tables.sql"),
        include_str!("sql/keep_new_tables.sql"),
        SESSION_TRAITS,
        // The rest of this program's version, for what is code and not SQL
        env!("CARGO_PKG_VERSION"),
    ];
    let texts = STEPS.iter().map(|(_, text)| *text).chain(versions::texts()).chain(extensions::texts()).chain(fixed);
    let mut bytes: Vec<&[u8]> = texts.map(str::as_bytes).collect();
    bytes.push(&identity);
    digest(bytes)
}

/// Whether two bootstraps met: the loser starts again and finds the winner's work.
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

/// Names the step in an error.
fn step(what: &str) -> impl FnOnce(Error) -> DatabaseError {
    let step = format!("setting up the database ({what})");
    move |source| DatabaseError::Bootstrap { step, source }
}

fn digest<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text);
    }
    hex::encode(context.finish())
}

/// An identifier as SQL text.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text literal as SQL text, the same whatever `standard_conforming_strings` says.
fn quote_literal(text: &str) -> String {
    match text.contains('\\') {
        true => format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}
