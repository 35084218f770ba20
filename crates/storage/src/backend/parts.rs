//! Versions that arrive in parts: each part is durable when it is acknowledged, and none is visible
//! before the version is assembled.

use std::collections::HashSet;
use std::time::Duration;

use md5::{Digest, Md5};
use portico_base::random;

use super::model::{BackendError, BackendFuture, ContentStream, StoredContent, VersionKey};
use super::path::is_uuid;

/// Names a version that arrives in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartedVersion {
    /// The name that the backend gave at the beginning: an opaque text.
    pub upload: String,
    /// The version that the parts become.
    pub at: VersionKey,
}

impl PartedVersion {
    /// Returns the name of the upload, with which a folder or the begin of a key may be made.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] for a text that no upload has.
    pub(super) fn folder(&self) -> Result<&str, BackendError> {
        if is_upload(&self.upload) { Ok(&self.upload) } else { Err(BackendError::NotFound) }
    }
}

/// Returns a name for a new upload.
pub(super) fn new_upload() -> String {
    random::uuid().to_string()
}

/// Returns true for the names that [`new_upload`] returns.
fn is_upload(name: &str) -> bool {
    is_uuid(name)
}

/// Returns true for the name of an upload that is not among `kept`.
pub(super) fn is_unknown_upload(name: &str, kept: &HashSet<String>) -> bool {
    is_upload(name) && !kept.contains(name)
}

/// Names the bytes of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartName {
    /// From 1 to 10,000.
    pub number: u16,
    /// A UUID. Each attempt to store a part has its own.
    pub id: String,
}

impl PartName {
    /// Returns the name of the file or the object, inside of the upload.
    pub fn file(&self) -> String {
        format!("{}-{}", self.number, self.id)
    }
}

/// A part that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredPart {
    pub name: PartName,
    /// The ETag without quotes: the MD5 of the part in hexadecimal digits.
    pub etag: String,
    pub size: u64,
}

/// A place of content that arrives in parts.
///
/// An upload is begun, receives parts in any order, and is either assembled or aborted. A part that
/// is stored again under its number leaves the one before usable.
pub(crate) trait PartStore: Send + Sync {
    /// Begins an upload. Returns the text that names it from now on.
    fn begin_parts(&self) -> BackendFuture<'_, String>;

    /// Stores a part of exactly `size` bytes. When it returns, the bytes are durable. What a
    /// failure or a cancellation leaves is deleted by [`delete_part`](Self::delete_part).
    ///
    /// Fails with [`NotFound`](super::BackendError::NotFound) if the upload has ended, and with
    /// [`TooLarge`](super::BackendError::TooLarge) if more arrives.
    fn put_part<'a>(
        &'a self,
        of: &'a PartedVersion,
        name: &'a PartName,
        content: ContentStream<'a>,
        size: u64,
    ) -> BackendFuture<'a, StoredPart>;

    /// Deletes a part. It is no error if it does not exist.
    fn delete_part<'a>(&'a self, of: &'a PartedVersion, name: &'a PartName) -> BackendFuture<'a, ()>;

    /// Stores the version that consists of these parts, in this order. The parts stay until
    /// [`abort_parts`](Self::abort_parts), if the backend can keep them, so that a failed commit
    /// can be repeated. The ETag is the MD5 of the parts' MD5s, `-`, and their number.
    fn assemble_parts<'a>(&'a self, of: &'a PartedVersion, parts: &'a [StoredPart])
    -> BackendFuture<'a, StoredContent>;

    /// Ends an upload and deletes its parts. It is no error if it has ended.
    fn abort_parts<'a>(&'a self, of: &'a PartedVersion) -> BackendFuture<'a, ()>;

    /// Ends the uploads that are not among `kept` and that did not change for `grace`.
    fn sweep_parts<'a>(&'a self, kept: &'a HashSet<String>, grace: Duration) -> BackendFuture<'a, ()>;
}

/// Returns the ETag of a version that was assembled from parts, with its quotes.
pub(crate) fn composite_etag(parts: &[StoredPart]) -> String {
    let mut digest = Md5::new();
    for part in parts {
        digest.update(hex::decode(&part.etag).unwrap_or_default());
    }
    format!("\"{}-{}\"", hex::encode(digest.finalize()), parts.len())
}
