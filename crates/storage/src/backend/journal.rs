//! The journal of the objects whose content is changing.
//!
//! An entry is a file with the names of objects. It is written before content becomes visible or a
//! transaction commits that takes content out of use, and removed once no content without a row is
//! left. By the entries of a process that crashed, the clean-up knows which objects to check.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portico_base::{random, spawn_blocking};
use serde::{Deserialize, Serialize};

use super::disk_threads::DiskThreads;
use crate::error::{Result, StorageError};

/// The journal. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    folder: PathBuf,
    /// The entries that this process still works on.
    active: Arc<Mutex<HashSet<String>>>,
    /// The threads that write and remove entries.
    threads: DiskThreads,
}

/// The names that an entry protects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalNames {
    pub bucket: String,
    pub names: Vec<String>,
}

/// An entry of work in progress. Dropped without [`close`](Self::close), it is left for the
/// clean-up.
#[derive(Debug)]
pub(crate) struct JournalEntry {
    journal: Journal,
    id: String,
}

impl Journal {
    /// Opens the journal in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Self { folder: folder.to_owned(), active: Arc::default(), threads: DiskThreads::default() })
    }

    fn active(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an entry.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn enter(&self, names: JournalNames) -> Result<JournalEntry> {
        let entry = JournalEntry { journal: self.clone(), id: random::uuid().to_string() };
        self.active().insert(entry.id.clone());
        let path = self.folder.join(&entry.id);
        let written = self.threads.run(move || {
            let draft = path.with_extension("new");
            let written = fs::write(&draft, serde_json::to_vec(&names)?).and_then(|()| fs::rename(&draft, &path));
            written.inspect_err(|_| {
                let _ = fs::remove_file(&draft);
            })
        });
        match written.await {
            Ok(()) => Ok(entry),
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                Err(StorageError::DiskFull)
            }
            Err(error) => {
                tracing::error!(error = %error, "the journal of the storage service could not be written");
                Err(StorageError::Internal)
            }
        }
    }

    /// Like [`enter`](Self::enter), for a deletion. On a full disk it goes on without the entry, to
    /// make space. If the process dies before the content is deleted, only a comparison of all rows
    /// with all content finds that content.
    ///
    /// # Errors
    /// When the entry cannot be written for another reason.
    pub async fn enter_deletion(&self, names: JournalNames) -> Result<JournalEntry> {
        match self.enter(names).await {
            Err(StorageError::DiskFull) => {
                tracing::warn!("objects are deleted without an entry in the journal, since the disk is full");
                Ok(JournalEntry { journal: self.clone(), id: random::uuid().to_string() })
            }
            entered => entered,
        }
    }

    /// Returns the entries that are older than `grace` and that nothing in this process works on.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub async fn left_over(&self, grace: Duration) -> io::Result<Vec<(String, JournalNames)>> {
        let folder = self.folder.clone();
        let found = spawn_blocking(move || -> io::Result<Vec<(String, JournalNames)>> {
            let mut found = Vec::new();
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
                let is_old = modified.elapsed().is_ok_and(|age| age >= grace);
                let id = entry.file_name().to_string_lossy().into_owned();
                match fs::read(entry.path()).map(|text| serde_json::from_slice(&text)) {
                    Ok(Ok(names)) if is_old && !id.ends_with(".new") => found.push((id, names)),
                    // A file that was being written when the process died
                    Ok(_) if is_old => fs::remove_file(entry.path())?,
                    _ => {}
                }
            }
            Ok(found)
        });
        let mut found = found.await.map_err(io::Error::other)??;
        let active = self.active();
        found.retain(|(id, _)| !active.contains(id));
        Ok(found)
    }

    /// Removes an entry.
    pub async fn remove(&self, id: &str) {
        let path = self.folder.join(id);
        let _ = self.threads.run(move || fs::remove_file(path)).await;
    }
}

impl JournalEntry {
    /// Removes the entry: no content without a row is left.
    pub async fn close(self) {
        self.journal.remove(&self.id).await;
    }

    /// Leaves the entry for the clean-up, which looks at it when it is older than the grace period,
    /// counted from now.
    pub async fn leave(self) {
        let path = self.journal.folder.join(&self.id);
        // A new file has the current time
        let renew = move || {
            let draft = path.with_extension("new");
            fs::copy(&path, &draft)?;
            fs::rename(&draft, &path)
        };
        if let Err(error) = self.journal.threads.run(renew).await {
            tracing::warn!(error = %error, "an entry of the journal could not be renewed");
        }
    }
}

impl Drop for JournalEntry {
    fn drop(&mut self) {
        self.journal.active().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_entry_that_is_left_waits_for_another_grace_period() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let names = JournalNames { bucket: "b".into(), names: vec!["a".into()] };
        let entry = journal.enter(names.clone()).await.unwrap();
        let path = folder.path().join(&entry.id);
        let file = fs::File::options().write(true).open(path).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(now - Duration::from_secs(7200)).unwrap();
        let grace = Duration::from_secs(3600);
        assert!(journal.left_over(grace).await.unwrap().is_empty(), "it is worked on");
        let id = entry.id.clone();
        entry.leave().await;
        assert!(journal.left_over(grace).await.unwrap().is_empty(), "it is young again");
        assert_eq!(journal.left_over(Duration::ZERO).await.unwrap(), [(id, names)]);
    }
}
