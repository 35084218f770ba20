//! The types of every backend: versions, their content, and errors.

use std::future::Future;
use std::pin::Pin;
use std::time::SystemTime;

use axum::body::Body;
use bytes::Bytes;
use futures_util::Stream;
use time::OffsetDateTime;

use crate::error::StorageError;

/// The future of a backend's operation.
pub(crate) type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// The bytes of an upload, as they arrive.
pub(crate) type ContentStream<'a> = &'a mut (dyn Stream<Item = Result<Bytes, StorageError>> + Send + Unpin);

/// Names one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct VersionKey {
    pub bucket: String,
    pub name: String,
    /// The id of the version; `None` in rows that have none.
    pub version: Option<String>,
}

impl VersionKey {
    /// Returns the key of a version of an object.
    pub fn new(bucket: &str, name: &str, version: Option<&str>) -> Self {
        Self { bucket: bucket.to_owned(), name: name.to_owned(), version: version.map(str::to_owned) }
    }
}

/// The facts about a stored version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredContent {
    /// The ETag with its quotes; `None` if the backend knows it only where it stores the bytes.
    pub etag: Option<String>,
    pub size: u64,
    pub modified: OffsetDateTime,
}

/// A version that is kept, for the clean-up.
#[derive(Debug, Clone)]
pub(crate) struct KeptVersion {
    pub key: VersionKey,
    /// The time since which it is there.
    pub since: SystemTime,
}

/// A file or an object at the place of the content, whatever it is.
#[derive(Debug, Clone)]
pub(crate) struct StoredFile {
    /// Its path or key, as [`Backend::path`] returns it.
    pub path: String,
    pub size: u64,
    /// The time since which it is there.
    pub since: SystemTime,
    /// True if it has the name of a version. Everything else is not this service's.
    pub is_version: bool,
}

/// A range of the content, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// From the first to the second position, or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

impl ByteRange {
    /// Returns the first position and the one after the last; `None` if the content has no such
    /// bytes.
    pub fn resolve(self, size: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Self::From(start, end) => (start, end.map_or(size, |end| end.saturating_add(1).min(size))),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (start < end).then_some((start, end))
    }
}

/// Content that is ready to be sent.
pub(crate) struct OpenContent {
    /// The size of the whole content.
    pub size: u64,
    /// The bytes that the body has: the first position and the one after the last.
    pub range: (u64, u64),
    pub body: Body,
}

/// The reason why a backend's operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error("there is no such content")]
    NotFound,
    #[error("the content does not have these bytes")]
    Range,
    #[error("the content is larger than allowed")]
    TooLarge,
    #[error("there is no space left")]
    Full,
    /// The sender of the content failed.
    #[error("the content did not arrive")]
    Source(StorageError),
    #[error(transparent)]
    Io(std::io::Error),
}

impl From<std::io::Error> for BackendError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::NotFound,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            ErrorKind::FileTooLarge => Self::TooLarge,
            _ => Self::Io(error),
        }
    }
}

impl From<BackendError> for StorageError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::NotFound => Self::ContentLost,
            BackendError::Range => Self::InvalidRange,
            BackendError::TooLarge => Self::TooLarge("object"),
            BackendError::Full => Self::DiskFull,
            BackendError::Source(error) => error,
            BackendError::Io(error) => {
                tracing::error!(error = %error, "the content of an object could not be read or written");
                Self::Internal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_clamped_to_the_size() {
        for (range, size, resolved) in [
            (ByteRange::From(0, Some(4)), 10, Some((0, 5))),
            (ByteRange::From(5, None), 10, Some((5, 10))),
            (ByteRange::From(5, Some(100)), 10, Some((5, 10))),
            (ByteRange::From(9, Some(9)), 10, Some((9, 10))),
            (ByteRange::From(10, None), 10, None),
            (ByteRange::From(0, None), 0, None),
            (ByteRange::From(5, Some(4)), 10, None),
            (ByteRange::Last(3), 10, Some((7, 10))),
            (ByteRange::Last(30), 10, Some((0, 10))),
            (ByteRange::Last(0), 10, None),
            (ByteRange::Last(1), 0, None),
        ] {
            assert_eq!(range.resolve(size), resolved, "{range:?} {size}");
        }
    }

    proptest! {
        #[test]
        fn a_resolved_range_is_inside_of_the_content(a: u64, b: Option<u64>, size: u64) {
            for range in [ByteRange::From(a, b), ByteRange::Last(a)] {
                if let Some((start, end)) = range.resolve(size) {
                    prop_assert!(start < end && end <= size);
                }
            }
        }
    }
}
