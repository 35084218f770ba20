//! The life of an upload in parts, from its beginning to its last part or its abort.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use portico_base::{inherit_request, random};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::backend::parts::{PartName, PartedVersion, StoredPart};
use crate::backend::{BackendError, ContentStream, VersionKey};
use crate::error::{Result, S3Error, StorageError};
use crate::identity::CallerIdentity;
use crate::media_type::OCTETS;
use crate::model::NO_CACHE;
use crate::name::ObjectPath;
use crate::object::upload::{self, ContentDescription, UploadAuthority, UploadPermit, UploadRequest};
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep, TransactionEnd, WriteError, parse};
use crate::service::StorageService;
use crate::sql;
use crate::sql::multipart as statements;

/// The largest number of a part.
pub(crate) const MAX_PART_NUMBER: u16 = 10_000;
/// The largest part, in bytes.
pub(crate) const MAX_PART_SIZE: u64 = 5 * 1024 * 1024 * 1024;

/// An upload that has begun and has not ended.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MultipartUpload {
    pub id: String,
    pub bucket: String,
    pub key: String,
    pub version: String,
    pub owner_id: Option<String>,
    pub metadata: Option<Value>,
    pub user_metadata: Option<Value>,
    /// The size of the parts besides the one that the request is about.
    pub other_size: u64,
}

/// A part as the bookkeeping knows it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartRow {
    pub id: String,
    pub number: u16,
    pub etag: String,
    pub size: u64,
    pub created_at: String,
}

/// Names an upload of a request. Nothing is known about it.
#[derive(Debug, Clone)]
pub(crate) struct UploadName {
    pub target: ObjectPath,
    pub id: String,
}

impl MultipartUpload {
    fn parted(&self) -> PartedVersion {
        let at = VersionKey::new(&self.bucket, &self.key, Some(&self.version));
        PartedVersion { upload: self.id.clone(), at }
    }

    /// Returns a text that was recorded at the beginning.
    fn text(&self, field: &str) -> Option<&str> {
        self.metadata.as_ref()?.get(field)?.as_str()
    }

    /// Tests whether a caller has begun the upload. Callers without a subject differ by their
    /// roles.
    fn is_of(&self, caller: &CallerIdentity) -> bool {
        self.text("role") == Some(&caller.role) && self.owner_id == caller.owner().id
    }

    /// Returns the description that was given at the beginning.
    pub fn description(&self) -> ContentDescription {
        let text = |field: &str| self.text(field).map(str::to_owned);
        ContentDescription {
            mimetype: text("mimetype").unwrap_or_else(|| OCTETS.into()),
            cache_control: text("cacheControl").unwrap_or_else(|| NO_CACHE.into()),
            robots_tag: None,
            user_metadata: self.user_metadata.as_ref().map(Value::to_string),
        }
    }

    pub(super) fn target(&self) -> ObjectPath {
        ObjectPath { bucket: self.bucket.clone(), name: self.key.clone() }
    }

    /// Tests whether the caller may write the object, now with this content. Without `upsert` no
    /// object may have the key.
    pub async fn permit(
        &self,
        operation: &Operation,
        content_length: Option<u64>,
        size: u64,
        upsert: bool,
    ) -> Result<UploadPermit> {
        let request = UploadRequest {
            target: self.target(),
            upsert,
            content_length,
            exact_size: Some(size),
            has_content: true,
            description: self.description(),
        };
        upload::permit(operation, &request, UploadAuthority::Caller).await
    }
}

/// Begins an upload. Returns its id.
///
/// # Errors
/// Those of [`upload::permit`], and [`StorageError::TooManyUnfinished`].
pub(crate) async fn begin(
    operation: &Operation,
    target: ObjectPath,
    description: ContentDescription,
) -> Result<String> {
    let request =
        UploadRequest { target, upsert: true, content_length: None, exact_size: None, has_content: true, description };
    upload::permit(operation, &request, UploadAuthority::Caller).await?;
    let UploadRequest { target, description, .. } = request;
    let caller = operation.caller()?;
    let owner = caller.owner();
    let version = random::uuid().to_string();
    let at = VersionKey::new(&target.bucket, &target.name, Some(&version));
    let backend = &operation.service.backend;
    let parted = PartedVersion { upload: backend.begin_parts().await?, at };
    let requester = operation.bounded_requester(None);
    let most = operation.service.settings.max_pending_uploads.to_string();
    let metadata = json!({
        "mimetype": description.mimetype,
        "cacheControl": description.cache_control,
        "role": caller.role,
        "requester": requester,
    });
    let metadata = metadata.to_string();
    let user_metadata = description.user_metadata;
    let values = [
        Some(parted.upload.as_bytes()),
        Some(target.bucket.as_bytes()),
        Some(target.name.as_bytes()),
        Some(version.as_bytes()),
        owner.id.as_deref().map(str::as_bytes),
        Some(metadata.as_bytes()),
        user_metadata.as_deref().map(str::as_bytes),
        requester.is_some().then_some(most.as_bytes()),
    ];
    let lock = [Some(&b"unfinished uploads in parts"[..]), Some(requester.as_deref().unwrap_or_default().as_bytes())];
    let insert = SqlStep { text: statements::INSERT_UPLOAD, values: &values };
    let steps = [SqlStep { text: sql::LOCK_KEY, values: &lock }, insert];
    let steps = if requester.is_some() { &steps[..] } else { &steps[1..] };
    match operation.write(Actor::Service, steps, TransactionEnd::Commit).await {
        Ok(results) if results.rows(steps.len() - 1).first().and_then(|row| row.text(0)) == Some("1") => {
            Ok(parted.upload)
        }
        Ok(_) => {
            abort_in_background(&operation.service, parted);
            Err(StorageError::TooManyUnfinished)
        }
        Err(error) => {
            // After an unknown outcome a sweep decides, by the row
            if !matches!(error, WriteError::Unknown(_)) {
                abort_in_background(&operation.service, parted);
            }
            Err(error.into())
        }
    }
}

/// Finds an upload of the caller. `number`: the part that the request is about.
///
/// # Errors
/// `NoSuchUpload`, also for one that another caller has begun.
pub(crate) async fn find(operation: &Operation, name: &UploadName, number: u16) -> Result<MultipartUpload> {
    let UploadName { target, id } = name;
    let number = number.to_string();
    let texts = [id, &target.bucket, &target.name, &number];
    if texts.iter().any(|text| text.contains('\0')) {
        return Err(S3Error::NO_SUCH_UPLOAD.into());
    }
    let values = texts.map(|text| Some(text.as_bytes()));
    let step = SqlStep { text: statements::FIND_UPLOAD, values: &values };
    let found = operation.read(Actor::Service, step, Default::default()).await?;
    let caller = operation.caller()?;
    let is_own = |upload: &MultipartUpload| caller.is_service_role() || upload.is_of(caller);
    found.one::<MultipartUpload>()?.filter(is_own).ok_or_else(|| S3Error::NO_SUCH_UPLOAD.into())
}

/// Tests whether the caller may add a part of a size to an upload.
///
/// # Errors
/// [`StorageError::TooLarge`], and those of [`upload::permit`].
pub(crate) async fn permit_part(operation: &Operation, upload: &MultipartUpload, size: u64) -> Result<UploadPermit> {
    if size > MAX_PART_SIZE {
        return Err(StorageError::TooLarge("object"));
    }
    upload.permit(operation, Some(size), upload.other_size.saturating_add(size), true).await
}

/// Stores a part of exactly `size` bytes.
///
/// # Errors
/// The errors of the sender and of the backend; `NoSuchUpload` if the upload has ended meanwhile.
pub(crate) async fn put_part(
    operation: &Operation,
    upload: &MultipartUpload,
    permit: &UploadPermit,
    (number, size): (u16, u64),
    content: ContentStream<'_>,
) -> Result<StoredPart> {
    let service = &operation.service;
    let _slot = operation.upload_slot().await?;
    // Dropped behind the future of the backend, which may be cancelled
    let mut new = NewPart {
        service: Arc::clone(service),
        parted: upload.parted(),
        name: PartName { number, id: random::uuid().to_string() },
        is_kept: false,
    };
    let part = match service.backend.put_part(&new.parted, &new.name, content, size).await {
        Err(BackendError::NotFound) => return Err(S3Error::NO_SUCH_UPLOAD.into()),
        stored => stored?,
    };
    let texts = [
        upload.id.clone(),
        number.to_string(),
        part.size.to_string(),
        part.etag.clone(),
        permit.size_limit().to_string(),
        new.name.id.clone(),
    ];
    let operation = operation.clone();
    // Once begun it is completed, even if the request is cancelled
    let task = tokio::spawn(inherit_request(async move {
        let values = texts.each_ref().map(|text| Some(text.as_bytes()));
        let steps = [
            SqlStep { text: statements::LOCK_UPLOAD, values: &values[..1] },
            SqlStep { text: statements::PUT_PART, values: &values },
        ];
        let results = match operation.write(Actor::Service, &steps, TransactionEnd::Commit).await {
            Err(error) => {
                // After an unknown outcome the row may exist
                if matches!(error, WriteError::Unknown(_)) {
                    new.keep();
                }
                return Err(error.into());
            }
            Ok(results) => results,
        };
        let row = results.rows(1).first();
        match (results.rows(0).is_empty(), row.and_then(|row| row.text(0))) {
            (true, _) => Err(S3Error::NO_SUCH_UPLOAD.into()),
            (false, Some("1")) => {
                new.keep();
                let replaced = row.and_then(|row| row.get(1)).ok_or(StorageError::Internal)?;
                delete_replaced(&new, parse(&replaced)?);
                Ok(())
            }
            // Other parts have arrived since the permission
            (false, _) => Err(StorageError::TooLarge("object")),
        }
    }));
    task.await.unwrap_or(Err(StorageError::Internal))?;
    Ok(part)
}

/// A part whose row is not committed yet. If this is dropped, its bytes are deleted, unless it is
/// kept. What fails is deleted with the upload.
struct NewPart {
    service: Arc<StorageService>,
    parted: PartedVersion,
    name: PartName,
    is_kept: bool,
}

impl NewPart {
    /// Leaves the bytes to the row.
    fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewPart {
    fn drop(&mut self) {
        if !self.is_kept {
            delete_in_background(&self.service, &self.parted, vec![self.name.clone()]);
        }
    }
}

/// Deletes the bytes of the parts that a new one has replaced.
fn delete_replaced(new: &NewPart, ids: Vec<String>) {
    // A completion that runs may have read their rows; it deletes them with the upload
    if !ids.is_empty() && !new.service.completions.is_running(&new.parted.upload) {
        let number = new.name.number;
        let names = ids.into_iter().map(|id| PartName { number, id }).collect();
        delete_in_background(&new.service, &new.parted, names);
    }
}

fn delete_in_background(service: &Arc<StorageService>, parted: &PartedVersion, names: Vec<PartName>) {
    let Ok(runtime) = Handle::try_current() else { return };
    let (service, parted) = (Arc::clone(service), parted.clone());
    runtime.spawn(inherit_request(async move {
        for name in names {
            match service.backend.delete_part(&parted, &name).await {
                // The upload has ended meanwhile
                Ok(()) | Err(BackendError::NotFound) => {}
                Err(error) => tracing::warn!(error = %error, "a part that is not used could not be deleted"),
            }
        }
    }));
}

/// Returns the parts of an upload behind a number, in their order.
///
/// # Errors
/// Those of PostgreSQL.
pub(crate) async fn parts(
    operation: &Operation,
    upload: &MultipartUpload,
    after: u16,
    limit: usize,
) -> Result<Vec<PartRow>> {
    let (after, limit) = (after.to_string(), limit.to_string());
    let values = [Some(upload.id.as_bytes()), Some(after.as_bytes()), Some(limit.as_bytes())];
    let step = SqlStep { text: statements::LIST_PARTS, values: &values };
    let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
    if rows.joined.rows == 0 { Ok(Vec::new()) } else { parse(&rows.bytes()) }
}

/// Ends an upload and deletes its parts.
///
/// # Errors
/// The verdict of the policies; `NoSuchUpload` if it has ended.
pub(crate) async fn abort(operation: &Operation, upload: &MultipartUpload) -> Result<()> {
    upload.permit(operation, None, 0, true).await?;
    end(operation, upload).await
}

async fn end(operation: &Operation, upload: &MultipartUpload) -> Result<()> {
    let values = [Some(upload.id.as_bytes())];
    let step = SqlStep { text: statements::DELETE_UPLOAD, values: &values };
    let results = operation.write(Actor::Service, &[step], TransactionEnd::Commit).await?;
    if results.rows(0).is_empty() {
        return Err(S3Error::NO_SUCH_UPLOAD.into());
    }
    abort_in_background(&operation.service, upload.parted());
    Ok(())
}

/// Deletes the parts of an upload that has ended. What fails is left for [`sweep`].
pub(super) fn abort_in_background(service: &Arc<StorageService>, parted: PartedVersion) {
    let service = Arc::clone(service);
    tokio::spawn(inherit_request(async move {
        if let Err(error) = service.backend.abort_parts(&parted).await {
            tracing::warn!(error = %error, "the parts of an upload could not be deleted");
        }
    }));
}

/// Ends the uploads that have received nothing for `age`, and deletes parts without an upload that
/// did not change for that long. Returns the buckets and keys of the ended uploads.
///
/// # Errors
/// Those of PostgreSQL and of the backend.
pub(crate) async fn end_abandoned(service: &Arc<StorageService>, age: Duration) -> Result<Vec<ObjectPath>> {
    let operation = Operation::of_program(service, "storage.s3.upload.abort_multipart", &Method::DELETE, "");
    let seconds = age.as_secs().to_string();
    let mut ended = Vec::new();
    loop {
        let values = [Some(seconds.as_bytes())];
        let step = SqlStep { text: statements::OLD_UPLOADS, values: &values };
        let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
        let uploads: Vec<MultipartUpload> = if rows.joined.rows == 0 { break } else { parse(&rows.bytes())? };
        let before = ended.len();
        for upload in uploads {
            match end(&operation, &upload).await {
                // Completed or aborted meanwhile, or kept by a trigger of the project
                Err(error) if error == S3Error::NO_SUCH_UPLOAD.into() => continue,
                outcome => outcome?,
            }
            ended.push(upload.target());
        }
        // The next round would find the same uploads
        if ended.len() == before {
            break;
        }
    }
    sweep(&operation, age).await?;
    Ok(ended)
}

/// Deletes parts without an upload that did not change for `grace`.
///
/// # Errors
/// Those of PostgreSQL and of the backend.
pub(crate) async fn sweep(operation: &Operation, grace: Duration) -> Result<()> {
    // An upload that is begun from here on is younger
    let step = SqlStep { text: statements::ALL_UPLOADS, values: &[] };
    let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
    let kept: HashSet<String> = if rows.joined.rows == 0 { HashSet::new() } else { parse(&rows.bytes())? };
    Ok(operation.service.backend.sweep_parts(&kept, grace).await?)
}
