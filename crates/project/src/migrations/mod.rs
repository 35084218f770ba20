//! The migrations of a project: finds them, determines which are pending, and applies them.
//!
//! Each file runs once, in the order of file names, and is recorded in
//! `supabase_migrations.schema_migrations`. A failing file leaves nothing behind.

mod create;
mod error;
mod extension_advice;
mod files;
pub mod history;
mod plan;
mod run;
mod script;
mod statement_error;

use portico_database::MigrationSession;

pub use self::create::create;
pub use self::error::MigrationError;
pub use self::files::{Listing, Migration, list};
pub use self::plan::{PlanError, PlanOptions, plan};
pub(crate) use self::run::{Record, run_script};
pub(crate) use self::script::SqlScript;
pub use self::statement_error::StatementError;

use crate::error::{ProjectError, read_text};
use crate::progress::{Progress, ProgressSink};
use crate::sql::MAX_SQL;

/// Applies one migration and records it.
///
/// # Errors
/// When the file cannot be read or a statement fails; the file leaves nothing behind.
pub async fn apply_one(
    session: &mut MigrationSession,
    migration: &Migration,
    progress: ProgressSink<'_>,
) -> Result<(), MigrationError> {
    progress(Progress::ApplyingMigration { file_name: migration.file_name.clone() });
    let text = read_text(&migration.path, MAX_SQL)?.ok_or_else(|| ProjectError::Io {
        action: "failed to read",
        path: migration.path.clone(),
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    // Settings of an earlier file must not leak into this one
    session.reset().await.map_err(MigrationError::history("reset the connection"))?;
    let record = Record::Migration { version: &migration.version, name: &migration.name };
    run_script(session, &SqlScript { shown: &migration.shown, text: &text }, record).await?;
    Ok(())
}

/// Applies migrations in the given order, each recorded with its statements. Stops at the first
/// failure.
///
/// # Errors
/// When the history cannot be prepared, a file cannot be read or a statement fails.
pub async fn apply<'m>(
    session: &mut MigrationSession,
    migrations: impl IntoIterator<Item = &'m Migration>,
    progress: ProgressSink<'_>,
) -> Result<Vec<String>, MigrationError> {
    history::prepare(session).await?;
    let mut applied = Vec::new();
    for migration in migrations {
        apply_one(session, migration, progress).await?;
        applied.push(migration.version.clone());
    }
    Ok(applied)
}
