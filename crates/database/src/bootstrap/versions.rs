//! Our own migrations: schema `portico`, one transaction with everything else the bootstrap does.

use tokio_postgres::Client;

use super::{digest, step};
use crate::acting::names::Names;
use crate::error::DatabaseError;

/// A migration is never edited after release: its checksum is recorded with its name.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_analytics", include_str!("../portico/0001_analytics.sql")),
    ("0003_mail_outbox", include_str!("../portico/0003_mail_outbox.sql")),
    ("0004_vault_key", include_str!("../portico/0004_vault_key.sql")),
    ("0005_wrong_codes", include_str!("../portico/0005_wrong_codes.sql")),
    ("0007_attempts", include_str!("../portico/0007_attempts.sql")),
    ("0008_factors", include_str!("../portico/0008_factors.sql")),
    ("0012_signing_keys", include_str!("../portico/0012_signing_keys.sql")),
    ("0013_link_sessions", include_str!("../portico/0013_link_sessions.sql")),
];

const HISTORY: &str = "
create table if not exists portico.schema_migrations (
  name text primary key,
  checksum text not null,
  applied_at timestamptz not null default now()
);
create table if not exists portico.bootstrap (
  only_row boolean primary key default true check (only_row),
  fingerprint text not null,
  done_at timestamptz not null default now()
);";

/// Returns all migrations as bytes, for the fingerprint.
pub(super) fn texts() -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().map(|(_, text)| *text)
}

/// Applies what is missing, inside the caller's transaction.
pub(super) async fn apply(client: &Client, names: &Names) -> Result<(), DatabaseError> {
    client.batch_execute(HISTORY).await.map_err(step("schema portico"))?;
    let rows = client.query("select name, checksum from portico.schema_migrations", &[]).await?;
    let applied: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    if let Some((name, _)) = applied.iter().find(|(name, _)| MIGRATIONS.iter().all(|(known, _)| known != name)) {
        return Err(DatabaseError::Refused(unknown(name)));
    }
    for (name, text) in MIGRATIONS {
        let checksum = digest([text.as_bytes()]);
        match applied.iter().find(|(known, _)| known == name) {
            Some((_, recorded)) if *recorded == checksum => {}
            Some(_) => {
                return Err(DatabaseError::Refused(unreleased(&format!("its migration {name} has another content"))));
            }
            None => {
                client.batch_execute(&names.in_sql(text)).await.map_err(step(name))?;
                client
                    .execute(
                        "insert into portico.schema_migrations (name, checksum) values ($1, $2)",
                        &[name, &checksum],
                    )
                    .await?;
            }
        }
    }
    Ok(())
}

/// Returns the error of a migration that this version does not know. Names are numbered, and
/// releases only add to the end: an unknown name after all known ones is of a newer version.
fn unknown(name: &str) -> String {
    if MIGRATIONS.iter().any(|(known, _)| *known > name) {
        return unreleased(&format!("its migration {name} was never released"));
    }
    format!(
        "the database was used by a newer version of Portico (it has the migration {name} of schema portico): run that version"
    )
}

fn unreleased(why: &str) -> String {
    format!(
        "the database was set up by an unreleased program (in schema portico, {why}), and cannot be brought up to date: run that \
         program, or begin with an empty database (data of `portico dev` is in the folder .portico)"
    )
}
