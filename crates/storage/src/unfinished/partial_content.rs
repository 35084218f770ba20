//! The bytes of an upload that is being received.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portico_base::spawn_blocking;
use portico_md5::Md5State;
use tokio::sync::oneshot;

use super::record::UploadProgress;
use super::store::{UploadStore, blocking};
use crate::backend::BackendError;
use crate::backend::content_writer::ContentWriter;
use crate::backend::flush::flush_content;
use crate::backend::piece_hasher::Piece;

/// The bytes after which a request that is still being received is recorded, so that a crash loses
/// no more than these.
const CHECKPOINT: u64 = 16 * 1024 * 1024;
/// Opens the bytes of an upload behind an offset, and cuts off what follows. `draft` is the path of
/// a file that may be needed meanwhile.
pub(super) fn open_behind(path: &Path, draft: &Path, offset: u64, limit: u64) -> Result<ContentWriter, BackendError> {
    // A commit that failed, or whose outcome is unknown, has made the file the content of a
    // version, and versions never change
    if fs::metadata(path)?.nlink() > 1 {
        fs::copy(path, draft)?;
        // The record counts the bytes that the copy replaces
        flush_content(draft, &File::open(draft)?)?;
        fs::rename(draft, path)?;
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() < offset {
        return Err(BackendError::NotFound);
    }
    file.set_len(offset)?;
    file.seek(SeekFrom::Start(offset))?;
    Ok(ContentWriter::new(file, offset, limit))
}

/// The bytes of an upload that is being received.
pub(crate) struct PartialContent {
    path: PathBuf,
    pub(super) writer: ContentWriter,
    digest: Md5State,
    store: UploadStore,
    limit: u64,
    /// The bytes that are on disk for sure, which are those that the record counts or may count.
    durable: u64,
}

impl PartialContent {
    /// Appends to a file by its writer. `digest` is that of the bytes in it, all of which are
    /// durable.
    pub(super) fn new(path: PathBuf, writer: ContentWriter, digest: Md5State, store: UploadStore, limit: u64) -> Self {
        let durable = writer.size();
        let mut content = Self { path, writer, digest, store, limit, durable };
        content.reserve_to_checkpoint();
        content
    }

    /// Returns the number of bytes.
    pub fn size(&self) -> u64 {
        self.writer.size()
    }

    /// Returns true once [`CHECKPOINT`] bytes are to be flushed and recorded.
    pub fn is_due(&self) -> bool {
        self.size() - self.durable >= CHECKPOINT
    }

    /// Has the writer reserve no more space than a crash may lose bytes: it stays reserved until
    /// the upload goes on or expires.
    fn reserve_to_checkpoint(&mut self) {
        self.writer.set_limit(self.limit.min(self.durable.saturating_add(CHECKPOINT)));
    }

    /// Appends a piece, which is hashed while it is written, and then ends its permit. If that
    /// fails, none of it stays. Returns `None` for content that cannot be continued.
    pub async fn append(self, piece: Piece) -> (Option<Self>, Result<(), BackendError>) {
        let piece = Arc::new(piece);
        let (hashed, digest) = oneshot::channel();
        self.store.hasher.hash(self.digest.clone(), Arc::clone(&piece), |digest| _ = hashed.send(digest));
        let written = spawn_blocking(move || self.write(&piece)).await;
        match (written, digest.await) {
            (Ok((content, Err(error))), _) => (content, Err(error)),
            (Ok((Some(mut content), Ok(()))), Ok(digest)) => {
                content.digest = digest;
                (Some(content), Ok(()))
            }
            (Err(error), _) => (None, Err(BackendError::Io(io::Error::other(error)))),
            // The runtime is shutting down
            _ => (None, Err(BackendError::Io(ErrorKind::Interrupted.into()))),
        }
    }

    /// Appends a piece to the file. If that fails, the file is as before, or `None` is returned:
    /// what the digest does not count must not be recorded.
    fn write(mut self, piece: &Piece) -> (Option<Self>, Result<(), BackendError>) {
        let before = self.writer.position();
        if let Err(error) = self.writer.append(&piece.chunks, &mut self.store.buffers.take()) {
            // A full disk is left some space, without which nothing could be deleted
            let returned = self.writer.return_to(before);
            return (returned.is_ok().then_some(self), Err(error.into()));
        }
        (Some(self), Ok(()))
    }

    /// Makes the bytes durable, and returns them for the record.
    ///
    /// # Errors
    /// When they cannot be flushed; the bytes are lost then.
    pub async fn flush(mut self) -> Result<(Self, UploadProgress), BackendError> {
        blocking(move || {
            if self.size() > self.durable {
                self.writer.complete()?;
                flush_content(&self.path, &self.writer.file)?;
                self.durable = self.size();
                self.reserve_to_checkpoint();
            }
            let progress = UploadProgress::new(self.size(), &self.digest);
            Ok((self, progress))
        })
        .await
    }

    /// Returns the ETag of the bytes.
    pub fn etag(&self) -> String {
        format!("\"{}\"", hex::encode(self.digest.finish()))
    }
}

impl Drop for PartialContent {
    /// Cuts off what was not flushed, with the space that was reserved for more. If that fails, the
    /// next request does it.
    fn drop(&mut self) {
        if self.size() > self.durable {
            let _ = self.writer.file.set_len(self.durable);
        }
    }
}
