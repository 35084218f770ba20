//! The data folder of a project, and the commands that only need to know it.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use portico_database::cluster;
use portico_project::portico_toml::Settings;
use portico_project::{LoadOptions, Project, ProjectError};

use super::global::Global;
use crate::control::{self, ControlRequest};

#[derive(Debug, Args)]
pub(super) struct StopOptions {
    /// Delete the data as well
    #[arg(long)]
    no_backup: bool,
}

#[derive(Debug, Args)]
pub(super) struct InitOptions {
    /// Replace a configuration that is there already
    #[arg(long)]
    force: bool,
}

/// Reads the project folder and prints its warnings to standard error.
pub(super) fn load(options: LoadOptions) -> anyhow::Result<Project> {
    let project = Project::load(options)?;
    for warning in project.warnings() {
        say(&format!("WARN: {warning}"));
    }
    Ok(project)
}

/// Reads the project's `supabase/portico.toml` and prints its warnings to standard error.
pub(super) fn settings(project: &Project) -> anyhow::Result<Settings> {
    let settings = Settings::load(project)?;
    for warning in &settings.warnings {
        say(&format!("WARN: {warning}"));
    }
    Ok(settings)
}

/// Prints a line of progress to standard error, a warning in colour.
pub(super) fn say(line: &str) {
    let style = anstyle::Style::new().fg_color(Some(anstyle::AnsiColor::Yellow.into()));
    match line.strip_prefix("WARN: ") {
        Some(warning) => anstream::eprintln!("{style}WARN:{style:#} {warning}"),
        None => anstream::eprintln!("{line}"),
    }
}

/// Returns the data folder of the development server: `.portico` in the project.
pub(super) fn data_folder(global: &Global) -> anyhow::Result<PathBuf> {
    let options = LoadOptions { workdir: global.workdir.clone(), ..LoadOptions::default() };
    Ok(Project::find_root(&options)?.join(".portico"))
}

/// Returns the data folder of the server that runs in the project.
pub(super) async fn of_running_server(global: &Global) -> anyhow::Result<PathBuf> {
    let development = data_folder(global)?;
    let project = load(LoadOptions { workdir: global.workdir.clone(), ..LoadOptions::default() })?;
    let production = Settings::load(&project)?.database.data;
    match (control::running(&development).await, control::running(&production).await) {
        (Some(_), Some(_)) => bail!(
            "two servers run in this folder: choose one with --data {} or --data {}",
            development.display(),
            production.display()
        ),
        (_, Some(_)) => Ok(production),
        // The call says that no server runs
        _ => Ok(development),
    }
}

/// The folder of the embedded cluster within the data folder.
pub(super) const CLUSTER: &str = "postgres";

/// Creates a data folder that other users cannot enter and that git ignores. An existing folder
/// keeps its mode, which the operator chose.
pub(super) fn make_data_folder(path: &Path) -> anyhow::Result<()> {
    cluster::make_folder(path, CLUSTER)
        .with_context(|| format!("could not make the data folder {}", path.display()))?;
    let ignore = path.join(".gitignore");
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&ignore) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        opened => opened
            .and_then(|mut file| file.write_all(b"*\n"))
            .with_context(|| format!("could not write {}", ignore.display())),
    }
}

/// Creates the data folder of a development server. An existing folder that is open to other users
/// is closed to them, including files of earlier versions in it.
pub(super) fn make_development_folder(path: &Path) -> anyhow::Result<()> {
    make_data_folder(path)?;
    cluster::close_folder(path, CLUSTER).with_context(|| format!("could not close {} to other users", path.display()))
}

pub(super) async fn stop(global: &Global, options: StopOptions) -> anyhow::Result<()> {
    let data = data_folder(global)?;
    let stopped = control::call(&data, &ControlRequest::Stop, |_| {}).await;
    match stopped {
        Ok(_) => anstream::println!("Stopped portico local development setup."),
        // No server runs, but there may be data to delete
        Err(control::ControlError::NotRunning(_)) if options.no_backup => {}
        Err(error) => return Err(error.into()),
    }
    if options.no_backup && data.exists() {
        fs::remove_dir_all(&data).with_context(|| format!("could not delete {}", data.display()))?;
        anstream::println!("Deleted {}.", data.display());
    }
    Ok(())
}

pub(super) fn init(global: &Global, options: &InitOptions) -> anyhow::Result<()> {
    let root = match &global.workdir {
        Some(folder) if !folder.is_dir() => return Err(ProjectError::NoFolder { path: folder.clone() }.into()),
        Some(folder) => folder.clone(),
        None => std::env::current_dir()?,
    };
    for path in portico_project::init(&root, options.force)? {
        anstream::eprintln!("Wrote {}", path.display());
    }
    anstream::println!("Finished portico init.");
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn only_its_owner_can_enter_a_development_folder_even_if_it_was_open_before() {
        let project = tempfile::tempdir().unwrap();
        let data = project.path().join(".portico");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(data.join("google-accounts.json"), "{}").unwrap();
        fs::set_permissions(data.join("google-accounts.json"), fs::Permissions::from_mode(0o644)).unwrap();
        for _ in 0..2 {
            make_development_folder(&data).unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
            assert_eq!(mode(&data) & 0o067, 0, "as root, a group may pass through");
            assert_eq!(mode(&data.join("google-accounts.json")), 0o600);
            assert_eq!(mode(&data.join(".gitignore")), 0o600);
            assert_eq!(fs::read_to_string(data.join(".gitignore")).unwrap(), "*\n");
        }
    }
}
