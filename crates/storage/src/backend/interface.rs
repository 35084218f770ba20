//! The operations of every backend.

use std::path::Path;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::model::{
    BackendError, BackendFuture, ByteRange, ContentStream, KeptVersion, OpenContent, StoredContent, StoredFile,
    VersionKey,
};
use super::parts::PartStore;
use crate::error::StorageError;

/// The bytes of a file that are read at once.
const FILE_CHUNK: usize = 256 * 1024;

/// A place of content.
pub(crate) trait Backend: PartStore + Send + Sync {
    /// Stores content of at most `limit` bytes as a new version. When it returns, the bytes are
    /// durable. If it fails or is cancelled, the caller has to delete what may be there.
    fn put<'a>(
        &'a self,
        at: &'a VersionKey,
        content: ContentStream<'a>,
        limit: u64,
    ) -> BackendFuture<'a, StoredContent>;

    /// Stores a finished file as a new version, as [`put`](Self::put) stores a stream. Afterwards
    /// the file may be gone, or be the content itself: it must not change any more.
    fn put_file<'a>(&'a self, at: &'a VersionKey, path: &'a Path) -> BackendFuture<'a, StoredContent> {
        Box::pin(async move {
            let file = tokio::fs::File::open(path).await?;
            // A place may choose the size of its parts by the limit
            let size = file.metadata().await?.len();
            let chunks = futures_util::stream::try_unfold(file, |mut file| async {
                let mut chunk = BytesMut::with_capacity(FILE_CHUNK);
                let read =
                    file.read_buf(&mut chunk).await.map_err(|error| StorageError::from(BackendError::from(error)))?;
                Ok::<_, StorageError>((read > 0).then(|| (chunk.freeze(), file)))
            });
            self.put(at, &mut Box::pin(chunks), size).await
        })
    }

    /// Opens a version for reading.
    fn get<'a>(&'a self, at: &'a VersionKey, range: Option<ByteRange>) -> BackendFuture<'a, OpenContent>;

    /// Returns true if a version has content at this place now, whatever is in memory of it.
    fn exists<'a>(&'a self, at: &'a VersionKey) -> BackendFuture<'a, bool>;

    /// Stores the content of a version as another one.
    fn copy<'a>(&'a self, from: &'a VersionKey, to: &'a VersionKey) -> BackendFuture<'a, StoredContent>;

    /// Deletes a version. It is no error if it does not exist.
    fn delete<'a>(&'a self, at: &'a VersionKey) -> BackendFuture<'a, ()>;

    /// Deletes versions, also if one of them cannot be deleted. It is no error if one does not
    /// exist.
    fn delete_many<'a>(&'a self, versions: &'a [VersionKey]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let mut outcome = Ok(());
            for version in versions {
                outcome = outcome.and(self.delete(version).await);
            }
            outcome
        })
    }

    /// Returns the versions that are kept for an object, whether rows refer to them or not.
    fn versions<'a>(&'a self, bucket: &'a str, name: &'a str) -> BackendFuture<'a, Vec<KeptVersion>>;

    /// Returns the path of a version at this place.
    fn path(&self, at: &VersionKey) -> String;

    /// Checks that the place can be reached.
    fn check(&self) -> BackendFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Sends all files at this place. Ends when the receiver does.
    fn walk(&self, files: mpsc::Sender<StoredFile>) -> BackendFuture<'_, ()>;

    /// Deletes files by their paths. It is no error if one does not exist.
    fn remove<'a>(&'a self, paths: &'a [String]) -> BackendFuture<'a, ()>;

    /// Returns the number of interrupted uploads that [`sweep`](Self::sweep) would delete.
    fn interrupted(&self, grace: std::time::Duration) -> BackendFuture<'_, u64>;

    /// Deletes what interrupted uploads have left, if it did not change for `grace`.
    fn sweep(&self, grace: std::time::Duration) -> BackendFuture<'_, ()>;
}
