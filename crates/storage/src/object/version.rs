//! A version whose row is not committed yet.

use std::sync::Arc;

use portico_base::{inherit_request, random};
use tokio::runtime::Handle;

use crate::backend::VersionKey;
use crate::backend::journal::{JournalEntry, JournalNames};
use crate::error::Result;
use crate::service::StorageService;

/// A version whose row is not committed yet. If this is dropped, its content is deleted, unless the
/// commit has been sent: then the clean-up decides, by the row.
pub(crate) struct NewVersion {
    service: Arc<StorageService>,
    key: VersionKey,
    /// `None` once it is decided what becomes of the content.
    entry: Option<JournalEntry>,
    progress: VersionProgress,
}

/// The progress of a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VersionProgress {
    /// The backend may be writing the content.
    Receiving,
    /// The backend has returned.
    Received,
    /// The row may be committed.
    CommitSent,
}

impl NewVersion {
    /// Makes an id for a new version and enters the object in the journal.
    pub async fn begin(service: &Arc<StorageService>, bucket: &str, name: &str) -> Result<Self> {
        Self::with_id(service, bucket, name, random::uuid().to_string()).await
    }

    /// Enters the object of a new version in the journal. No version ever had this id: the content
    /// of an earlier one may still be deleted.
    pub async fn with_id(service: &Arc<StorageService>, bucket: &str, name: &str, version: String) -> Result<Self> {
        let names = JournalNames { bucket: bucket.to_owned(), names: vec![name.to_owned()] };
        let entry = service.journal.enter(names).await?;
        let key = VersionKey { bucket: bucket.to_owned(), name: name.to_owned(), version: Some(version) };
        service.in_progress().insert(key.clone());
        Ok(Self { service: Arc::clone(service), key, entry: Some(entry), progress: VersionProgress::Receiving })
    }

    /// Returns the key of the content.
    pub fn key(&self) -> &VersionKey {
        &self.key
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        self.key.version.as_deref().unwrap_or_default()
    }

    /// Records that the backend has returned, with or without an error.
    pub fn received(&mut self) {
        self.progress = VersionProgress::Received;
    }

    /// Records that the row may be committed from now on.
    pub fn commit_sent(&mut self) {
        self.progress = VersionProgress::CommitSent;
    }

    /// Keeps the content, whose row is committed, and deletes the versions that it has replaced.
    pub fn committed(mut self, replaced: Vec<VersionKey>) {
        if let Some(entry) = self.entry.take() {
            let service = Arc::clone(&self.service);
            tokio::spawn(inherit_request(async move { delete_versions(&service, entry, replaced).await }));
        }
    }

    /// Deletes the content, whose row is known not to be committed.
    pub fn rolled_back(mut self) {
        self.progress = VersionProgress::Received;
    }
}

impl Drop for NewVersion {
    fn drop(&mut self) {
        self.service.in_progress().remove(&self.key);
        let Some(entry) = self.entry.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (service, key) = (Arc::clone(&self.service), self.key.clone());
        match self.progress {
            VersionProgress::Receiving => {
                // The write that was cancelled may still be running on another thread and move the
                // content to its place after this deletion, so the entry stays
                runtime.spawn(inherit_request(async move {
                    if let Err(error) = service.backend.delete(&key).await {
                        tracing::warn!(error = %error, "the content of a cancelled upload could not be deleted");
                    }
                    entry.leave().await;
                }));
            }
            VersionProgress::Received => {
                runtime.spawn(inherit_request(async move { delete_versions(&service, entry, vec![key]).await }));
            }
            VersionProgress::CommitSent => {}
        }
    }
}

/// Deletes versions that no row refers to any more, and closes the entry if nothing is left. What
/// fails is left for the clean-up.
pub(crate) async fn delete_versions(service: &StorageService, entry: JournalEntry, versions: Vec<VersionKey>) {
    let deleted = service.backend.delete_many(&versions).await;
    // Behind the deletion of the content: nothing can be rendered from it any more
    service.evict_images(&versions).await;
    match deleted {
        Ok(()) => entry.close().await,
        Err(error) => tracing::warn!(error = %error, "content that is no longer used could not be deleted"),
    }
}
