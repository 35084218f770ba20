//! The unfinished resumable uploads, and the finished ones that have not expired yet.
//!
//! The bytes of each upload (`partial_content`) and a `record` of them are in a folder of their own
//! (`store`). One request at a time works on an upload; a newer one takes over (`lock`). What one
//! requester may leave unfinished is bounded (`pending`).

mod lock;
mod partial_content;
mod pending;
mod record;
mod store;

use std::path::Path;
use std::time::Duration;

use time::OffsetDateTime;

pub(crate) use self::lock::UploadLock;
use self::lock::UploadLocks;
pub(crate) use self::partial_content::PartialContent;
use self::pending::PendingUploads;
pub(crate) use self::record::{UploadProgress, UploadRecord};
pub(crate) use self::store::UploadStore;

/// The unfinished uploads, and the finished ones that have not expired yet.
pub(crate) struct UnfinishedUploads {
    pub store: UploadStore,
    pub locks: UploadLocks,
    pub pending: PendingUploads,
}

impl UnfinishedUploads {
    /// Opens the folder of the uploads, which is made if it does not exist.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        let store = UploadStore::open(folder)?;
        let pending = PendingUploads::of(store.unfinished()?);
        Ok(Self { store, locks: UploadLocks::default(), pending })
    }

    /// Deletes the uploads that have expired, and files without a record that are older than
    /// `grace`.
    pub async fn sweep(&self, now: OffsetDateTime, grace: Duration) {
        let expired = match self.store.expired(now, grace).await {
            Ok(expired) => expired,
            Err(error) => {
                tracing::warn!(error = %error, "the folder of resumable uploads could not be read");
                return;
            }
        };
        for version in expired {
            // One that is receiving is deleted next time
            let Some(_lock) = self.locks.try_acquire(version) else { continue };
            match self.store.remove(version).await {
                Ok(()) => self.pending.remove(version),
                Err(error) => tracing::warn!(error = %error, "an expired resumable upload could not be deleted"),
            }
        }
    }
}
