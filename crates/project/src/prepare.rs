//! Brings a database to the state that the project describes: at each start, and at a reset.
//!
//! The database has its roles and schemas already; this adds vault secrets, `roles.sql`, migrations
//! and seeds, in this order.

use std::path::Path;

use portico_database::{BootstrapSettings, Database, MigrationSession};

use crate::error::read_text;
use crate::migrations::{
    self, Listing, Migration, MigrationError, PlanOptions, Record, SqlScript, history, run_script,
};
use crate::progress::{Progress, ProgressSink};
use crate::project::Project;
use crate::seeds;
use crate::sql::MAX_SQL;
use crate::unprotected::unprotected;

/// The options of a preparation.
#[derive(Debug, Clone)]
pub struct PrepareOptions {
    /// The migrations to apply.
    pub plan: PlanOptions,
    /// True if a fresh database is seeded.
    pub seed: bool,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self { plan: PlanOptions::default(), seed: true }
    }
}

/// The outcome of a preparation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreparedDatabase {
    /// True if the database had not been prepared before.
    pub is_fresh: bool,
    /// The versions that were applied.
    pub applied: Vec<String>,
    /// The seed files that ran.
    pub seeded: Vec<String>,
}

/// The lock of the preparation: several servers may start on one database, and one of them prepares
/// it.
const LOCK: i64 = 7_306_352_187_424;

/// The progress of the first preparation is stored as a comment on the history: a start that was
/// interrupted is continued by the next, and a prepared database is never seeded again.
const BEGUN: &str = "comment on table supabase_migrations.seed_files is 'portico: preparing'";
const DONE: &str = "comment on table supabase_migrations.seed_files is 'portico: prepared'";

/// A history with rows and without the comment comes from a restored or hosted database, which has
/// its data. One without rows is new.
const IS_FRESH: &str = "
    select coalesce(
             pg_catalog.obj_description('supabase_migrations.seed_files'::pg_catalog.regclass, 'pg_class')
               = 'portico: preparing',
             not exists (select from supabase_migrations.schema_migrations)
               and not exists (select from supabase_migrations.seed_files))";

/// Applies what is pending. On a fresh database also vault secrets, `roles.sql` and seeds. Later
/// calls apply new migrations only.
///
/// # Errors
/// When files and history do not match, a file cannot be read, or a statement fails. Files that
/// were applied before stay; the failing file leaves nothing behind.
pub async fn prepare(
    session: &mut MigrationSession,
    project: &Project,
    options: &PrepareOptions,
    progress: ProgressSink<'_>,
) -> Result<PreparedDatabase, MigrationError> {
    let lock = session.lock(LOCK).await?;
    let outcome = prepare_locked(session, project, options, progress).await;
    lock.release().await;
    outcome
}

async fn prepare_locked(
    session: &mut MigrationSession,
    project: &Project,
    options: &PrepareOptions,
    progress: ProgressSink<'_>,
) -> Result<PreparedDatabase, MigrationError> {
    let files = migrations::list(project)?;
    // Before anything is written: a plan that cannot be carried out changes nothing
    let applied = history::applied(session).await?;
    migrations::plan(&files.migrations, &applied, &options.plan)?;

    let mut prepared = PreparedDatabase { is_fresh: begin(session).await?, ..PreparedDatabase::default() };
    if prepared.is_fresh {
        store_vault_secrets(session, project, progress).await?;
        run_roles(session, project, progress).await?;
    }
    if project.config().db.migrations.enabled {
        report(&files, progress);
        let pending = migrations::plan(&files.migrations, &applied, &options.plan)?;
        prepared.applied = migrations::apply(session, pending, progress).await?;
    }
    warn_of_edited(session, &files.migrations, progress).await?;
    if prepared.is_fresh {
        if options.seed {
            prepared.seeded = seeds::apply(session, project, progress).await?;
        }
        session.batch("set role postgres").await.map_err(MigrationError::history("return to role postgres"))?;
        session.batch(DONE).await.map_err(MigrationError::history("record the seeding"))?;
    }
    // The next use of the session begins in the same state as this one
    session.reset().await.map_err(MigrationError::history("reset the connection"))?;
    warn_of_unprotected(session, project, progress).await?;
    Ok(prepared)
}

/// Reports files that were edited after they were applied.
///
/// # Errors
/// When a file cannot be read or a statement fails.
pub async fn warn_of_edited(
    session: &mut MigrationSession,
    files: &[Migration],
    progress: ProgressSink<'_>,
) -> Result<(), MigrationError> {
    for file in history::edited(session, files).await? {
        let message = format!(
            "{} was edited after it was applied, and the database does not have the change: put it into a new migration, or \
             run `portico db reset`, which deletes the data",
            file.shown.display()
        );
        progress(Progress::Warning { message });
    }
    Ok(())
}

/// Reports tables of the exposed schemas that have no row-level security.
///
/// # Errors
/// When a statement fails.
pub async fn warn_of_unprotected(
    session: &MigrationSession,
    project: &Project,
    progress: ProgressSink<'_>,
) -> Result<(), MigrationError> {
    let failed = MigrationError::history("look for tables without row-level security");
    if let Some(tables) = unprotected(session.client(), &project.config().api.schemas).await.map_err(failed)? {
        progress(Progress::Warning { message: tables.to_string() });
    }
    Ok(())
}

/// Creates the history. Returns true if the database is fresh, or was when its preparation was
/// interrupted.
async fn begin(session: &mut MigrationSession) -> Result<bool, MigrationError> {
    history::prepare(session).await?;
    let failed = MigrationError::history("look for the migration history");
    let is_fresh: bool = session.client().query_one(IS_FRESH, &[]).await.map_err(failed)?.get(0);
    if is_fresh {
        session.batch(BEGUN).await.map_err(MigrationError::history("prepare the migration history"))?;
    }
    Ok(is_fresh)
}

fn report(files: &Listing, progress: ProgressSink<'_>) {
    for file_name in &files.skipped {
        progress(Progress::SkippingMigration { file_name: file_name.clone() });
    }
    if let Some(remark) = &files.remark {
        progress(Progress::Warning { message: remark.clone() });
    }
}

/// Runs `supabase/roles.sql`, if it exists.
async fn run_roles(
    session: &mut MigrationSession,
    project: &Project,
    progress: ProgressSink<'_>,
) -> Result<(), MigrationError> {
    let shown = Path::new("supabase/roles.sql");
    if let Some(text) = read_text(&project.root().join(shown), MAX_SQL)? {
        progress(Progress::SeedingRoles);
        run_script(session, &SqlScript { shown, text: &text }, Record::Nothing).await?;
    }
    Ok(())
}

const VAULT: &str = "
    select pg_catalog.to_regprocedure('vault.create_secret(text,text,text,uuid)') is not null
       and pg_catalog.to_regprocedure('vault.update_secret(uuid,text,text,text,uuid)') is not null";

const SECRET_ID: &str = "
    select id
      from vault.secrets
     where name = $1";

/// Stores the secrets of `[db.vault]`: new names are created, known ones updated.
///
/// # Errors
/// When a statement fails. The error does not contain the secret.
pub async fn store_vault_secrets(
    session: &mut MigrationSession,
    project: &Project,
    progress: ProgressSink<'_>,
) -> Result<(), MigrationError> {
    let secrets = &project.config().db.vault;
    if secrets.is_empty() {
        return Ok(());
    }
    progress(Progress::UpdatingVault);
    let failed = || MigrationError::history("store the vault secrets");
    let client = session.client();
    if !client.query_one(VAULT, &[]).await.map_err(failed())?.get::<_, bool>(0) {
        let message = "the database has no vault: the secrets of [db.vault] are not stored".to_owned();
        progress(Progress::Warning { message });
        return Ok(());
    }
    for (name, secret) in secrets {
        let value = secret.expose();
        let known = client.query_opt(SECRET_ID, &[name]).await.map_err(failed())?;
        match known {
            Some(row) => {
                let id: Option<uuid::Uuid> = row.get(0);
                let update = "select vault.update_secret($1, $2)";
                client.execute(update, &[&id, &value]).await.map_err(failed())?;
            }
            None => {
                let create = "select vault.create_secret($1, $2)";
                client.execute(create, &[&value, name]).await.map_err(failed())?;
            }
        }
    }
    Ok(())
}

/// Drops the database and prepares it from the start. The caller stops what uses the database
/// before, and starts it afterwards.
///
/// # Errors
/// Those of [`prepare`], and when the database cannot be created again.
pub async fn reset(
    database: &Database,
    bootstrap: &BootstrapSettings,
    project: &Project,
    options: &PrepareOptions,
    progress: ProgressSink<'_>,
) -> Result<PreparedDatabase, MigrationError> {
    // A version that does not exist must not cost the data
    migrations::plan(&migrations::list(project)?.migrations, &[], &options.plan)?;
    progress(Progress::Resetting { version: options.plan.up_to.clone() });
    progress(Progress::Recreating);
    database.recreate(bootstrap).await?;
    progress(Progress::Initialising);
    let mut session = database.migrations().await?;
    prepare(&mut session, project, options, progress).await
}

/// Returns the current git branch of a folder, which the last line of a reset names.
pub fn current_branch(root: &Path) -> String {
    let head = root.ancestors().find_map(|folder| read_text(&folder.join(".git/HEAD"), 4096).ok().flatten());
    head.as_deref()
        .and_then(|head| head.trim().strip_prefix("ref: refs/heads/"))
        .map_or_else(|| "main".to_owned(), str::to_owned)
}
