//! `migration new`

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use time::OffsetDateTime;
use time::macros::format_description;

use crate::error::ProjectError;
use crate::project::Project;

/// The longest name of a migration; file systems allow 255 bytes.
const MAX_NAME: usize = 200;

/// Creates `supabase/migrations/<now>_<name>.sql` with the given content. Returns the path from the
/// project root.
///
/// # Errors
/// When the name cannot be part of a file name, or the file exists or cannot be written.
pub fn create(project: &Project, name: &str, now: OffsetDateTime, content: &str) -> Result<PathBuf, ProjectError> {
    let is_plain = !name.contains(['/', '\\']) && !name.chars().any(char::is_control);
    if !is_plain || name.trim().is_empty() || name.len() > MAX_NAME {
        return Err(ProjectError::InvalidName { name: name.to_owned() });
    }
    let format = format_description!("[year][month][day][hour][minute][second]");
    let version = now
        .to_offset(time::UtcOffset::UTC)
        .format(&format)
        .map_err(|_| ProjectError::InvalidName { name: now.to_string() })?;
    let shown = PathBuf::from(format!("supabase/migrations/{version}_{name}.sql"));
    let path = project.root().join(&shown);
    let failed = |source| ProjectError::Io { action: "failed to create", path: path.clone(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(content.as_bytes()).map_err(failed)?;
    Ok(shown)
}
