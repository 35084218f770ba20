//! The migrations of a project: finds them, determines which are pending, and applies them.
//!
//! Each file runs once, in the order of file names, and is recorded in
//! `supabase_migrations.schema_migrations`. A failing file leaves nothing behind.

mod create;
mod extension_advice;
mod files;
pub mod history;
mod plan;
mod script;
mod statement_error;

use portico_database::MigrationSession;

pub use self::create::create;
pub use self::files::{Listing, Migration, list};
pub use self::plan::{PlanError, PlanOptions, plan};
pub(crate) use self::script::{Record, Script, run_script};
pub use self::statement_error::StatementError;

use crate::error::{ProjectError, read_text};
use crate::progress::{Progress, ProgressSink};

/// The largest SQL file, in bytes. PostgreSQL's own limit is near.
pub(crate) const MAX_SQL: u64 = 256 * 1024 * 1024;

/// The reasons for which migrations or seeds cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A file could not be read.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// Files and history do not match.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A statement of a file failed. The file leaves nothing behind.
    #[error(transparent)]
    Statement(#[from] Box<StatementError>),
    /// The history could not be read or written.
    #[error("failed to {action}: {}", crate::migrations::statement_error::message_of(.source))]
    History {
        /// The attempted operation.
        action: &'static str,
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The database could not be reached or prepared.
    #[error(transparent)]
    Database(#[from] portico_database::DatabaseError),
}

impl MigrationError {
    pub(crate) fn history(action: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| Self::History { action, source }
    }
}

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
    run_script(session, &Script { shown: &migration.shown, text: &text }, record).await?;
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
