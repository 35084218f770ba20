//! Files that are written and moved to their place.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::durable::DurableFolders;

/// The attempts to make a folder that another deletion removes at the same time.
const FOLDER_ATTEMPTS: usize = 8;

/// A file that is deleted unless it is moved to its place.
pub(super) struct Draft(PathBuf);

impl Draft {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Keeps the file, which has another name now.
    pub fn keep(&mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Makes the folder of a version, gives the file its place there by `put`, and flushes the folders
/// that have changed.
pub(super) fn place_in(
    folders: &DurableFolders,
    root: &Path,
    place: &Path,
    put: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let folder = place.parent().unwrap_or(root);
    for attempt in 1.. {
        match folders.make(root, folder).and_then(|()| put()) {
            // A deletion has removed the folder meanwhile
            Err(error) if error.kind() == ErrorKind::NotFound && attempt < FOLDER_ATTEMPTS => {}
            Err(error) => {
                remove_empty(root, place);
                return Err(error);
            }
            Ok(()) => return folders.flush(root, folder),
        }
    }
    Ok(())
}

/// Removes the folders of a place, as far as they are empty.
pub(super) fn remove_empty(root: &Path, place: &Path) {
    let mut folder = place.parent();
    while let Some(empty) = folder.filter(|folder| *folder != root) {
        // It fails where something is left in it
        if fs::remove_dir(empty).is_err() {
            break;
        }
        folder = empty.parent();
    }
}
