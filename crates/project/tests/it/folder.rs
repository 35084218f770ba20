//! A project folder that lives as long as a test.

use std::path::Path;

use portico_project::{Environment, LoadOptions, Project, ProjectError};
use tempfile::TempDir;

pub struct Folder {
    dir: TempDir,
}

impl Folder {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn with(path: &str, text: &str) -> Self {
        Self::new().write(path, text)
    }

    pub fn config(text: &str) -> Self {
        Self::with("supabase/config.toml", text)
    }

    pub fn write(self, path: &str, text: &str) -> Self {
        self.put(path, text);
        self
    }

    pub fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn remove(&self, path: &str) {
        std::fs::remove_file(self.dir.path().join(path)).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn options(&self, variables: &[(&str, &str)]) -> LoadOptions {
        LoadOptions {
            workdir: None,
            current_dir: Some(self.dir.path().to_owned()),
            environment: variables.iter().copied().collect::<Environment>(),
            stage: "development",
            remote: None,
        }
    }

    pub fn try_load(&self, variables: &[(&str, &str)]) -> Result<Project, ProjectError> {
        Project::load(self.options(variables))
    }

    pub fn load(&self) -> Project {
        self.try_load(&[]).unwrap()
    }

    /// Returns the text of the error that loading gives.
    pub fn error(&self) -> String {
        self.try_load(&[]).unwrap_err().to_string()
    }
}
