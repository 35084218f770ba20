//! The folders whose entries are known to be on disk.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::flush::flush_folder;

/// The most folders that are remembered. With more, some are flushed again.
const MAX_FOLDERS: usize = 10_000;

/// The folders whose entries in their parents are known to be on disk.
///
/// A folder that exists need not be: another upload may have made it and not flushed it yet, or a
/// process that died. So everything that is not in this set is flushed before an upload below it
/// is acknowledged.
#[derive(Debug, Default)]
pub(super) struct DurableFolders(Mutex<FolderSet>);

#[derive(Debug, Default)]
struct FolderSet {
    durable: HashSet<PathBuf>,
    /// The number of folders made so far.
    made: u64,
}

impl DurableFolders {
    fn state(&self) -> MutexGuard<'_, FolderSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a folder below the root, with its parents.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(&self, root: &Path, folder: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = Some(folder);
        while let Some(folder) = at.filter(|folder| *folder != root && !folder.is_dir()) {
            missing.push(folder);
            at = folder.parent();
        }
        for folder in missing.into_iter().rev() {
            // Locked, so that the set never names a folder that was removed and made again
            let mut state = self.state();
            match fs::DirBuilder::new().mode(0o700).create(folder) {
                Ok(()) => {
                    state.durable.remove(folder);
                    state.made += 1;
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Flushes a folder in which something has changed, and the entries of the folder and its
    /// parents up to the root, as far as they are not known to be on disk. Nothing may remove the
    /// folder meanwhile: it has content.
    ///
    /// # Errors
    /// When a folder cannot be flushed.
    pub fn flush(&self, root: &Path, folder: &Path) -> io::Result<()> {
        let (unknown, made) = {
            let state = self.state();
            let folders = folder.ancestors().take_while(|folder| *folder != root);
            let unknown: Vec<&Path> = folders.filter(|folder| !state.durable.contains(*folder)).collect();
            (unknown, state.made)
        };
        flush_folder(folder)?;
        for parent in unknown.iter().filter_map(|folder| folder.parent()) {
            flush_folder(parent)?;
        }
        let mut state = self.state();
        // A folder that was removed and made again since is not on disk
        if state.made == made {
            if state.durable.len() + unknown.len() > MAX_FOLDERS {
                state.durable.clear();
            }
            state.durable.extend(unknown.into_iter().map(Path::to_owned));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable(folders: &DurableFolders, root: &Path) -> Vec<String> {
        let state = folders.state();
        let name = |folder: &PathBuf| folder.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = state.durable.iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_durable_only_after_a_flush_of_its_own() {
        let temporary = tempfile::tempdir().unwrap();
        let (root, folders) = (temporary.path(), DurableFolders::default());
        // Another upload has made the folders and has not flushed them yet
        folders.make(root, &root.join("a/b")).unwrap();
        folders.make(root, &root.join("a/b")).unwrap();
        assert!(durable(&folders, root).is_empty());
        folders.flush(root, &root.join("a/b")).unwrap();
        assert_eq!(durable(&folders, root), ["a", "a/b"]);
        // Removed and made again
        fs::remove_dir(root.join("a/b")).unwrap();
        folders.make(root, &root.join("a/b/c")).unwrap();
        assert_eq!(durable(&folders, root), ["a"]);
        folders.flush(root, &root.join("a/b/c")).unwrap();
        assert_eq!(durable(&folders, root), ["a", "a/b", "a/b/c"]);
    }
}
