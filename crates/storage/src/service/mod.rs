//! The state that all requests of the service share.

mod completions;
mod private_buckets;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portico_base::{CappedSemaphore, Clock};
use portico_database::wire::{FixedRead, ReadCoalescer};
use portico_images::Renderer;
use portico_tokens::CurrentKeys;

pub(crate) use self::completions::Completions;
pub(crate) use self::private_buckets::PrivateBuckets;
use crate::backend::journal::Journal;
use crate::backend::{Backend, VersionKey};
use crate::settings::StorageSettings;
use crate::unfinished::UnfinishedUploads;

/// The largest XML body, in bytes: that of 10,000 parts with checksums.
pub(crate) const MAX_XML: usize = 4 * 1024 * 1024;
/// The memory for the bodies, fields and documents of all requests that are held whole, in bytes.
pub(crate) const BODY_MEMORY: usize = 16 * MAX_XML;

/// The state that all requests of the service share.
pub(crate) struct StorageService {
    pub settings: StorageSettings,
    pub keys: CurrentKeys,
    pub clock: Clock,
    /// Runs reads, and has the pool for writes.
    pub reads: ReadCoalescer,
    /// Reads an object and its bucket as the owner of the tables, for what does not depend on a
    /// caller. Nothing of a request but the names reaches its sessions.
    pub find_object: FixedRead<2>,
    pub private_buckets: PrivateBuckets,
    /// The role that the server logs in with, before it assumes the role of a request.
    pub login: String,
    pub backend: Arc<dyn Backend>,
    pub journal: Journal,
    pub unfinished: UnfinishedUploads,
    /// Bounds the uploads that are received at the same time.
    pub uploads: CappedSemaphore,
    /// Bounds the bytes of the bodies that are held in memory at the same time: XML, JSON, and the
    /// fields of forms.
    pub body_memory: CappedSemaphore,
    /// Renders images, unless they are switched off.
    pub renderer: Option<Renderer>,
    pub completions: Completions,
    /// The versions that are being stored and whose rows are not committed yet. However old their
    /// content looks, no clean-up deletes it.
    pub in_progress: Mutex<HashSet<VersionKey>>,
    /// Held by the clean-up: two at a time would do the same work.
    pub cleaning_up: tokio::sync::Mutex<()>,
}

impl StorageService {
    /// Returns the versions that are being stored.
    pub fn in_progress(&self) -> MutexGuard<'_, HashSet<VersionKey>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the rendered images of versions whose content is deleted.
    pub async fn evict_images(&self, versions: &[VersionKey]) {
        self.evict_images_of(versions.iter().map(|version| self.backend.path(version)).collect()).await;
    }

    /// Removes the rendered images of content that is deleted, by the paths in its backend.
    pub async fn evict_images_of(&self, paths: Vec<String>) {
        if let Some(renderer) = &self.renderer
            && !paths.is_empty()
        {
            renderer.evict(paths).await;
        }
    }
}
