//! Resumable uploads: the protocol TUS 1.0.0 with `creation`, `creation-with-upload`,
//! `creation-defer-length`, `termination` and `expiration`.
//!
//! The bytes of an unfinished upload and a record of them are in a folder of their own (`store`).
//! An offset that a response names is durable. The last offset is recorded only after the commit,
//! so that a client that resumes never takes an upload for complete that has no object.
//!
//! Every request tests the permission under the caller's role as an upload does ([`upload::permit`]
//! of `object`), and the commit is that of every upload. An upload belongs to the user who created
//! it. One request at a time works on an upload; a newer one takes over (`lock`).
//!
//! [`upload::permit`]: crate::object::upload::permit

mod headers;
mod id;
mod lock;
mod metadata;
mod pending;
mod receive;
mod response;
mod routes;
mod session;
mod store;

use std::path::Path;
use std::time::Duration;

use time::OffsetDateTime;

use self::lock::UploadLocks;
use self::pending::PendingUploads;
pub(crate) use self::routes::answer;
use self::store::UploadStore;

/// The unfinished uploads, and the finished ones that have not expired yet.
pub(crate) struct ResumableUploads {
    store: UploadStore,
    locks: UploadLocks,
    pending: PendingUploads,
}

impl ResumableUploads {
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
