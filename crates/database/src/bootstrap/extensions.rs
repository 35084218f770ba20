//! Extensions that applications ask for and plain PostgreSQL lacks: small SQL-only ones of the same names.
//!
//! From PostgreSQL 18 on, the server finds them by `extension_control_path`, and `create extension` just works. Before, their
//! objects are created by the bootstrap, and a runner of migrations skips the `create extension` of
//! [`EMULATED`] names.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio_postgres::Client;

use super::session::PERMITTED_EXTENSIONS;
use super::{quote_literal, step};
use crate::error::DatabaseError;

/// One extension that we ship.
struct Shipped {
    name: &'static str,
    version: &'static str,
    control: &'static str,
    script: &'static str,
    /// Where a script without a schema of its own puts its objects.
    schema: &'static str,
    /// A schema-qualified function that exists when the objects do.
    witness: &'static str,
    /// Whether every database has it without asking.
    everywhere: bool,
    /// Whether the real one is preferred where the system has it. The others need a library loaded at the server's start,
    /// or a key file; our server does their work.
    real_wins: bool,
}

macro_rules! shipped {
    ($name:literal, $version:literal, $schema:literal, $witness:literal, $everywhere:literal, $real_wins:literal) => {
        Shipped {
            name: $name,
            version: $version,
            control: include_str!(concat!("../../extensions/", $name, ".control")),
            script: include_str!(concat!("../../extensions/", $name, "--", $version, ".sql")),
            schema: $schema,
            witness: $witness,
            everywhere: $everywhere,
            real_wins: $real_wins,
        }
    };
}

const SHIPPED: &[Shipped] = &[
    shipped!("supabase_vault", "0.3.1", "vault", "vault.create_secret", true, false),
    shipped!("pg_net", "0.19.5", "extensions", "net.http_get", true, false),
    shipped!("pg_cron", "1.6.4", "extensions", "cron.unschedule", false, false),
    shipped!("pgjwt", "0.2.0", "extensions", "extensions.url_encode", false, true),
    shipped!("pg_graphql", "1.5.11", "graphql", "graphql.resolve", false, true),
];

/// The extensions that we ship a look-alike of.
pub const EMULATED: &[&str] = &["supabase_vault", "pg_net", "pg_cron", "pgjwt", "pg_graphql"];

/// Everything the fingerprint must cover.
pub(super) fn texts() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|extension| extension.script)
}

/// Writes the extensions into `<folder>/extension`, where a server with `extension_control_path = '<folder>:$system'` finds
/// them. Files that are there with the right content stay untouched.
///
/// `system`: the server's own folder of control files. Those extensions in C that the hosted service lets `postgres` create
/// are copied from it and marked as trusted, so that a role without superuser rights may create them here, too.
///
/// # Errors
/// When a file can not be written.
pub fn install(folder: &Path, system: Option<&Path>) -> io::Result<()> {
    let folder = folder.join("extension");
    std::fs::create_dir_all(&folder)?;
    for extension in SHIPPED {
        let control = folder.join(format!("{}.control", extension.name));
        if extension.real_wins
            && system.is_some_and(|system| system.join(format!("{}.control", extension.name)).exists())
        {
            match std::fs::remove_file(&control) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => continue,
            }
        }
        write_if_other(&control, extension.control.as_bytes())?;
        write_if_other(
            &folder.join(format!("{}--{}.sql", extension.name, extension.version)),
            extension.script.as_bytes(),
        )?;
    }
    if let Some(system) = system {
        trust_permitted(&folder, system)?;
    }
    Ok(())
}

fn trust_permitted(folder: &Path, system: &Path) -> io::Result<()> {
    let ours = |name: &str| SHIPPED.iter().any(|extension| extension.name == name && !extension.real_wins);
    let names = |name: &str| PERMITTED_EXTENSIONS.contains(&name) && !ours(name);
    for entry in std::fs::read_dir(system)? {
        let entry = entry?;
        let file = entry.file_name();
        let Some(file) = file.to_str() else { continue };
        if let Some(name) = file.strip_suffix(".control").filter(|name| names(name)) {
            let mut control = std::fs::read_to_string(entry.path())?;
            if !control.lines().any(|line| line.trim_start().starts_with("trusted")) {
                control.push_str("\ntrusted = true\n");
            }
            write_if_other(&folder.join(format!("{name}.control")), control.as_bytes())?;
        } else if let Some((name, _)) = file.split_once("--").filter(|(name, _)| names(name)) {
            let mut script = std::fs::read(entry.path())?;
            // A foreign data wrapper belongs to who made it, the superuser; who asked for it wants to make servers with it
            if name == "postgres_fdw" && !file[name.len() + 2..].contains("--") {
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

/// Creates those extensions that every database has, inside the bootstrap's transaction. Where the server does not know
/// our control files, their objects are created without the extension around them, for all that we ship.
pub(super) async fn create(client: &Client) -> Result<(), DatabaseError> {
    let pgcrypto: Option<String> = client
        .query_opt("select extnamespace::regnamespace::text from pg_extension where extname = 'pgcrypto'", &[])
        .await?
        .map(|row| row.get(0));
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
        let needs_pgcrypto = extension.script.contains("@extschema:pgcrypto@");
        let text = match &pgcrypto {
            _ if available => {
                format!("select pg_temp.ensure_extension({}, '{}')", quote_literal(extension.name), extension.schema)
            }
            None if needs_pgcrypto => continue,
            // What this login may not create is told as a limitation, as in the steps written in SQL
            _ => format!(
                "select pg_temp.attempt({}, {})",
                quote_literal(extension.name),
                quote_literal(&as_plain_objects(extension, pgcrypto.as_deref().unwrap_or_default()))
            ),
        };
        client.batch_execute(&text).await.map_err(step(extension.name))?;
    }
    Ok(())
}

/// The script as a server would run it, in the extension's schema and as the owner of the service schemas.
fn as_plain_objects(extension: &Shipped, pgcrypto: &str) -> String {
    let script = extension.script.replace("@extschema@", extension.schema).replace("@extschema:pgcrypto@", pgcrypto);
    format!("set local search_path = {}, pg_temp; {script}; set local search_path = pg_catalog;", extension.schema)
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
