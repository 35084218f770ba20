//! The connection on which a project's own SQL runs: migrations, seeds, role files.

use std::borrow::Cow;
use std::ops::Range;

use tokio_postgres::{Client, Error};

use super::extensions::{EMULATED, PERMITTED_EXTENSIONS};
use super::{logins, role_names};
use crate::acting;
use crate::acting::names::{API, OWNER};
use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::lock::HeldLock;
use crate::pooler::cleaning::END_IF_VALUES_ARE_KEPT;
use crate::statement_words::{next_word, words};
use crate::tls::Tls;

/// `postgres`' own setting, with the literal backslash of the hosted service, given at login so
/// that `reset all` returns to it.
const SEARCH_PATH: &str = r#"-c search_path="\\$user",\ public,\ extensions"#;

/// The way in which the connection came to act as the owner of the project's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerAccess {
    /// The session begins as the owner: the login role is the owner, or can be nothing else.
    Login,
    /// The login role is a superuser and has taken on the owner as session user. This occurs on
    /// external servers that do not admit login roles of our own; the project's SQL can return to
    /// the superuser.
    SuperuserAsSession,
    /// The login role is a member of the owner and has set it as role.
    Member,
}

/// One dedicated connection that acts as the owner of the project's objects, as the hosted
/// service's migrations do: its role, its search path. The owner is `postgres`; on an external
/// server where that role is not ours, another one, and statements that name `postgres` as a role
/// are run with its name (and those that name `authenticator` likewise). On the embedded server,
/// and where the server admits our login roles, no statement can turn the session into a mightier
/// role.
///
/// A few statements that the hosted service allows to `postgres` need a superuser in plain
/// PostgreSQL: event triggers, publications of all tables, some extensions, custom settings of the
/// database. A [`batch`](Self::batch) that consists of one of them goes through the function
/// `portico.run`, which any other session of the owner can call as well.
pub struct MigrationSession {
    client: Client,
    endpoint: Endpoint,
    access: OwnerAccess,
    owner: String,
    /// The role that requests of the data API begin as.
    api: String,
    /// Indicates whether `portico.run` exists and this session needs it.
    has_run: bool,
    major: u32,
}

impl MigrationSession {
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, DatabaseError> {
        let names = acting::names_of(endpoint).await?;
        let owner = names.of(OWNER).to_owned();
        if !endpoint.detected().is_admitted(OWNER) {
            // Where nothing was set up in this process, it is not known which logins there are
            logins::probe(endpoint).await?;
        }
        let endpoint = &endpoint.for_part(OWNER);
        let tls = Tls::new(endpoint.tls(), endpoint.host())?;
        let mut config = endpoint.to_config();
        let options = match config.get_options() {
            Some(given) => format!("{SEARCH_PATH} {given}"),
            None => SEARCH_PATH.to_owned(),
        };
        config.options(options);
        let preamble = format!(
            "{END_IF_VALUES_ARE_KEPT}; set local search_path = '\\$user', public, extensions; {}",
            connection::local_role(endpoint)
        );
        let (client, _driver) = connection::open(endpoint, &config, &tls, &preamble).await?;
        let row = client
            .query_one(
                "select rolsuper, pg_catalog.current_setting('server_version_num')::int4 operator(pg_catalog./) 10000
                   from pg_catalog.pg_roles where rolname operator(pg_catalog.=) session_user",
                &[],
            )
            .await?;
        let (is_superuser, major): (bool, i32) = (row.get(0), row.get(1));
        let access = match (endpoint.role() == owner, is_superuser) {
            (true, _) => OwnerAccess::Login,
            (false, true) => OwnerAccess::SuperuserAsSession,
            (false, false) => OwnerAccess::Member,
        };
        let major = u32::try_from(major).unwrap_or_default();
        let api = names.of(API).to_owned();
        let mut session = Self { client, endpoint: endpoint.clone(), access, owner, api, has_run: false, major };
        session.assume_role().await?;
        session.has_run = session.client.query_one(HAS_RUN, &[]).await?.get(0);
        Ok(session)
    }

    /// Returns the connection itself, for queries of one's own.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for an advisory lock of the database, which lasts until it is released.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn lock(&self, key: i64) -> Result<HeldLock, DatabaseError> {
        HeldLock::acquire(&self.endpoint, key).await
    }

    /// Returns PostgreSQL's major version, such as 18.
    pub fn major_version(&self) -> u32 {
        self.major
    }

    /// Runs a text of one or more statements. Outside a transaction that the caller has begun they
    /// are one implicit transaction, as PostgreSQL does with one message. A single statement about
    /// an extension whose objects are there without it (see
    /// [`EMULATED_EXTENSIONS`](crate::EMULATED_EXTENSIONS)) is taken as done. The version that a
    /// single `create extension` asks for is ignored, as on the hosted service.
    ///
    /// # Errors
    /// PostgreSQL's error; its position counts characters in `sql`, or, behind a role that was
    /// renamed, some more.
    pub async fn batch(&mut self, sql: &str) -> Result<(), Error> {
        let mut sql = Cow::Borrowed(sql);
        for (part, role) in [(OWNER, &self.owner), (API, &self.api)] {
            if role != part {
                sql = Cow::Owned(role_names::replaced(&sql, part, role).into_owned());
            }
        }
        let sql = &*without_version(&sql);
        if refers_to_rls_function(sql) && !self.client.query_one(HAS_RLS_FUNCTION, &[]).await?.get::<_, bool>(0) {
            self.client.batch_execute(RLS_FUNCTION).await?;
        }
        match self.execution_mode(sql).await {
            ExecutionMode::Plain => self.client.batch_execute(sql).await,
            ExecutionMode::Skip => Ok(()),
            ExecutionMode::Run => self.client.execute("select portico.run($1)", &[&sql]).await.map(drop),
        }
    }

    async fn execution_mode(&self, sql: &str) -> ExecutionMode {
        let Some(statement) = PrivilegedStatement::read(sql) else { return ExecutionMode::Plain };
        if let Some(name) = &statement.extension {
            // In a failed transaction the question fails, and so will the statement
            let Ok(known) = self.client.query_opt(EXTENSION, &[name]).await else { return ExecutionMode::Plain };
            match known.map(|row| (row.get::<_, bool>(0), row.get::<_, bool>(1))) {
                None if EMULATED.contains(&name.as_str()) => return ExecutionMode::Skip,
                Some((true, _)) if statement.creates => return ExecutionMode::Plain,
                Some((_, true)) if !statement.creates => return ExecutionMode::Plain,
                // The extension is a superuser's and up to date
                _ if statement.only_describes => return ExecutionMode::Skip,
                _ => {}
            }
        }
        if statement.needs_superuser && self.has_run { ExecutionMode::Run } else { ExecutionMode::Plain }
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
        self.assume_role().await
    }

    /// Returns every setting to what the session began with, so that a `set` in one file does not
    /// leak into the next.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn reset(&mut self) -> Result<(), Error> {
        self.client.batch_execute("reset all").await?;
        self.assume_role().await
    }

    async fn assume_role(&self) -> Result<(), Error> {
        match self.access {
            OwnerAccess::Login => Ok(()),
            OwnerAccess::SuperuserAsSession => {
                self.client.batch_execute(&format!("set session authorization {}", self.owner)).await
            }
            OwnerAccess::Member => self.client.batch_execute(&format!("set role {}", self.owner)).await,
        }
    }
}

/// The way in which a text is run.
enum ExecutionMode {
    Plain,
    Run,
    Skip,
}

/// Finds out whether the session needs `portico.run`, and has it.
const HAS_RUN: &str = "
    select not rolsuper and pg_catalog.to_regprocedure('portico.run(text)') is not null
      from pg_catalog.pg_roles where rolname operator(pg_catalog.=) current_user";

/// Returns whether a role without superuser rights may create the extension, and whether the
/// session's role owns it.
const EXTENSION: &str = "
    select bool_or(v.trusted or not v.superuser),
           exists (select from pg_catalog.pg_extension where extname = $1 and extowner = (select oid from pg_catalog.pg_roles where rolname = current_user))
      from pg_catalog.pg_available_extension_versions as v
     where v.name = $1
    having count(*) > 0";

/// A single statement that needs more than PostgreSQL gives to `postgres`, though the hosted
/// service runs it.
#[derive(Debug, PartialEq, Eq)]
struct PrivilegedStatement {
    needs_superuser: bool,
    /// The extension it is about.
    extension: Option<String>,
    creates: bool,
    /// Indicates whether it is an update or a comment, which a migration does not depend on.
    only_describes: bool,
}

impl PrivilegedStatement {
    /// Reads a text. `None`: it is another statement, or more than one, which together might do
    /// anything.
    fn read(sql: &str) -> Option<Self> {
        let mut rest = sql;
        let first: Vec<String> = words(&mut rest).collect();
        if rest.strip_prefix(';').is_some_and(|mut after| words(&mut after).next().is_some() || !after.is_empty()) {
            return None;
        }
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let privileged = Self { needs_superuser: true, extension: None, creates: false, only_describes: false };
        let about = |name: &str, creates, only_describes| {
            let needs_superuser = PERMITTED_EXTENSIONS.contains(&name) || CHECKED_EXTENSIONS.contains(&name);
            let is_ours = needs_superuser || EMULATED.contains(&name);
            is_ours.then(|| Self { needs_superuser, extension: Some(name.to_owned()), creates, only_describes })
        };
        match first.as_slice() {
            // One of all tables belongs to a superuser, so only a superuser drops it
            ["create" | "alter" | "drop", "event", "trigger", ..] | ["drop", "publication", ..] => Some(privileged),
            ["create" | "alter", "publication", rest @ ..]
                if rest
                    .windows(3)
                    .any(|three| matches!(three, ["for", "all", "tables"] | ["tables", "in", "schema"])) =>
            {
                Some(privileged)
            }
            // The project's own settings, whose names cannot be granted in advance
            ["alter", "database" | "role", _, "set", name, ..] if *name == "app" || name.starts_with("app.") => {
                Some(privileged)
            }
            ["create", "extension", "if", "not", "exists", name, ..] | ["create", "extension", name, ..] => {
                about(name, true, false)
            }
            ["drop", "extension", "if", "exists", name, ..] | ["drop", "extension", name, ..] => {
                about(name, false, false)
            }
            ["alter", "extension", name, "update", ..] | ["comment", "on", "extension", name, ..] => {
                about(name, false, true)
            }
            _ => None,
        }
    }
}

/// Further extensions that the hosted service lets `postgres` create. Their scripts may call
/// functions, so `portico.run`, which has the same list, creates them only in schemas without
/// objects of the project.
const CHECKED_EXTENSIONS: &[&str] = &[
    "address_standardizer",
    "address_standardizer_data_us",
    "http",
    "hypopg",
    "index_advisor",
    "pg_hashids",
    "pg_jsonschema",
    "pgrouting",
    "plpgsql_check",
    "plv8",
    "postgis",
    "postgis_raster",
    "postgis_sfcgal",
    "postgis_tiger_geocoder",
    "postgis_topology",
    "rum",
];

/// The function `public.rls_auto_enable`, which new projects of the hosted service have and ours do
/// not.
const RLS_FUNCTION: &str = include_str!("sql/rls_auto_enable.sql");
const HAS_RLS_FUNCTION: &str = "select pg_catalog.to_regprocedure('public.rls_auto_enable()') is not null";

/// Checks for a statement that expects the function to exist.
fn refers_to_rls_function(sql: &str) -> bool {
    if !sql.contains("rls_auto_enable") {
        return false;
    }
    let mut rest = sql;
    let first: Vec<String> = words(&mut rest).take(2).collect();
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    matches!(first.as_slice(), ["revoke" | "grant" | "do", ..] | ["alter" | "comment", _] | ["create", "event"])
}

/// Blanks out the version that a single `create extension` asks for. Dumps and generated migrations
/// name the one of the server they came from, and PostgreSQL refuses any that it has no script for.
fn without_version(sql: &str) -> Cow<'_, str> {
    let mut rest = sql;
    let mut words: Vec<(String, Range<usize>)> = Vec::new();
    while let Some((word, length)) = next_word(&mut rest) {
        let end = sql.len() - rest.len();
        words.push((word, end - length..end));
        if words.len() == 2 && (words[0].0 != "create" || words[1].0 != "extension") {
            return sql.into();
        }
    }
    let is_single = rest.strip_prefix(';').is_none_or(|mut after| next_word(&mut after).is_none() && after.is_empty());
    let name = if words.get(2).is_some_and(|(word, _)| word == "if") { 5 } else { 2 };
    let options = words.get(name + 1..).unwrap_or_default();
    match options.windows(2).find(|pair| pair[0].0 == "version").filter(|_| is_single) {
        // As long as it was, so that PostgreSQL's positions stay right
        Some(clause) => {
            let (start, end) = (clause[0].1.start, clause[1].1.end);
            let blank = " ".repeat(sql[start..end].chars().count());
            [&sql[..start], &blank, &sql[end..]].concat().into()
        }
        None => sql.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKED_EXTENSIONS, EMULATED, PERMITTED_EXTENSIONS, PrivilegedStatement, without_version};

    #[test]
    fn the_function_has_the_same_lists() {
        let text = include_str!("sql/run.sql");
        for (name, list) in
            [("permitted", PERMITTED_EXTENSIONS), ("checked", CHECKED_EXTENSIONS), ("emulated", EMULATED)]
        {
            let line = format!("{name} constant text[] := '{{{}}}';", list.join(","));
            assert!(text.contains(&line), "{line}");
        }
    }

    #[test]
    fn the_version_of_an_extension_is_left_out() {
        for (sql, expected) in [
            (
                "create extension \"vector\" with schema \"a\" version '0.1';",
                "create extension \"vector\" with schema \"a\"              ;",
            ),
            (
                "Create Extension if not exists x VERSION \"1\" cascade",
                "Create Extension if not exists x             cascade",
            ),
            ("create extension version", "create extension version"),
            ("create extension x version '1'; select 1", "create extension x version '1'; select 1"),
            ("create table x (version int)", "create table x (version int)"),
            ("create extension version version 'ä'", "create extension version            "),
        ] {
            assert_eq!(without_version(sql), expected);
        }
    }

    #[test]
    fn statements_of_the_hosted_postgres_are_recognised() {
        for sql in [
            "create event trigger t on ddl_command_end execute function f()",
            "-- why\n/* and */ CREATE EXTENSION IF NOT EXISTS \"moddatetime\" WITH SCHEMA extensions; -- so",
            "create extension postgres_fdw version '1;0';",
            "create publication everything for all tables",
            "drop publication if exists everything",
            "alter database postgres set \"app.settings.own\" = 'x'",
            "alter database postgres set app.own to 'x'",
        ] {
            assert!(PrivilegedStatement::read(sql).is_some_and(|statement| statement.needs_superuser), "{sql}");
        }
        let skipped = PrivilegedStatement::read("comment on extension pg_net is 'a; b'").expect("it is recognised");
        assert_eq!((skipped.extension.as_deref(), skipped.only_describes), (Some("pg_net"), true));
        for sql in [
            "",
            ";",
            "create table event (trigger text)",
            "create extension file_fdw",
            "create extension \"",
            "create extension moddatetime; alter role postgres superuser",
            "create event trigger t on x execute function f();;alter role postgres superuser",
            "alter extension moddatetime add function f()",
            "select 'create event trigger'",
            "create publication p for table a",
            "alter database postgres set log_statement = 'none'",
            "\u{e9}",
        ] {
            assert_eq!(PrivilegedStatement::read(sql), None, "{sql}");
        }
    }
}
