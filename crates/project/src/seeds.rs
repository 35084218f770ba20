//! Seed files: data for a fresh database.
//!
//! A file that ran is recorded with its hash. If it has changed since, only the hash is stored:
//! only a reset runs it again.

use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use portico_database::MigrationSession;

use crate::config::DEFAULT_SEED_PATH;
use crate::error::{ProjectError, read_text};
use crate::glob;
use crate::migrations::{MigrationError, Record, SqlScript, history, run_script};
use crate::progress::{Progress, ProgressSink};
use crate::project::Project;
use crate::sql::MAX_SQL;

/// A seed file of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedFile {
    /// The path from the project root with forward slashes, as the history stores it.
    pub shown: String,
    /// The path of the file.
    pub path: std::path::PathBuf,
}

/// The seed files of a project in their order, and the patterns without a match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeedListing {
    /// The files, without duplicates.
    pub files: Vec<SeedFile>,
    /// Patterns of the user that match nothing, relative to the project root.
    pub unmatched: Vec<String>,
}

const STORED: &str = "
    select hash
      from supabase_migrations.seed_files
     where path = $1";

/// Returns the files that `db.seed.sql_paths` names. None if seeds are off.
///
/// # Errors
/// When a folder cannot be read.
pub fn list(project: &Project) -> Result<SeedListing, ProjectError> {
    let seed = &project.config().db.seed;
    let mut listing = SeedListing::default();
    if !seed.enabled {
        return Ok(listing);
    }
    let base = project.supabase_dir();
    for pattern in &seed.sql_paths {
        let matches = glob::files(&base, pattern).map_err(|source| ProjectError::Io {
            action: "failed to read",
            path: base.join(pattern),
            source,
        })?;
        // A default file need not exist
        if matches.is_empty() && pattern != DEFAULT_SEED_PATH {
            listing.unmatched.push(shown(project.root(), &crate::config::absolute(&base, pattern.into())));
        }
        for path in matches {
            let file = SeedFile { shown: shown(project.root(), &path), path };
            if !listing.files.contains(&file) {
                listing.files.push(file);
            }
        }
    }
    Ok(listing)
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Runs the seed files that have not run on this database yet. Returns the paths of those that ran.
///
/// # Errors
/// When a file cannot be read or a statement fails; the failing file leaves nothing behind.
pub async fn apply(
    session: &mut MigrationSession,
    project: &Project,
    progress: ProgressSink<'_>,
) -> Result<Vec<String>, MigrationError> {
    let listing = list(project)?;
    for pattern in listing.unmatched {
        progress(Progress::Warning { message: format!("no files matched pattern: {pattern}") });
    }
    history::prepare(session).await?;
    let mut ran = Vec::new();
    for file in listing.files {
        let text = read_text(&file.path, MAX_SQL)?.ok_or_else(|| ProjectError::Io {
            action: "failed to read",
            path: file.path.clone(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        let hash = hex::encode(digest(&SHA256, text.as_bytes()));
        let failed = MigrationError::history("read the seed history");
        let stored = session.client().query_opt(STORED, &[&file.shown]).await.map_err(failed)?;
        match stored.map(|row| row.get::<_, String>(0)) {
            Some(stored) if stored == hash => {}
            Some(_) => {
                progress(Progress::UpdatingSeedHash { path: file.shown.clone() });
                let failed = MigrationError::history("record the seed file");
                history::record_seed(session, &file.shown, &hash).await.map_err(failed)?;
            }
            None => {
                progress(Progress::Seeding { path: file.shown.clone() });
                let script = SqlScript { shown: Path::new(&file.shown), text: &text };
                run_script(session, &script, Record::Seed { path: &file.shown, hash: &hash }).await?;
                ran.push(file.shown);
            }
        }
    }
    Ok(ran)
}
