//! A version whose row is not committed yet.

use std::sync::Arc;

use portico_base::random;
use tokio::runtime::Handle;

use crate::backend::journal::{JournalEntry, JournalNames};
use crate::backend::{VersionKey, cleanup};
use crate::error::Result;
use crate::storage::Service;

/// A version whose row is not committed yet. Its content is deleted if this is dropped.
pub(crate) struct NewVersion {
    service: Arc<Service>,
    key: VersionKey,
    /// `None` once it is decided what becomes of the content.
    entry: Option<JournalEntry>,
}

impl NewVersion {
    /// Makes an id for a new version and enters the object in the journal.
    pub async fn begin(service: &Arc<Service>, bucket: &str, name: &str) -> Result<Self> {
        let names = JournalNames { bucket: bucket.to_owned(), names: vec![name.to_owned()] };
        let entry = service.journal.enter(names).await?;
        let version = random::uuid().to_string();
        let key = VersionKey { bucket: bucket.to_owned(), name: name.to_owned(), version: Some(version) };
        Ok(Self { service: Arc::clone(service), key, entry: Some(entry) })
    }

    /// Returns the key of the content.
    pub fn key(&self) -> &VersionKey {
        &self.key
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        self.key.version.as_deref().unwrap_or_default()
    }

    /// Keeps the content, whose row is committed, and deletes the versions that it has replaced.
    pub fn committed(mut self, replaced: Vec<VersionKey>) {
        if let Some(entry) = self.entry.take() {
            let service = Arc::clone(&self.service);
            tokio::spawn(async move { cleanup::delete_versions(&service, entry, replaced).await });
        }
    }

    /// Keeps the content for now: whether its row is committed is not known. The clean-up decides.
    pub fn undecided(mut self) {
        self.entry = None;
    }
}

impl Drop for NewVersion {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let (service, key) = (Arc::clone(&self.service), self.key.clone());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { cleanup::delete_versions(&service, entry, vec![key]).await });
        }
    }
}
