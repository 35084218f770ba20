//! The content of a test's server: a folder.

use std::fs;
use std::path::{Path, PathBuf};

use portico_storage::StorageSettings;

/// The folder of a test's server.
pub struct Place {
    root: PathBuf,
}

impl Place {
    /// True if other servers may have content there.
    pub const IS_SHARED: bool = false;

    /// Returns the place that the settings name.
    pub async fn prepare(settings: &mut StorageSettings) -> Self {
        Self { root: settings.backend.folder().to_owned() }
    }

    /// Returns the number of files, whatever they are.
    pub async fn count(&self) -> usize {
        count(&self.root)
    }

    /// Returns the paths of all content: `<bucket>/<name>/<version>`.
    pub async fn paths(&self) -> Vec<String> {
        let root = self.root.join("objects");
        let mut paths = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    paths.push(entry.path().strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        paths
    }

    /// Returns content.
    pub async fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.root.join("objects").join(path)).unwrap()
    }

    /// Stores content past the service.
    pub async fn write(&self, path: &str, content: &str) {
        let path = self.root.join("objects").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Deletes content past the service.
    pub async fn remove(&self, path: &str) {
        fs::remove_file(self.root.join("objects").join(path)).unwrap();
    }

    /// Leaves the files of a process that crashed during an upload.
    pub async fn interrupt_upload(&self) {
        fs::write(self.root.join("incoming/draft"), "half").unwrap();
    }
}

/// Returns the number of files below a folder. Those of closed entries of the journal, which are
/// used again, do not count.
pub fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let is_journal = folder.ends_with("journal");
    let is_closed = |file: &Path| is_journal && fs::read(file).is_ok_and(|text| text.starts_with(b"-"));
    let count_of = |path: PathBuf| if path.is_dir() { count(&path) } else { usize::from(!is_closed(&path)) };
    entries.flatten().map(|entry| count_of(entry.path())).sum()
}
