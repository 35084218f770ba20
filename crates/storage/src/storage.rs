//! The public interface of the service.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use http::HeaderMap;
use portico_base::{CappedSemaphore, Clock, ForwardedHeaders};
use portico_database::Endpoint;
use portico_database::wire::{FixedRead, ReadCoalescer};
use portico_images::{Renderer, ResultCache};
use portico_tokens::CurrentKeys;
use time::OffsetDateTime;
use time::macros::datetime;

use crate::backend::Backend;
use crate::backend::folder::ContentFolder;
use crate::backend::journal::Journal;
use crate::backend::object_store::S3Store;
use crate::gc::{GcError, GcOptions};
use crate::object::multipart;
use crate::service::{BODY_MEMORY, Completions, PrivateBuckets, StorageService};
use crate::settings::{BackendSettings, StorageSettings};
use crate::unfinished::UnfinishedUploads;
use crate::{clean_up, routes, sql};

/// Every upload has expired then.
const END_OF_TIME: OffsetDateTime = datetime!(9999-12-31 23:59:59 UTC);

/// The storage service. Clones share all state.
#[derive(Clone)]
pub struct Storage {
    service: Arc<StorageService>,
}

impl Storage {
    /// Makes the service on connections that act as `authenticator`, and on some of its own to the
    /// same database, which is at `endpoint`.
    ///
    /// # Errors
    /// When the folder of the content cannot be made, or the settings of the store or the endpoint
    /// are invalid.
    pub fn new(
        settings: StorageSettings,
        reads: ReadCoalescer,
        endpoint: &Endpoint,
        keys: CurrentKeys,
        clock: Clock,
    ) -> std::io::Result<Self> {
        let backend: Arc<dyn Backend> = match &settings.backend {
            BackendSettings::Folder(root) => Arc::new(ContentFolder::open(root)?),
            BackendSettings::S3 { store, .. } => Arc::new(S3Store::new(store, clock.clone())?),
        };
        let journal = Journal::open(&settings.backend.folder().join("journal"))?;
        let unfinished = UnfinishedUploads::open(&settings.backend.folder().join("resumable"))?;
        let uploads = CappedSemaphore::new(settings.max_uploads);
        let renderer = match &settings.images {
            Some(images) => {
                let cache = ResultCache::open(&images.cache_folder, images.cache_bytes)?;
                Some(Renderer::new(images.rendering.clone(), Some(cache)))
            }
            None => None,
        };
        let find_object = FixedRead::open(endpoint, sql::OWNER, sql::FIND_OBJECTS_AS_OWNER, settings.look_up_patience);
        let find_object = find_object.map_err(std::io::Error::other)?;
        let login = endpoint.user().to_owned();
        let service = StorageService {
            settings,
            keys,
            clock,
            reads,
            find_object,
            private_buckets: PrivateBuckets::default(),
            login,
            backend,
            journal,
            unfinished,
            uploads,
            body_memory: CappedSemaphore::new(BODY_MEMORY),
            completions: Completions::default(),
            in_progress: Mutex::default(),
            cleaning_up: tokio::sync::Mutex::default(),
            renderer,
        };
        Ok(Self { service: Arc::new(service) })
    }

    /// Responds to a request below `/storage/v1`; its path comes without that prefix. `forwarded`
    /// adds the headers that SQL sees in addition: the client's address and the original URL.
    pub async fn respond(self, request: Request, forwarded: impl Fn(&mut HeaderMap) + Send + Sync) -> Response {
        routes::respond(&self.service, request, ForwardedHeaders::new(&forwarded)).await
    }

    /// Deletes content without a row that is older than `grace`, as far as the journal names it:
    /// what a crash has left of uploads and deletions. Deletes resumable uploads that have expired.
    /// Waits for a clean-up that has begun before.
    pub async fn clean_up(&self, grace: Duration) {
        let _turn = self.service.cleaning_up.lock().await;
        clean_up::run(&self.service, grace).await;
        self.service.unfinished.sweep(self.service.clock.now(), grace).await;
    }

    /// Deletes the content that belongs to no object and the uploads that are not finished,
    /// whatever their age: for a database that was made anew. Content in an object store stays,
    /// which other servers may use.
    ///
    /// # Errors
    /// When the database or the folder of the content cannot be read or changed.
    pub async fn discard_earlier_content(&self) -> Result<(), GcError> {
        let StorageService { unfinished, settings, .. } = &*self.service;
        unfinished.sweep(END_OF_TIME, Duration::ZERO).await;
        if matches!(settings.backend, BackendSettings::Folder(_)) {
            let options = GcOptions { grace: Duration::ZERO, delete_content: true, delete_rows: false };
            self.collect_garbage(options, &|_| {}).await?;
            clean_up::run(&self.service, Duration::ZERO).await;
        }
        Ok(())
    }

    /// Checks that the place of the content can be reached.
    ///
    /// # Errors
    /// The text for people.
    pub async fn check_backend(&self) -> Result<(), String> {
        self.service.backend.check().await.map_err(|error| error.to_string())
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
    pub(crate) fn service(&self) -> &Arc<StorageService> {
        &self.service
    }

    /// Closes the connections to the database.
    pub fn close(&self) {
        self.service.reads.pool().close();
        self.service.find_object.close();
    }

    /// Returns the age from which content without a row is deleted.
    pub fn grace(&self) -> Duration {
        self.service.settings.grace
    }
}
