//! Commands of the Supabase command line that Portico does not have, and their replacements.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The command as it is typed, without the program's name, and its replacement.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("start", "`portico dev` starts the server"),
    ("restart", "press Ctrl-C where `portico dev` runs, and start it again"),
    ("services", "`portico --version` shows the version: all services are in one program"),
    ("login", "there is no account to log in to; name a database with --db-url"),
    ("logout", "there is no account to log out of"),
    ("link", "there is no project to link; name a database with --db-url"),
    ("unlink", "there is no project to unlink"),
    ("projects", "there are no hosted projects here; name a database with --db-url"),
    ("branches", "there are no hosted projects here"),
    ("orgs", "there are no hosted projects here"),
    ("bootstrap", "`portico init` makes the project folder"),
    ("backups", "pg_dump makes one, with the URL that `portico status` shows"),
    ("domains", "[server] public_url in supabase/portico.toml is the address"),
    ("vanity-subdomains", "[server] public_url in supabase/portico.toml is the address"),
    ("encryption", "the key of the vault is in the file vault.key of the data folder"),
    ("network-bans", "the firewall of the machine decides who connects"),
    ("network-restrictions", "the firewall of the machine decides who connects"),
    ("ssl-enforcement", "DATABASE_URL says it with sslmode; the embedded PostgreSQL has no port for others"),
    ("postgres-config", "settings of PostgreSQL are in [db.settings] of supabase/config.toml"),
    ("snippets", "use psql with the URL that `portico status` shows"),
    ("sso", "SAML is not supported; sign-in with other providers is in [auth.external] of supabase/config.toml"),
    ("secrets", "put secrets into supabase/.env, and read them with env(NAME) in supabase/config.toml"),
    ("config", "settings are read from supabase/config.toml at each start"),
    ("functions", "edge functions are not served yet"),
    ("storage ls", "use the storage client of supabase-js with the secret key"),
    ("storage cp", "use the storage client of supabase-js with the secret key"),
    ("storage mv", "use the storage client of supabase-js with the secret key"),
    ("storage rm", "use the storage client of supabase-js with the secret key"),
    ("test", "run the files with psql: psql \"$DB_URL\" -f supabase/tests/x.sql (`portico status -o env` has DB_URL)"),
    (
        "gen types",
        "not here yet; `portico status -o env` has DB_URL for a generator of types that takes a database URL",
    ),
    ("gen keys", "`portico gen signing-key` makes a key of a file, and `portico keys create` one that servers keep"),
    ("inspect", "connect with psql: the extension pg_stat_statements is there (`portico status -o env` has DB_URL)"),
    ("db start", "`portico dev` starts the database with the server"),
    ("db push", "`portico migration up --db-url URL` applies pending migrations to another database"),
    (
        "db pull",
        "not here yet; pg_dump --schema-only writes a schema that `portico migration new NAME` takes from standard input",
    ),
    ("db diff", "not here yet; write the change with `portico migration new NAME`"),
    ("db dump", "use pg_dump with the URL that `portico status` shows"),
    ("db lint", "not here yet; the extension plpgsql_check does the same where the system has it"),
    ("db query", "use psql with the URL that `portico status` shows"),
    ("db schema", "not here yet; write the change with `portico migration new NAME`"),
    ("migration down", "`portico db reset --last N` leaves out the last N migrations; it deletes the data"),
    ("migration squash", "not here yet; pg_dump --schema-only writes the whole schema"),
    ("migration fetch", "not here yet; the history is in the table supabase_migrations.schema_migrations"),
];

/// Returns the replacement of the command that was not recognised, if it is a known one.
pub(super) fn advice(error: &clap::Error, arguments: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let position = arguments.iter().position(|argument| argument == unknown)?;
    let group = ["db", "migration", "gen", "storage"]
        .into_iter()
        .find(|group| arguments[..position].iter().any(|word| word == group));
    let command = match group {
        Some(group) => format!("{group} {unknown}"),
        None => unknown.clone(),
    };
    let (_, instead) = UNSUPPORTED.iter().find(|(known, _)| *known == command)?;
    Some(format!("`portico {command}` does not exist: {instead}"))
}
