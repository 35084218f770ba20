//! The work on one upload: permission, bytes, commit.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use portico_base::{inherit_request, random};
use portico_database::wire::RowSeparators;
use uuid::Uuid;

use super::id::ResumableId;
use super::metadata::UploadMetadata;
use super::receive::{BodyEnd, ReceivedBytes, receive};
use super::response::TusError;
use crate::backend::BackendError;
use crate::error::StorageError;
use crate::http::body::UploadBody;
use crate::model::NamedVersion;
use crate::object::upload::{self, UploadAuthority, UploadPermit, UploadRequest};
use crate::operation::{Actor, Operation, SqlStep};
use crate::service::StorageService;
use crate::sql;
use crate::unfinished::{UnfinishedUploads, UploadLock, UploadProgress, UploadRecord};

/// The time for which a request waits until another one stops working on an upload.
const LOCK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// The rights of a request to an upload.
#[derive(Clone)]
pub(super) struct UploadAccess {
    pub operation: Operation,
    pub authority: UploadAuthority,
    pub upsert: bool,
}

/// The state of an upload after a request.
#[derive(Debug)]
pub(super) struct UploadState {
    pub record: UploadRecord,
    pub offset: u64,
}

/// An upload that a request works on.
pub(super) struct LockedUpload {
    pub lock: UploadLock,
    pub record: UploadRecord,
    /// The size of the whole content, as the record or the request says it.
    pub length: Option<u64>,
}

impl UploadAccess {
    fn service(&self) -> &Arc<StorageService> {
        &self.operation.service
    }

    /// Returns the user for whom the request acts; `None` for the server itself.
    fn subject(&self) -> Option<&str> {
        match &self.authority {
            UploadAuthority::Caller => self.operation.known_caller().and_then(|caller| caller.subject.as_deref()),
            UploadAuthority::SignedUrl(owner) => owner.id.as_deref(),
        }
    }

    /// Returns true if the request may work on uploads of this user. What the server or a visitor
    /// has created belongs to those who have its address.
    fn may_continue(&self, creator: Option<&str>) -> bool {
        let is_service = self.operation.known_caller().is_some_and(|caller| caller.is_service_role());
        creator.is_none() || is_service || creator == self.subject()
    }

    /// Checks whether the upload is allowed, as the policies see it when it is complete.
    ///
    /// # Errors
    /// The first check that fails.
    pub async fn permit(
        &self,
        id: &ResumableId,
        metadata: &UploadMetadata,
        length: Option<u64>,
    ) -> Result<UploadPermit, StorageError> {
        let request = UploadRequest {
            target: id.target.clone(),
            upsert: self.upsert,
            content_length: length,
            exact_size: length,
            has_content: true,
            description: metadata.description(),
        };
        upload::permit(&self.operation, &request, self.authority.clone()).await
    }

    /// Returns the name under which new uploads count for the bound on unfinished ones; `None` for
    /// the server itself, which has no bound.
    fn counted_as(&self) -> Option<String> {
        self.operation.bounded_requester(self.subject())
    }

    /// Creates an upload without bytes.
    ///
    /// # Errors
    /// When it cannot be written, or there are too many unfinished ones.
    pub async fn create(
        &self,
        id: &ResumableId,
        metadata: &UploadMetadata,
        length: Option<u64>,
    ) -> Result<UploadRecord, TusError> {
        let service = self.service();
        let expires = service.clock.now() + service.settings.resumable_lifetime;
        let record = UploadRecord {
            bucket: id.target.bucket.clone(),
            name: id.target.name.clone(),
            length,
            metadata: metadata.to_header(),
            subject: self.subject().map(str::to_owned),
            requester: self.counted_as(),
            expires: expires.unix_timestamp(),
            progress: UploadProgress::default(),
            commit: None,
            is_finished: false,
        };
        let UnfinishedUploads { store, pending, .. } = &service.unfinished;
        let most = service.settings.max_pending_uploads;
        if record.requester.as_deref().is_some_and(|requester| !pending.add(id.version, requester, most)) {
            return Err(TusError::TooManyPending);
        }
        if let Err(error) = store.create(id.version, &record).await {
            pending.remove(id.version);
            return Err(storage_error(error));
        }
        Ok(record)
    }

    /// Returns the record of an upload that this request may work on.
    ///
    /// # Errors
    /// [`TusError::NoSuchUpload`], also for one of another user, and [`TusError::Expired`].
    pub async fn find(&self, id: &ResumableId) -> Result<UploadRecord, TusError> {
        let service = self.service();
        let record = service.unfinished.store.load(id.version).await.map_err(storage_error)?;
        let is_own = |record: &UploadRecord| record.is_of(&id.target) && self.may_continue(record.subject.as_deref());
        let record = record.filter(is_own).ok_or(TusError::NoSuchUpload)?;
        if record.has_expired(service.clock.now()) { Err(TusError::Expired) } else { Ok(record) }
    }

    /// Waits for the right to work on an upload, and returns its record as it is then.
    ///
    /// # Errors
    /// [`StorageError::LockTimeout`], and those of [`find`](Self::find).
    pub async fn take_over(&self, id: &ResumableId) -> Result<(UploadLock, UploadRecord), TusError> {
        let service = self.service();
        let lock = service.unfinished.locks.take_over(id.version, LOCK_PATIENCE).await;
        let lock = lock.ok_or(TusError::Storage(StorageError::LockTimeout))?;
        let mut record = self.find(id).await?;
        self.settle(id, &mut record).await?;
        Ok((lock, record))
    }

    /// Finds out whether a commit has taken effect whose outcome was not recorded, and whether the
    /// object of a finished upload is still there.
    async fn settle(&self, id: &ResumableId, record: &mut UploadRecord) -> Result<(), TusError> {
        let Some(commit) = &record.commit else { return Ok(()) };
        let names = sql::text_array([&id.target.name]);
        let values = [Some(id.target.bucket.as_bytes()), Some(names.as_bytes())];
        let step = SqlStep { text: sql::CURRENT_VERSIONS, values: &values };
        let rows = self.operation.read(Actor::Service, step, RowSeparators::default()).await?;
        let is_current = rows.one::<NamedVersion>()?.is_some_and(|row| row.version.as_deref() == Some(commit));
        match (record.is_finished, is_current) {
            // Deleted or replaced since: a client that stores the file again needs another upload
            (true, false) => Err(TusError::NoSuchUpload),
            (false, true) => {
                self.finish(id, record).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Receives bytes and commits the upload if it is complete. It is not cancelled with the
    /// request, so that the bytes that have arrived are always recorded.
    ///
    /// # Errors
    /// Those of the sender, of the disk and of the commit; the upload stays, as far as it is
    /// durable.
    pub async fn extend(
        &self,
        id: &ResumableId,
        permit: UploadPermit,
        upload: LockedUpload,
        body: Body,
    ) -> Result<UploadState, TusError> {
        let (access, id) = (self.clone(), id.clone());
        let task = tokio::spawn(inherit_request(async move { access.extend_locked(&id, permit, upload, body).await }));
        task.await.unwrap_or_else(|error| {
            tracing::error!(error = %error, "a resumable upload could not be continued");
            Err(TusError::Storage(StorageError::Internal))
        })
    }

    async fn extend_locked(
        &self,
        id: &ResumableId,
        permit: UploadPermit,
        upload: LockedUpload,
        body: Body,
    ) -> Result<UploadState, TusError> {
        let LockedUpload { mut lock, record: stored, length: total } = upload;
        let service = self.service();
        let _slot = self.operation.upload_slot().await?;
        let store = &service.unfinished.store;
        let limit = total.unwrap_or(permit.size_limit());
        // Space is only reserved for the bytes that the request declares
        let declared = body.size_hint().exact().unwrap_or_default();
        let end = limit.min(stored.progress.offset.saturating_add(declared));
        let content = match store.append_to(id.version, &stored.progress, end).await {
            Err(BackendError::NotFound) => {
                tracing::error!(upload = %id.version, "the bytes of a resumable upload are lost");
                self.remove(id).await?;
                return Err(TusError::NoSuchUpload);
            }
            opened => opened.map_err(storage_error)?,
        };
        let mut record = UploadRecord { length: total, ..stored.clone() };
        let body = UploadBody::new(body, &service.settings);
        let ReceivedBytes { durable, end } =
            receive(store, (id.version, &mut record), content, (body, limit), &mut lock).await;
        if let Some((content, progress)) = durable {
            if total == Some(progress.offset) {
                self.commit(id, permit, &mut record, &content.etag()).await?;
                return Ok(UploadState { offset: progress.offset, record });
            }
            record.progress = progress;
        }
        if matches!(end, BodyEnd::TooLong) {
            record = stored;
            store.save(id.version, &record).await.map_err(storage_error)?;
        } else if record != stored {
            store.save(id.version, &record).await.map_err(storage_error)?;
        }
        match end {
            BodyEnd::Complete => Ok(UploadState { offset: record.progress.offset, record }),
            BodyEnd::Broken(error) => Err(TusError::Storage(error)),
            BodyEnd::TakenOver => Err(TusError::TakenOver),
            BodyEnd::TooLong => Err(TusError::SizeExceeded),
            BodyEnd::NotWritten(error) => Err(storage_error(error)),
        }
    }

    /// Makes the complete content an object. If that fails, the bytes of the last request are sent
    /// again.
    async fn commit(
        &self,
        id: &ResumableId,
        permit: UploadPermit,
        record: &mut UploadRecord,
        etag: &str,
    ) -> Result<(), TusError> {
        let store = &self.service().unfinished.store;
        // The content of a commit that has failed may still be deleted
        let version = match &record.commit {
            None => id.version.to_string(),
            Some(_) => random::uuid().to_string(),
        };
        record.commit = Some(version.clone());
        store.save(id.version, record).await.map_err(storage_error)?;
        let metadata = parsed(record)?;
        let file = store.bytes_of(id.version);
        let received = upload::receive_file(&self.operation, &permit, version, &file, etag.to_owned()).await?;
        upload::commit(&self.operation, permit, received, metadata.description()).await?;
        self.finish(id, record).await;
        Ok(())
    }

    /// Records that the object is stored. If that fails, the next request finds it out by the row.
    async fn finish(&self, id: &ResumableId, record: &mut UploadRecord) {
        let UnfinishedUploads { store, pending, .. } = &self.service().unfinished;
        pending.remove(id.version);
        record.progress.offset = record.length.unwrap_or(record.progress.offset);
        record.is_finished = true;
        let outcome = match store.save(id.version, record).await {
            Ok(()) => store.remove_bytes(id.version).await,
            failed => failed,
        };
        if let Err(error) = outcome {
            tracing::warn!(error = %error, "the end of a resumable upload could not be recorded");
        }
    }

    /// Deletes an upload.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub async fn remove(&self, id: &ResumableId) -> Result<(), TusError> {
        let UnfinishedUploads { store, pending, .. } = &self.service().unfinished;
        store.remove(id.version).await.map_err(storage_error)?;
        pending.remove(id.version);
        Ok(())
    }
}

/// Returns the metadata of a record.
///
/// # Errors
/// [`StorageError::Internal`] if it has another form.
pub(super) fn parsed(record: &UploadRecord) -> Result<UploadMetadata, TusError> {
    UploadMetadata::parse(&record.metadata).ok_or(TusError::Storage(StorageError::Internal))
}

/// Returns the error of a failure of the folder of the uploads.
fn storage_error(error: BackendError) -> TusError {
    TusError::Storage(match error {
        BackendError::NotFound => StorageError::Internal,
        other => other.into(),
    })
}

/// Returns a new version for an upload.
pub(super) fn new_version() -> Uuid {
    random::uuid()
}
