//! Work on files, apart from the threads of requests.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use portico_base::spawn_blocking;
use tokio::task::JoinHandle;

use crate::backend::model::BackendError;

/// Runs work on files on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    finished(spawn_blocking(work)).await
}

/// Waits for work on files.
pub(super) async fn finished<T>(work: JoinHandle<Result<T, BackendError>>) -> Result<T, BackendError> {
    work.await.unwrap_or_else(|error| Err(BackendError::Io(io::Error::other(error))))
}

/// Returns the time since which a file has its name and content.
pub(super) fn changed(metadata: &fs::Metadata) -> SystemTime {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}
