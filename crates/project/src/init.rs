//! Creates a project folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{ProjectError, read_text};
use crate::project::MAX_CONFIG;

const TEMPLATE: &str = include_str!("config_template.toml");
/// The settings of a new project whose defaults are those of the reference, for the sake of
/// existing projects.
const OWN_TEMPLATE: &str = include_str!("portico_template.toml");

/// The files of tools in the folder that do not belong into version control.
const IGNORED: [&str; 5] = [".branches", ".temp", ".env.keys", ".env.local", ".env.*.local"];

/// Writes `supabase/config.toml` below `folder`, `supabase/portico.toml` unless it exists, and in a
/// git work tree completes `supabase/.gitignore`. Returns the files that were written.
///
/// # Errors
/// When the configuration exists and `force` is not given, or a file cannot be written.
pub fn init(folder: &Path, force: bool) -> Result<Vec<PathBuf>, ProjectError> {
    let supabase = folder.join("supabase");
    let config = supabase.join("config.toml");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ProjectError::Io { action: "failed to write", path, source }
    };
    std::fs::create_dir_all(&supabase).map_err(failed(&supabase))?;
    if config.exists() && !force {
        return Err(ProjectError::Exists { path: config });
    }
    std::fs::write(&config, template(folder)).map_err(failed(&config))?;
    let mut written = vec![config];
    let own = supabase.join("portico.toml");
    if !own.exists() {
        std::fs::write(&own, OWN_TEMPLATE).map_err(failed(&own))?;
        written.push(own);
    }

    if folder.ancestors().any(|above| above.join(".git").exists()) {
        let path = supabase.join(".gitignore");
        let present = read_text(&path, MAX_CONFIG)?.unwrap_or_default();
        let missing: Vec<&str> =
            IGNORED.into_iter().filter(|entry| !present.lines().any(|line| line.trim() == *entry)).collect();
        if !missing.is_empty() {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&path).map_err(failed(&path))?;
            let gap = if present.is_empty() || present.ends_with('\n') { "" } else { "\n" };
            let text = format!("{gap}{}\n", missing.join("\n"));
            file.write_all(text.as_bytes()).map_err(failed(&path))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Returns the template with the folder's name as project id.
fn template(folder: &Path) -> String {
    let name = folder.canonicalize().ok().and_then(|folder| {
        let name = folder.file_name()?.to_string_lossy().into_owned();
        Some(crate::config::clean_project_id(&name)).filter(|id| !id.is_empty())
    });
    TEMPLATE.replace("%PROJECT_ID%", name.as_deref().unwrap_or("portico"))
}
