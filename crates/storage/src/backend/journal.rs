//! The journal of the objects whose content is changing.
//!
//! An entry is a file with the names of objects. It is written before content becomes visible or a
//! transaction commits that takes content out of use, and closed once no content without a row is
//! left. By the entries of a process that crashed, the clean-up knows which objects to check.
//!
//! Every upload has an entry, and to create a file and delete it takes longer than the rest of it:
//! some file systems look for a free inode among all that were freed in the last seconds. So the
//! file of a small entry that is closed is used again for another one.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portico_base::{random, spawn_blocking};
use serde::{Deserialize, Serialize};

use super::disk_threads::DiskThreads;
use crate::error::{Result, StorageError};

/// The maximum size of an entry whose file is used again. It is written at once: a process that
/// dies leaves all of it or nothing.
const MAX_REUSED: usize = 4096;
/// The maximum number of files that wait to be used again.
const MAX_FREE: usize = 64;
/// The time for which a file waits to be used again.
const REUSABLE: Duration = Duration::from_secs(600);
/// The age from which on the file of a closed entry is deleted. Another process may do that, so it
/// is much longer than [`REUSABLE`].
const CLOSED_AGE: Duration = Duration::from_secs(3600);
/// The first byte of a file whose entry is closed, instead of the brace of its JSON.
const CLOSED: u8 = b'-';

/// The journal. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    folder: PathBuf,
    state: Arc<Mutex<JournalState>>,
    /// The threads that create and delete files.
    threads: DiskThreads,
}

#[derive(Debug, Default)]
struct JournalState {
    /// The entries that this process still works on.
    active: HashSet<String>,
    /// The files that can be used again; the last one was closed last.
    free: Vec<FreeFile>,
}

/// A file of this process whose entry is closed.
#[derive(Debug)]
struct FreeFile {
    id: String,
    file: File,
    since: Instant,
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
    /// The name of its file. Empty once the entry is closed.
    id: String,
    /// A file that can be used again.
    file: Option<File>,
}

impl Journal {
    /// Opens the journal in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Self { folder: folder.to_owned(), state: Arc::default(), threads: DiskThreads::default() })
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an entry.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn enter(&self, names: JournalNames) -> Result<JournalEntry> {
        match self.write(&names).await {
            Ok(entry) => Ok(entry),
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                Err(StorageError::DiskFull)
            }
            Err(error) => {
                tracing::error!(error = %error, "the journal of the storage service could not be written");
                Err(StorageError::Internal)
            }
        }
    }

    async fn write(&self, names: &JournalNames) -> io::Result<JournalEntry> {
        let mut text = serde_json::to_vec(names)?;
        // The rest of the file may be left of a longer entry
        text.push(b'\n');
        let is_small = text.len() <= MAX_REUSED;
        while is_small && let Some((entry, file)) = self.take_free() {
            // The system has the page in memory, so this waits for no disk
            file.write_all_at(&text, 0)?;
            // Unless it was deleted meanwhile
            if file.metadata()?.nlink() > 0 {
                return Ok(entry.with(file));
            }
        }
        let id = random::uuid().to_string();
        self.state().active.insert(id.clone());
        let path = self.folder.join(&id);
        let entry = JournalEntry { journal: self.clone(), id, file: None };
        let written = self.threads.run(move || {
            if is_small {
                let file = File::create_new(&path)?;
                return file.write_all_at(&text, 0).map(|()| Some(file)).inspect_err(|_| _ = fs::remove_file(&path));
            }
            let draft = path.with_extension("new");
            let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path));
            written.map(|()| None).inspect_err(|_| _ = fs::remove_file(&draft))
        });
        Ok(match written.await? {
            Some(file) => entry.with(file),
            None => entry,
        })
    }

    /// Returns an entry, which is active now, and the file that it can use again.
    fn take_free(&self) -> Option<(JournalEntry, File)> {
        let mut state = self.state();
        let free = state.free.pop()?;
        if free.since.elapsed() > REUSABLE {
            // So are all the others. The clean-up deletes them
            state.free.clear();
            return None;
        }
        state.active.insert(free.id.clone());
        Some((JournalEntry { journal: self.clone(), id: free.id, file: None }, free.file))
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
                Ok(JournalEntry { journal: self.clone(), id: random::uuid().to_string(), file: None })
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
                let is_older = |than| modified.elapsed().is_ok_and(|age| age >= than);
                let id = entry.file_name().to_string_lossy().into_owned();
                let Ok(text) = fs::read(entry.path()) else { continue };
                if text.first() == Some(&CLOSED) {
                    if is_older(CLOSED_AGE.max(grace)) {
                        fs::remove_file(entry.path())?;
                    }
                    continue;
                }
                let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
                match serde_json::from_slice(line) {
                    _ if !is_older(grace) => {}
                    Ok(names) if !id.ends_with(".new") => found.push((id, names)),
                    // A file that was being written when the process died
                    _ => fs::remove_file(entry.path())?,
                }
            }
            Ok(found)
        });
        let mut found = found.await.map_err(io::Error::other)??;
        let state = self.state();
        // A file may have been closed since it was read
        let is_own = |id: &String| state.active.contains(id) || state.free.iter().any(|free| free.id == *id);
        found.retain(|(id, _)| !is_own(id));
        Ok(found)
    }

    /// Removes an entry.
    pub async fn remove(&self, id: &str) {
        let path = self.folder.join(id);
        let _ = self.threads.run(move || fs::remove_file(path)).await;
    }
}

impl JournalEntry {
    fn with(mut self, file: File) -> Self {
        self.file = Some(file);
        self
    }

    /// Closes the entry: no content without a row is left.
    pub async fn close(mut self) {
        let Some(file) = self.file.take() else { return self.journal.remove(&self.id).await };
        let id = std::mem::take(&mut self.id);
        let is_closed = file.write_all_at(&[CLOSED], 0).is_ok();
        let is_kept = {
            let mut state = self.journal.state();
            state.active.remove(&id);
            let is_kept = is_closed && state.free.len() < MAX_FREE;
            if is_kept {
                state.free.push(FreeFile { id: id.clone(), file, since: Instant::now() });
            }
            is_kept
        };
        if !is_kept {
            self.journal.remove(&id).await;
        }
    }

    /// Leaves the entry for the clean-up, which looks at it when it is older than the grace period,
    /// counted from now.
    pub async fn leave(self) {
        let path = self.journal.folder.join(&self.id);
        // A file is as old as its last change. It begins with this byte
        let renew = move || File::options().write(true).open(path)?.write_all_at(b"{", 0);
        if let Err(error) = self.journal.threads.run(renew).await {
            tracing::warn!(error = %error, "an entry of the journal could not be renewed");
        }
    }
}

impl Drop for JournalEntry {
    fn drop(&mut self) {
        self.journal.state().active.remove(&self.id);
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
        let file = File::options().write(true).open(path).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(now - Duration::from_secs(7200)).unwrap();
        let grace = Duration::from_secs(3600);
        assert!(journal.left_over(grace).await.unwrap().is_empty(), "it is worked on");
        let id = entry.id.clone();
        entry.leave().await;
        assert!(journal.left_over(grace).await.unwrap().is_empty(), "it is young again");
        assert_eq!(journal.left_over(Duration::ZERO).await.unwrap(), [(id, names)]);
    }

    fn names(name: &str) -> JournalNames {
        JournalNames { bucket: "b".into(), names: vec![name.into()] }
    }

    /// Makes the file of an entry older.
    fn age(folder: &Path, id: &str, by: Duration) {
        let file = File::options().write(true).open(folder.join(id)).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(now - by).unwrap();
    }

    #[tokio::test]
    async fn the_file_of_a_closed_entry_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let first = journal.enter(names("a long name")).await.unwrap();
        let id = first.id.clone();
        first.close().await;
        assert!(journal.left_over(Duration::ZERO).await.unwrap().is_empty(), "it is closed");
        let second = journal.enter(names("b")).await.unwrap();
        assert_eq!(second.id, id);
        // While it is in use another one has a file of its own
        let third = journal.enter(names("c")).await.unwrap();
        assert_ne!(third.id, id);
        assert!(journal.left_over(Duration::ZERO).await.unwrap().is_empty(), "both are worked on");
        // Another process finds both after a crash of this one
        let other = Journal::open(folder.path()).unwrap();
        let mut found = other.left_over(Duration::ZERO).await.unwrap();
        found.sort_by(|one, other| one.1.names.cmp(&other.1.names));
        assert_eq!(found, [(id.clone(), names("b")), (third.id.clone(), names("c"))]);
        // An entry that is left keeps its file
        second.leave().await;
        third.close().await;
        assert_ne!(journal.enter(names("d")).await.unwrap().id, id);
        assert!(other.left_over(Duration::ZERO).await.unwrap().contains(&(id, names("b"))));
    }

    #[tokio::test]
    async fn a_file_is_not_used_again_when_another_process_may_delete_it() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let entry = journal.enter(names("a")).await.unwrap();
        let id = entry.id.clone();
        entry.close().await;
        let other = Journal::open(folder.path()).unwrap();
        for (by, is_there) in [(REUSABLE, true), (CLOSED_AGE - REUSABLE, false)] {
            age(folder.path(), &id, by);
            other.left_over(Duration::ZERO).await.unwrap();
            assert_eq!(folder.path().join(&id).exists(), is_there);
        }
        // The file is gone, but it may also be there and old
        let entry = journal.enter(names("b")).await.unwrap();
        assert_ne!(entry.id, id);
        assert_eq!(other.left_over(Duration::ZERO).await.unwrap(), [(entry.id.clone(), names("b"))]);
        let id = entry.id.clone();
        entry.close().await;
        let since = Instant::now().checked_sub(REUSABLE).unwrap();
        journal.state().free[0].since = since;
        assert_ne!(journal.enter(names("c")).await.unwrap().id, id);
        assert!(journal.state().free.is_empty());
    }

    #[tokio::test]
    async fn large_entries_have_files_of_their_own_and_few_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let large = journal.enter(names(&"a".repeat(MAX_REUSED))).await.unwrap();
        assert!(large.file.is_none());
        large.close().await;
        assert_eq!(files(), 0);
        let mut entries = Vec::new();
        for _ in 0..MAX_FREE + 5 {
            entries.push(journal.enter(names("a")).await.unwrap());
        }
        for entry in entries {
            entry.close().await;
        }
        assert_eq!(files(), MAX_FREE);
    }
}
