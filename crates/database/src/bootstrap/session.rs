//! The connection on which a project's own SQL runs: migrations, seeds, role files.

use tokio_postgres::{Client, Error};

use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::tls::Tls;

/// `postgres`' own setting, with the literal backslash of the hosted service, given at login so that `reset all` returns to it.
const SEARCH_PATH: &str = r#"-c search_path="\\$user",public,extensions"#;

/// How the connection came to act as `postgres`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disguise {
    /// The login role is `postgres` itself, or may not become it.
    None,
    /// The login role is a superuser that wears `postgres` as session user.
    SuperuserAsSession,
    /// The login role is a member of `postgres` and has set it as role.
    Member,
}

/// One dedicated connection that acts as `postgres`, as the hosted service's migrations do: its role, its search path.
///
/// A few statements that the hosted service allows to `postgres` need a superuser in plain PostgreSQL: event triggers,
/// publications of all tables, and extensions in C. Where the login role is a superuser (always on the embedded server), a
/// [`batch`](Self::batch) that begins with one of them runs as that superuser.
pub struct MigrationSession {
    client: Client,
    disguise: Disguise,
}

impl MigrationSession {
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, DatabaseError> {
        let tls = Tls::new(endpoint.tls(), endpoint.host())?;
        let mut config = endpoint.to_config();
        let options = match config.get_options() {
            Some(given) => format!("{SEARCH_PATH} {given}"),
            None => SEARCH_PATH.to_owned(),
        };
        config.options(options);
        let (client, _driver) = connection::open(endpoint, &config, &tls).await?;
        let row = client
            .query_one(
                "select rolsuper, rolname = 'postgres' from pg_catalog.pg_roles where rolname = session_user",
                &[],
            )
            .await?;
        let (is_superuser, is_postgres): (bool, bool) = (row.get(0), row.get(1));
        let disguise = match (is_postgres, is_superuser) {
            (true, _) => Disguise::None,
            (false, true) => Disguise::SuperuserAsSession,
            (false, false) => Disguise::Member,
        };
        let session = Self { client, disguise };
        session.put_on().await?;
        Ok(session)
    }

    /// The connection itself, for queries of one's own.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a text of one or more statements. Outside a transaction that the caller has begun they are one implicit
    /// transaction, as PostgreSQL does with one message.
    ///
    /// # Errors
    /// PostgreSQL's error; its position counts characters in `sql`.
    pub async fn batch(&mut self, sql: &str) -> Result<(), Error> {
        if self.disguise != Disguise::SuperuserAsSession || !needs_superuser(sql) {
            return self.client.batch_execute(sql).await;
        }
        self.client.batch_execute("reset session authorization").await?;
        let outcome = self.client.batch_execute(sql).await;
        match (self.put_on().await, outcome) {
            (Ok(()), outcome) => outcome,
            // In a failed transaction nothing can be set; its rollback takes back the reset as well
            (Err(_), Err(error)) => Err(error),
            (Err(error), Ok(())) => Err(error),
        }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn begin(&mut self) -> Result<(), Error> {
        self.client.batch_execute("begin").await
    }

    /// Commits what began with [`begin`](Self::begin).
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn commit(&mut self) -> Result<(), Error> {
        self.client.batch_execute("commit").await
    }

    /// Takes back what began with [`begin`](Self::begin).
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn rollback(&mut self) -> Result<(), Error> {
        self.client.batch_execute("rollback").await?;
        self.put_on().await
    }

    /// Returns every setting to what the session began with, so that a `set` in one file does not leak into the next.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn reset(&mut self) -> Result<(), Error> {
        self.client.batch_execute("reset all").await?;
        self.put_on().await
    }

    async fn put_on(&self) -> Result<(), Error> {
        match self.disguise {
            Disguise::None => Ok(()),
            Disguise::SuperuserAsSession => self.client.batch_execute("set session authorization postgres").await,
            Disguise::Member => self.client.batch_execute("set role postgres").await,
        }
    }
}

/// Whether the text begins with a statement that the hosted service lets `postgres` run and plain PostgreSQL only a superuser.
fn needs_superuser(sql: &str) -> bool {
    let words: Vec<String> = words(sql).take(12).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["create" | "alter" | "drop", "event", "trigger", ..] => true,
        ["create" | "alter", "publication", rest @ ..] => {
            rest.windows(3).any(|three| three == ["for", "all", "tables"] || three == ["tables", "in", "schema"])
        }
        ["create", "extension", "if", "not", "exists", name, ..] | ["create", "extension", name, ..] => {
            PERMITTED_EXTENSIONS.contains(name)
        }
        ["alter" | "drop", "extension", ..] => true,
        _ => false,
    }
}

/// Extensions in C that the hosted service lets `postgres` create, though they are not marked as trusted.
pub(super) const PERMITTED_EXTENSIONS: &[&str] = &[
    "autoinc",
    "bloom",
    "dblink",
    "dict_xsyn",
    "earthdistance",
    "hypopg",
    "http",
    "insert_username",
    "moddatetime",
    "pg_buffercache",
    "pg_cron",
    "pg_graphql",
    "pg_net",
    "pg_prewarm",
    "pg_stat_statements",
    "pg_walinspect",
    "pgaudit",
    "pgroonga",
    "pgrouting",
    "pgrowlocks",
    "pgstattuple",
    "pgtap",
    "plpgsql_check",
    "plv8",
    "postgis",
    "postgis_raster",
    "postgis_sfcgal",
    "postgis_tiger_geocoder",
    "postgis_topology",
    "postgres_fdw",
    "refint",
    "rum",
    "sslinfo",
    "supabase_vault",
    "timescaledb",
    "vector",
    "wrappers",
];

/// The words of a statement in lower case, comments and the quotes of identifiers left out.
fn words(sql: &str) -> impl Iterator<Item = String> {
    let mut rest = sql;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start();
            if let Some(comment) = rest.strip_prefix("--") {
                rest = comment.split_once('\n').map_or("", |(_, after)| after);
            } else if let Some(comment) = rest.strip_prefix("/*") {
                rest = comment.split_once("*/").map_or("", |(_, after)| after);
            } else {
                break;
            }
        }
        if rest.is_empty() || rest.starts_with(';') {
            return None;
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let (word, after) = quoted.split_once('"')?;
            rest = after;
            return Some(word.to_owned());
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let end = if end == 0 { rest.chars().next().map_or(1, char::len_utf8) } else { end };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word.to_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::needs_superuser;

    #[test]
    fn statements_of_the_hosted_postgres_are_recognised() {
        for sql in [
            "create event trigger t on ddl_command_end execute function f()",
            "-- why\n/* and */ CREATE EXTENSION IF NOT EXISTS \"moddatetime\" WITH SCHEMA extensions;",
            "create extension postgres_fdw",
            "create publication everything for all tables",
        ] {
            assert!(needs_superuser(sql), "{sql}");
        }
        for sql in [
            "",
            ";",
            "create table event (trigger text)",
            "create extension file_fdw",
            "create extension \"",
            "select 'create event trigger'",
            "create publication p for table a",
            "é",
        ] {
            assert!(!needs_superuser(sql), "{sql}");
        }
    }
}
