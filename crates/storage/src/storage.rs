//! The public interface of the service.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use http::HeaderMap;
use portico_base::{CappedSemaphore, Clock};
use portico_database::wire::ReadCoalescer;
use portico_images::{Renderer, ResultCache};
use portico_tokens::CurrentKeys;

use crate::backend::folder::Folder;
use crate::backend::journal::Journal;
use crate::backend::object_store::S3Store;
use crate::backend::{Backend, VersionKey, cleanup};
use crate::object::multipart::{self, Completions};
use crate::resumable::ResumableUploads;
use crate::routes;
use crate::s3::XML_MEMORY;
use crate::settings::{BackendSettings, StorageSettings};

/// The state that all requests of the service share.
pub(crate) struct Service {
    pub settings: StorageSettings,
    pub keys: CurrentKeys,
    pub clock: Clock,
    /// Runs reads, and has the pool for writes.
    pub reads: ReadCoalescer,
    /// The role that the server logs in with, before it assumes the role of a request.
    pub login: String,
    pub backend: Arc<dyn Backend>,
    pub journal: Journal,
    pub resumable: ResumableUploads,
    /// Bounds the uploads that are received at the same time.
    pub uploads: CappedSemaphore,
    /// Bounds the bytes of the XML bodies that are received at the same time.
    pub xml_memory: CappedSemaphore,
    /// Renders images, unless they are switched off.
    pub renderer: Option<Renderer>,
    pub completions: Completions,
    /// The versions that are being stored and whose rows are not committed yet. However old their
    /// content looks, no clean-up deletes it.
    pub in_progress: Mutex<HashSet<VersionKey>>,
}

impl Service {
    /// Returns the versions that are being stored.
    pub fn in_progress(&self) -> MutexGuard<'_, HashSet<VersionKey>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The storage service. Clones share all state.
#[derive(Clone)]
pub struct Storage {
    service: Arc<Service>,
}

impl Storage {
    /// Makes the service on connections that act as `authenticator`, of a server that logs in as
    /// `login`.
    ///
    /// # Errors
    /// When the folder of the content cannot be made, or the settings of the store are invalid.
    pub fn new(
        settings: StorageSettings,
        reads: ReadCoalescer,
        login: &str,
        keys: CurrentKeys,
        clock: Clock,
    ) -> std::io::Result<Self> {
        let backend: Arc<dyn Backend> = match &settings.backend {
            BackendSettings::Folder(root) => Arc::new(Folder::open(root)?),
            BackendSettings::S3 { store, .. } => Arc::new(S3Store::new(store, clock.clone())?),
        };
        let journal = Journal::open(&settings.backend.folder().join("journal"))?;
        let resumable = ResumableUploads::open(&settings.backend.folder().join("resumable"))?;
        let uploads = CappedSemaphore::new(settings.max_uploads);
        let renderer = match &settings.images {
            Some(images) => {
                let cache = ResultCache::open(&images.cache_folder, images.cache_bytes)?;
                Some(Renderer::new(images.rendering.clone(), Some(cache)))
            }
            None => None,
        };
        let login = login.to_owned();
        let service = Service {
            settings,
            keys,
            clock,
            reads,
            login,
            backend,
            journal,
            resumable,
            uploads,
            xml_memory: CappedSemaphore::new(XML_MEMORY),
            completions: Completions::default(),
            in_progress: Mutex::default(),
            renderer,
        };
        Ok(Self { service: Arc::new(service) })
    }

    /// Answers a request below `/storage/v1`; its path comes without that prefix. `forwarded` adds
    /// the headers that SQL sees in addition: the client's address and the original URL.
    pub async fn answer(self, request: Request, forwarded: impl Fn(&mut HeaderMap) + Send + Sync) -> Response {
        routes::answer(&self.service, request, &forwarded).await
    }

    /// Deletes content without a row that is older than `grace`, as far as the journal names it:
    /// what a crash has left of uploads and deletions. Deletes resumable uploads that have expired.
    pub async fn clean_up(&self, grace: Duration) {
        cleanup::run(&self.service, grace).await;
        self.service.resumable.sweep(self.service.clock.now(), grace).await;
    }

    /// Ends the uploads in parts that were begun before `age`, and deletes parts without an upload
    /// that are as old. Returns the ended uploads as `bucket/key`.
    ///
    /// # Errors
    /// The text for people of the first error.
    pub async fn end_abandoned_uploads(&self, age: Duration) -> Result<Vec<String>, String> {
        let ended = multipart::end_abandoned(&self.service, age).await;
        let ended = ended.map_err(|error| error.message().into_owned())?;
        Ok(ended.into_iter().map(|path| format!("{}/{}", path.bucket, path.name)).collect())
    }

    /// Returns the state that requests share.
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Closes the connections to the database.
    pub fn close(&self) {
        self.service.reads.pool().close();
    }

    /// Returns the age from which content without a row is deleted.
    pub fn grace(&self) -> Duration {
        self.service.settings.grace
    }
}
