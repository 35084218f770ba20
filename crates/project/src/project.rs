//! Finds and loads a project.

use std::path::{Path, PathBuf};

use crate::config::{Config, Folders, apply_remote, check_remotes};
use crate::document::DocumentNode;
use crate::environment::Environment;
use crate::error::{ProjectError, Warning, WarningKind, read_text};
use crate::section::{ConfigReader, UnknownKeys};

/// The largest configuration file, in bytes.
pub(crate) const MAX_CONFIG: u64 = 4 * 1024 * 1024;

/// The options for loading a project.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The project root; not searched upwards. Absent: `SUPABASE_WORKDIR`, else the nearest folder
    /// above [`current_dir`](Self::current_dir) with a `supabase/config.toml`.
    pub workdir: Option<PathBuf>,
    /// The folder in which the search begins. Absent: the current folder of the process.
    pub current_dir: Option<PathBuf>,
    /// The variables that are set before any file is read.
    pub environment: Environment,
    /// The stage of the `.env.<stage>` files, unless `SUPABASE_ENV` names another.
    pub stage: &'static str,
    /// The name or project id of a `[remotes.<name>]` that overrides the configuration.
    pub remote: Option<String>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            workdir: None,
            current_dir: None,
            environment: Environment::of_process(),
            stage: "development",
            remote: None,
        }
    }
}

/// A loaded project. It may be a folder without any file: then every value has its default.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
    config: Config,
    environment: Environment,
    warnings: Vec<Warning>,
    /// The options that it was loaded with.
    options: LoadOptions,
}

impl Project {
    /// Finds the project, and reads its environment files and its configuration.
    ///
    /// # Errors
    /// When a file cannot be read or parsed, or the configuration has invalid values. The error
    /// contains every problem, each with file, line and key.
    pub fn load(options: LoadOptions) -> Result<Self, ProjectError> {
        let root = find_root(&options)?;
        let mut environment = options.environment.clone();
        environment.load_files(&root, options.stage)?;

        let path = root.join("supabase/config.toml");
        let shown = Path::new("supabase/config.toml");
        let mut tree = match read_text(&path, MAX_CONFIG)? {
            Some(text) => DocumentNode::parse(&text, shown)?,
            None => DocumentNode::empty(),
        };
        let folders = Folders { root: &root, supabase: root.join("supabase") };
        let (mut remote_problems, mut remote_warnings) = (Vec::new(), Vec::new());
        check_remotes(&tree, &environment, &folders, &mut remote_problems, &mut remote_warnings);
        let override_name = options.remote.as_deref().and_then(|remote| apply_remote(&mut tree, remote));

        let reading = ConfigReader::new(&environment, "SUPABASE", UnknownKeys::Warn);
        if let Some(name) = override_name {
            let message = format!("Loading config override: [remotes.{name}]");
            reading.warn(WarningKind::Information, None, format!("remotes.{name}"), message);
        }
        let config = Config::read(reading.root(&tree), &folders);
        let (mut problems, mut warnings) = reading.into_findings();
        problems.extend(remote_problems);
        warnings.extend(remote_warnings);
        if !problems.is_empty() {
            problems.sort_by_key(|problem| problem.position.as_ref().and_then(|position| position.line));
            return Err(ProjectError::Invalid(problems));
        }
        warnings.sort_by_key(|warning| warning.position.as_ref().and_then(|position| position.line));
        Ok(Self { root, config, environment, warnings, options })
    }

    /// Reads the files of the project again, with the options of the first time.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn reload(&self) -> Result<Self, ProjectError> {
        Self::load(LoadOptions { workdir: Some(self.root.clone()), ..self.options.clone() })
    }

    /// Finds the project's root folder without reading a file in it.
    ///
    /// # Errors
    /// When the folder does not exist.
    pub fn find_root(options: &LoadOptions) -> Result<PathBuf, ProjectError> {
        find_root(options)
    }

    /// Returns the project's root folder, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns `<root>/supabase`, which need not exist.
    pub fn supabase_dir(&self) -> PathBuf {
        self.root.join("supabase")
    }

    /// Returns the configuration, with defaults filled in.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the variables of the process and of the project's environment files.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns the warnings about the configuration.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

/// Determines the root folder.
fn find_root(options: &LoadOptions) -> Result<PathBuf, ProjectError> {
    let current = match &options.current_dir {
        Some(folder) => folder.clone(),
        None => std::env::current_dir().map_err(|source| ProjectError::Io {
            action: "failed to find the current folder",
            path: PathBuf::from("."),
            source,
        })?,
    };
    let named = options.workdir.clone().or_else(|| options.environment.get("SUPABASE_WORKDIR").map(PathBuf::from));
    let root = match named {
        Some(folder) => {
            let folder = current.join(folder);
            if !folder.is_dir() {
                return Err(ProjectError::NoFolder { path: folder });
            }
            folder
        }
        None => current
            .ancestors()
            .find(|folder| folder.join("supabase/config.toml").is_file())
            .unwrap_or(&current)
            .to_owned(),
    };
    root.canonicalize().map_err(|source| ProjectError::Io {
        action: "failed to open the project folder",
        path: root.clone(),
        source,
    })
}
