//! Extensions that applications ask for and plain PostgreSQL lacks: small SQL-only ones of the same
//! names.
//!
//! From PostgreSQL 18 on, the server finds them by `extension_control_path`, and `create extension`
//! just works. Before, their objects are created by the bootstrap, and a runner of migrations skips
//! the `create extension` of [`EMULATED`] names.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio_postgres::Client;

use super::step::step;
use crate::acting::names::Names;
use crate::error::DatabaseError;
use crate::quote;

/// One extension that we ship.
struct ShippedExtension {
    name: &'static str,
    version: &'static str,
    control: &'static str,
    script: &'static str,
    /// The end of the script, which replaces existing objects. The bootstrap runs it again on a
    /// database that has them.
    renewal: &'static str,
    /// The schema for the objects of a script without a schema of its own.
    schema: &'static str,
    /// A schema-qualified function that exists when the objects do.
    witness: &'static str,
    /// Every database has it from the start.
    everywhere: bool,
    /// The real extension is preferred where the system has it. The others need a library loaded at
    /// the server's start, or a key file; our server does their work.
    real_wins: bool,
}

macro_rules! shipped {
    ($name:literal, $version:literal, $schema:literal, $witness:literal, $everywhere:literal, $real_wins:literal) => {
        shipped!($name, $version, $schema, $witness, $everywhere, $real_wins, "")
    };
    ($name:literal, $version:literal, $schema:literal, $witness:literal, $everywhere:literal, $real_wins:literal, $renewal:expr) => {
        ShippedExtension {
            name: $name,
            version: $version,
            control: include_str!(concat!("../../extensions/", $name, ".control")),
            script: include_str!(concat!("../../extensions/", $name, "--", $version, ".sql")),
            renewal: $renewal,
            schema: $schema,
            witness: $witness,
            everywhere: $everywhere,
            real_wins: $real_wins,
        }
    };
}

const VAULT_FUNCTIONS: &str = include_str!("../../extensions/supabase_vault.functions.sql");

const SHIPPED: &[ShippedExtension] = &[
    shipped!("supabase_vault", "0.3.1", "vault", "vault.create_secret", true, false, VAULT_FUNCTIONS),
    shipped!("pg_net", "0.19.5", "extensions", "net.http_get", true, false),
    shipped!("pg_cron", "1.6.4", "extensions", "cron.unschedule", false, false),
    shipped!("pgjwt", "0.2.0", "extensions", "extensions.url_encode", false, true),
    shipped!("pg_graphql", "1.5.11", "graphql", "graphql.resolve", false, true),
];

/// The extensions that we ship a look-alike of.
pub const EMULATED: &[&str] = &["supabase_vault", "pg_net", "pg_cron", "pgjwt", "pg_graphql"];

/// Extensions that the hosted service lets `postgres` create, though they are not marked as
/// trusted: of PostgreSQL's own distribution, and pgvector. Their scripts run as a superuser in a
/// schema that a project may have filled, and are safe there: they only create objects, and call no
/// function. The scripts of other extensions may not be, so a superuser has to create those.
/// `portico.run` has the same list.
///
/// `dblink` is left out: it passes any parameter of a connection to libpq, which from version 18 on
/// appends the keys of TLS to the file that `sslkeylogfile` names. `postgres_fdw` rejects that
/// parameter.
pub(super) const PERMITTED_EXTENSIONS: &[&str] = &[
    "autoinc",
    "bloom",
    "dict_xsyn",
    "earthdistance",
    "insert_username",
    "moddatetime",
    "pg_buffercache",
    "pg_prewarm",
    "pg_stat_statements",
    "pg_walinspect",
    "pgrowlocks",
    "pgstattuple",
    "postgres_fdw",
    "refint",
    "sslinfo",
    "vector",
];

/// Returns everything the fingerprint must cover.
pub(super) fn texts() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().flat_map(|extension| [extension.script, extension.renewal])
}

/// Writes the extensions into `<folder>/extension`, where a server with
/// `extension_control_path = '<folder>:$system'` finds them. Files that are there with the right
/// content stay untouched.
///
/// `sources`: the folders of control files that the server searches besides, in its order. Those
/// extensions in C that the hosted service lets `postgres` create are copied from the first that
/// has them and marked as trusted, so that a role without superuser rights may create them here,
/// too.
///
/// # Errors
/// When a file cannot be written.
pub fn install(folder: &Path, sources: &[PathBuf]) -> io::Result<()> {
    let folder = folder.join("extension");
    std::fs::create_dir_all(&folder)?;
    for extension in SHIPPED {
        let control = folder.join(format!("{}.control", extension.name));
        if extension.real_wins
            && sources.iter().any(|source| source.join(format!("{}.control", extension.name)).exists())
        {
            match std::fs::remove_file(&control) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => continue,
            }
        }
        write_if_other(&control, extension.control.as_bytes())?;
        write_if_other(
            &folder.join(format!("{}--{}.sql", extension.name, extension.version)),
            [extension.script, extension.renewal].concat().as_bytes(),
        )?;
    }
    remove_others(&folder, sources)?;
    for name in trusted_here() {
        let control = format!("{name}.control");
        if let Some(source) = sources.iter().find(|source| source.join(&control).exists()) {
            trust(&folder, source, name)?;
        }
    }
    Ok(())
}

/// Returns the extensions that are copied and marked as trusted, where a source has them.
fn trusted_here() -> impl Iterator<Item = &'static str> {
    let ours = |name: &str| SHIPPED.iter().any(|extension| extension.name == name && !extension.real_wins);
    PERMITTED_EXTENSIONS.iter().copied().filter(move |name| !ours(name))
}

/// Removes copies of extensions that an earlier version trusted and this one does not, and of those
/// that no source has any more.
fn remove_others(folder: &Path, sources: &[PathBuf]) -> io::Result<()> {
    let is_there = |name: &str| {
        EMULATED.contains(&name) || sources.iter().any(|source| source.join(format!("{name}.control")).exists())
    };
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let name = file.strip_suffix(".control").or_else(|| file.split_once("--").map(|(name, _)| name));
        let is_known = |name: &str| PERMITTED_EXTENSIONS.contains(&name) || EMULATED.contains(&name);
        if name.is_none_or(|name| !is_known(name) || !is_there(name)) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn trust(folder: &Path, source: &Path, name: &str) -> io::Result<()> {
    for entry in std::fs::read_dir(source)? {
        let entry = entry?;
        let file = entry.file_name();
        let Some(file) = file.to_str() else { continue };
        if file.strip_suffix(".control") == Some(name) {
            let mut control = std::fs::read_to_string(entry.path())?;
            if !control.lines().any(|line| line.trim_start().starts_with("trusted")) {
                control.push_str("\ntrusted = true\n");
            }
            write_if_other(&folder.join(file), control.as_bytes())?;
        } else if let Some((_, version)) = file.split_once("--").filter(|(other, _)| *other == name) {
            let mut script = std::fs::read(entry.path())?;
            // A foreign data wrapper belongs to the superuser that made it; the project wants to
            // make servers with it
            if name == "postgres_fdw" && !version.contains("--") {
                script.extend(b"\nGRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO postgres WITH GRANT OPTION;\n");
            }
            write_if_other(&folder.join(file), &script)?;
        }
    }
    Ok(())
}

fn write_if_other(path: &Path, content: &[u8]) -> io::Result<()> {
    match std::fs::read(path) {
        Ok(existing) if existing == content => Ok(()),
        _ => {
            std::fs::write(path, content)?;
            // The server may run as another user than we do
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
        }
    }
}

/// Creates those extensions that every database has, inside the bootstrap's transaction. Where the
/// server does not know our control files, their objects are created without the extension around
/// them, for all that we ship.
pub(super) async fn create(client: &Client, names: &Names) -> Result<(), DatabaseError> {
    let pgcrypto: Option<String> = client
        .query_opt("select extnamespace::regnamespace::text from pg_extension where extname = 'pgcrypto'", &[])
        .await?
        .map(|row| row.get(0));
    let login = client
        .query_one(
            "select to_regprocedure('portico.pgp_sym_encrypt_bytea(bytea,text,text)') is not null, pg_temp.is_superuser()",
            &[],
        )
        .await?;
    let (has_encryption, is_superuser): (bool, bool) = (login.get(0), login.get(1));
    let rows = client
        .query(
            "select exists (select from pg_available_extensions as a where a.name = asked.name),
                    exists (select from pg_extension where extname = asked.name),
                    exists (select from pg_proc join pg_namespace as n on n.oid = pronamespace
                             where format('%s.%s', nspname, proname) = asked.witness)
               from unnest($1::text[], $2::text[]) with ordinality as asked(name, witness, place)
              order by place",
            &[
                &SHIPPED.iter().map(|extension| extension.name).collect::<Vec<_>>(),
                &SHIPPED.iter().map(|extension| extension.witness).collect::<Vec<_>>(),
            ],
        )
        .await?;
    for (extension, row) in SHIPPED.iter().zip(rows) {
        let (available, created, present): (bool, bool, bool) = (row.get(0), row.get(1), row.get(2));
        if created || present || (available && !extension.everywhere) {
            continue;
        }
        // Its script would run as a superuser and call functions of a login that is none
        let available = available && (is_superuser || extension.name != "supabase_vault");
        let lacks_pgcrypto = pgcrypto.is_none() && extension.script.contains("@extschema:pgcrypto@");
        let lacks_encryption = !has_encryption && extension.name == "supabase_vault";
        if lacks_pgcrypto && !available || lacks_encryption {
            continue;
        }
        let text = match available {
            true => {
                format!("select pg_temp.ensure_extension({}, '{}')", quote::literal(extension.name), extension.schema)
            }
            // A rejection is reported as a limitation, as in the steps written in SQL
            false => format!(
                "select pg_temp.attempt({}, {})",
                quote::literal(extension.name),
                quote::literal(&as_plain_objects(extension, pgcrypto.as_deref().unwrap_or_default()))
            ),
        };
        client.batch_execute(&names.in_sql(&text)).await.map_err(step(extension.name))?;
    }
    Ok(())
}

/// Checks that there is a vault that the login role may alter.
const RENEWABLE: &str = "
    select exists (select from pg_class where oid = to_regclass('vault.secrets') and pg_has_role(session_user, relowner, 'usage'))";

/// Replaces the functions and grants of a vault that an earlier version has created.
pub(super) async fn renew_vault(client: &Client, names: &Names) -> Result<(), DatabaseError> {
    let exists = client.query_one(RENEWABLE, &[]).await?.get(0);
    match exists {
        true => client.batch_execute(&names.in_sql(VAULT_FUNCTIONS)).await.map_err(step("functions of the vault")),
        false => Ok(()),
    }
}

/// Returns the script as a server would run it, in the extension's schema and as the owner of the
/// service schemas.
fn as_plain_objects(extension: &ShippedExtension, pgcrypto: &str) -> String {
    let script = [extension.script, extension.renewal].concat();
    let script = script.replace("@extschema@", extension.schema).replace("@extschema:pgcrypto@", pgcrypto);
    format!("set local search_path = pg_catalog, pg_temp; {script}")
}

#[cfg(test)]
mod tests {
    use super::{EMULATED, SHIPPED};

    #[test]
    fn control_files_name_the_shipped_version() {
        for extension in SHIPPED {
            assert!(
                extension.control.contains(&format!("default_version = '{}'", extension.version)),
                "{}",
                extension.name
            );
            assert!(extension.control.contains("trusted = true"), "{}", extension.name);
        }
        assert_eq!(SHIPPED.iter().map(|extension| extension.name).collect::<Vec<_>>(), EMULATED);
    }
}
