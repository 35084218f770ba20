//! The history tables in schema `supabase_migrations`.

use portico_database::MigrationSession;

use super::error::MigrationError;
use super::files::Migration;
use crate::error::read_text;
use crate::sql::{MAX_SQL, split};

/// Checked first: creating what exists still takes locks, and needs rights that a restored database
/// may not grant.
const EXISTS: &str = "
    select count(*) = 5
      from pg_catalog.pg_attribute as a
      join pg_catalog.pg_class as c on c.oid = a.attrelid
      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
     where n.nspname = 'supabase_migrations'
       and not a.attisdropped
       and (c.relname, a.attname) in (
             ('schema_migrations', 'version'), ('schema_migrations', 'statements'), ('schema_migrations', 'name'),
             ('seed_files', 'path'), ('seed_files', 'hash'))";

const CREATE: &str = "
    set local lock_timeout = '4s';
    create schema if not exists supabase_migrations;
    create table if not exists supabase_migrations.schema_migrations (version text not null primary key);
    alter table supabase_migrations.schema_migrations add column if not exists statements text[];
    alter table supabase_migrations.schema_migrations add column if not exists name text;
    create table if not exists supabase_migrations.seed_files (path text not null primary key, hash text not null);";

const APPLIED: &str = "
    select version
      from supabase_migrations.schema_migrations
     order by version";

/// An old history has versions only.
const HAS_STATEMENTS: &str = "
    select exists (select from pg_catalog.pg_attribute
                    where attrelid = pg_catalog.to_regclass('supabase_migrations.schema_migrations')
                      and attname = 'statements' and not attisdropped)";

const STATEMENTS: &str = "
    select version, statements
      from supabase_migrations.schema_migrations
     where statements is not null";

const INSERT: &str = "
    insert into supabase_migrations.schema_migrations (version, name, statements)
    values ($1, $2, $3)";

const UPSERT: &str = "
    insert into supabase_migrations.schema_migrations (version, name, statements)
    values ($1, $2, $3)
    on conflict (version) do update
       set name = excluded.name,
           statements = excluded.statements";

const DELETE: &str = "
    delete from supabase_migrations.schema_migrations
     where version = any ($1)";

/// Creates the history tables if they are missing. Returns true if they were.
///
/// # Errors
/// When a statement fails.
pub async fn prepare(session: &mut MigrationSession) -> Result<bool, MigrationError> {
    let failed = MigrationError::history("look for the migration history");
    let row = session.client().query_one(EXISTS, &[]).await.map_err(failed)?;
    if row.get(0) {
        return Ok(false);
    }
    // One message, hence one implicit transaction
    session.batch(CREATE).await.map_err(MigrationError::history("create the migration history"))?;
    Ok(true)
}

/// Returns the applied versions. Without a history there are none.
///
/// # Errors
/// When a statement fails.
pub async fn applied(session: &mut MigrationSession) -> Result<Vec<String>, MigrationError> {
    let exists = "select pg_catalog.to_regclass('supabase_migrations.schema_migrations') is not null";
    let failed = MigrationError::history("look for the migration history");
    let row = session.client().query_one(exists, &[]).await.map_err(failed)?;
    if !row.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let failed = MigrationError::history("read the migration history");
    let rows = session.client().query(APPLIED, &[]).await.map_err(failed)?;
    Ok(rows.into_iter().map(|row| row.get(0)).collect())
}

/// Finds the files that were edited after they were applied: their statements differ from those in
/// the history. White space and the ends of statements are ignored, and so are migrations that were
/// recorded without statements.
///
/// # Errors
/// When a file cannot be read or a statement fails.
pub async fn edited<'m>(
    session: &mut MigrationSession,
    files: &'m [Migration],
) -> Result<Vec<&'m Migration>, MigrationError> {
    let failed = MigrationError::history("look for the migration history");
    let row = session.client().query_one(HAS_STATEMENTS, &[]).await.map_err(failed)?;
    if !row.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let rows =
        session.client().query(STATEMENTS, &[]).await.map_err(MigrationError::history("read the migration history"))?;
    let mut edited = Vec::new();
    for row in &rows {
        let (version, statements): (&str, Vec<Option<&str>>) = (row.get(0), row.get(1));
        let Some(file) = files.iter().find(|file| file.version == version) else { continue };
        let Some(text) = read_text(&file.path, MAX_SQL)? else { continue };
        let applied = statements.into_iter().flatten().flat_map(essence);
        if !applied.eq(essence(&text)) {
            edited.push(file);
        }
    }
    edited.sort_by(|left, right| left.file_name.cmp(&right.file_name));
    Ok(edited)
}

/// Returns the characters that count in the comparison.
fn essence(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|character| !character.is_whitespace() && *character != ';')
}

/// Records a migration inside the transaction that applied it.
pub(super) async fn insert(
    session: &MigrationSession,
    version: &str,
    name: &str,
    statements: &[&str],
) -> Result<(), tokio_postgres::Error> {
    session.client().execute(INSERT, &[&version, &name, &statements]).await.map(drop)
}

const RECORD_SEED: &str = "
    insert into supabase_migrations.seed_files (path, hash)
    values ($1, $2)
    on conflict (path) do update
       set hash = excluded.hash";

/// Records a seed file with its hash.
pub(crate) async fn record_seed(
    session: &MigrationSession,
    path: &str,
    hash: &str,
) -> Result<(), tokio_postgres::Error> {
    session.client().execute(RECORD_SEED, &[&path, &hash]).await.map(drop)
}

/// Marks migrations as applied without running them.
///
/// # Errors
/// When a file cannot be read or a statement fails.
pub async fn mark_applied(session: &mut MigrationSession, migrations: &[&Migration]) -> Result<(), MigrationError> {
    prepare(session).await?;
    for migration in migrations {
        let text = read_text(&migration.path, MAX_SQL)?.unwrap_or_default();
        let statements: Vec<&str> = split(&text).into_iter().map(|statement| statement.text).collect();
        let failed = MigrationError::history("update the migration history");
        let row: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&migration.version, &migration.name, &statements];
        session.client().execute(UPSERT, &row).await.map_err(failed)?;
    }
    Ok(())
}

/// Removes versions from the history without undoing them.
///
/// # Errors
/// When a statement fails.
pub async fn mark_reverted(session: &mut MigrationSession, versions: &[String]) -> Result<(), MigrationError> {
    prepare(session).await?;
    let failed = MigrationError::history("update the migration history");
    session.client().execute(DELETE, &[&versions]).await.map_err(failed)?;
    Ok(())
}

/// A row of `migration list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVersion {
    /// The version, if a file has it.
    pub local: Option<String>,
    /// The version, if the history has it.
    pub remote: Option<String>,
    /// The version as a time, if it is one.
    pub time: String,
}

/// Returns files and history side by side, by version.
pub fn compare(files: &[Migration], applied: &[String]) -> Vec<ListedVersion> {
    let mut versions: Vec<&str> =
        files.iter().map(|file| file.version.as_str()).chain(applied.iter().map(String::as_str)).collect();
    versions.sort_unstable();
    versions.dedup();
    let row = |version: &str| ListedVersion {
        local: files.iter().any(|file| file.version == version).then(|| version.to_owned()),
        remote: applied.iter().any(|other| other == version).then(|| version.to_owned()),
        time: shown_time(version),
    };
    versions.into_iter().map(row).collect()
}

/// Formats `20260102030405` as `2026-01-02 03:04:05`; other text is unchanged.
fn shown_time(version: &str) -> String {
    let part = |range: std::ops::Range<usize>| version.get(range).unwrap_or_default();
    let in_range = |range, low: u32, high: u32| part(range).parse().is_ok_and(|number| (low..=high).contains(&number));
    let is_time = version.len() == 14
        && in_range(4..6, 1, 12)
        && in_range(6..8, 1, 31)
        && in_range(8..10, 0, 23)
        && in_range(10..12, 0, 59)
        && in_range(12..14, 0, 59);
    if !is_time {
        return version.to_owned();
    }
    format!("{}-{}-{} {}:{}:{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..12), part(12..14))
}

#[cfg(test)]
mod tests {
    use super::shown_time;

    #[test]
    fn a_version_of_fourteen_digits_is_shown_as_a_time() {
        assert_eq!(shown_time("20260102030405"), "2026-01-02 03:04:05");
        assert_eq!(shown_time("20269902030405"), "20269902030405");
        assert_eq!(shown_time("0001"), "0001");
    }
}
