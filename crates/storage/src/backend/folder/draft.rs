//! Files that are written and moved to their place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use portico_md5::Md5State;

use super::durable::DurableFolders;
use crate::backend::model::BackendError;

/// The bytes after which the system is asked to write them to disk, and does so while more arrive:
/// the flush at the end waits for the rest only.
const WRITEBACK_SIZE: u64 = 8 * 1024 * 1024;
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
    pub fn keep(mut self) {
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

/// The file of an upload on its way, and the MD5 of what was written.
pub(super) struct DraftWriter {
    pub file: File,
    pub draft: Draft,
    pub digest: Md5State,
    /// The bytes in the file.
    written: u64,
    /// The bytes that the system was asked to write to disk.
    in_writeback: u64,
}

impl DraftWriter {
    pub fn create(draft: PathBuf) -> Result<Self, BackendError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        Ok(Self { file, draft: Draft(draft), digest: Md5State::default(), written: 0, in_writeback: 0 })
    }

    /// Appends chunks to the file. Their MD5 is the caller's to add.
    pub fn append(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> =
            chunks.iter().filter(|chunk| !chunk.is_empty()).map(|chunk| IoSlice::new(chunk)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            match self.file.write_vectored(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut left, written);
                    self.written += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.written - self.in_writeback >= WRITEBACK_SIZE {
            begin_writeback(&self.file, self.in_writeback);
            self.in_writeback = self.written;
        }
        Ok(())
    }

    /// Returns the MD5 of what was written, in hexadecimal digits.
    pub fn digest(&self) -> String {
        hex::encode(self.digest.finish())
    }
}

/// Asks the system to write what a file has from a position on to disk, and does not wait for it.
/// What is not on disk yet stays in memory for those who read the file.
#[cfg(target_os = "linux")]
fn begin_writeback(file: &File, from: u64) {
    // The flush at the end reports errors
    let _ = rustix::fs::fadvise(file, from, None, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn begin_writeback(_: &File, _: u64) {}

/// A whole upload, which is not flushed.
pub(super) struct ReceivedDraft {
    pub written: DraftWriter,
    pub size: u64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_whole_while_the_system_writes_it_to_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = DraftWriter::create(folder.path().join("large")).unwrap();
        let chunk: Bytes = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
        let mut expected = Vec::new();
        while expected.len() < 3 * WRITEBACK_SIZE as usize {
            writer.append(&[chunk.clone(), Bytes::new(), chunk.slice(..7)]).unwrap();
            expected.extend_from_slice(&chunk);
            expected.extend_from_slice(&chunk[..7]);
            // The system is asked again and again, and always for most of what is there
            assert!(writer.written - writer.in_writeback < WRITEBACK_SIZE);
        }
        assert!(writer.in_writeback >= 2 * WRITEBACK_SIZE);
        assert!(fs::read(writer.draft.path()).unwrap() == expected);
    }
}
