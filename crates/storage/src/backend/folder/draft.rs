//! Files that are written and moved to their place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portico_base::random;
use uuid::Uuid;

use super::durable::DurableFolders;
use super::file::changed;
use crate::backend::content_writer::ContentWriter;
use crate::backend::flush::flush_content;

/// The attempts to make a folder that another deletion removes at the same time.
const FOLDER_ATTEMPTS: usize = 8;

/// The folder in which files are written. The names of the files say who has made them.
#[derive(Clone)]
pub(super) struct DraftFolder {
    path: PathBuf,
    /// The id of this object, with which the names of its files begin.
    owner: Uuid,
}

impl DraftFolder {
    pub fn new(path: PathBuf) -> Self {
        Self { path, owner: random::uuid() }
    }

    /// Returns the path of a file that does not exist yet.
    pub fn new_path(&self) -> PathBuf {
        self.path.join(format!("{}.{}", self.owner, random::uuid()))
    }

    /// Returns the files that did not change for `grace` and that this object has not made. Its own
    /// ones belong to uploads on their way: each is a [`Draft`], which is deleted when it is
    /// dropped.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn abandoned(&self, grace: Duration) -> io::Result<Vec<PathBuf>> {
        let own = format!("{}.", self.owner);
        let mut abandoned = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(own.as_bytes()) {
                continue;
            }
            let is_old = |metadata: fs::Metadata| changed(&metadata).elapsed().is_ok_and(|age| age >= grace);
            if entry.metadata().is_ok_and(is_old) {
                abandoned.push(entry.path());
            }
        }
        Ok(abandoned)
    }
}

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

/// The draft of an upload on its way.
pub(super) struct DraftWriter {
    pub draft: Draft,
    pub content: ContentWriter,
}

impl DraftWriter {
    /// Creates the file of an upload of at most `limit` bytes.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn create(path: PathBuf, limit: u64) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { draft: Draft::new(path), content: ContentWriter::new(file, 0, limit) })
    }
}

/// Moves a draft with the content of a version to its place, and makes both durable. After an error
/// the version may be left at its place.
///
/// No row refers to the version yet, so it may have its name before its content is on disk. Flushed
/// in this order, a file system with a journal commits once, and one without does not write the
/// folder of drafts, in which the file was made.
pub(super) fn publish(
    draft: &mut Draft,
    file: &File,
    folders: &DurableFolders,
    root: &Path,
    place: &Path,
) -> io::Result<()> {
    place_in(folders, root, place, || fs::rename(draft.path(), place))?;
    draft.keep();
    flush_content(place, file)
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
