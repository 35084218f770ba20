//! Uploads in parts: begun once, received in any order and by several connections, completed in one
//! step.
//!
//! An upload belongs to the caller who has begun it. The policies decide about the object at the
//! beginning, with each part and at the end, as for an upload in one request. The rows of the
//! bookkeeping are the service's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use portico_base::random;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::upload::{self, ContentDescription, NewRow, UploadAuthority, UploadPermit, UploadRequest};
use super::version::NewVersion;
use super::{ObjectPath, list_page};
use crate::backend::parts::{PartName, PartedVersion, StoredPart};
use crate::backend::{BackendError, ContentStream, VersionKey};
use crate::error::{Result, StorageError};
use crate::identity::Identity;
use crate::model::NewMetadata;
use crate::operation::{Actor, Ending, JSON_ARRAY, Operation, RequestDescription, Step, WriteError, parse};
use crate::s3::S3Error;
use crate::sql::multipart as statements;
use crate::storage::Service;

/// The largest number of a part.
pub(crate) const MAX_PART_NUMBER: u16 = 10_000;
/// The largest part, in bytes.
pub(crate) const MAX_PART_SIZE: u64 = 5 * 1024 * 1024 * 1024;

/// An upload that has begun and has not ended.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MultipartUpload {
    id: String,
    bucket: String,
    key: String,
    version: String,
    owner_id: Option<String>,
    metadata: Option<Value>,
    user_metadata: Option<Value>,
    /// The size of the parts besides the one that the request is about.
    other_size: u64,
}

/// A part as the bookkeeping knows it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartRow {
    id: String,
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

/// The uploads that are being completed. Each is completed by one request at a time, since every
/// attempt writes the whole content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completions(Arc<Mutex<HashSet<String>>>);

/// The right to complete an upload.
struct Completion {
    all: Completions,
    id: String,
}

impl Completions {
    fn begin(&self, id: &str) -> Result<Completion> {
        let is_first = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        if is_first { Ok(Completion { all: self.clone(), id: id.to_owned() }) } else { Err(S3Error::CONFLICT.into()) }
    }

    fn is_running(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
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
    fn is_of(&self, caller: &Identity) -> bool {
        self.text("role") == Some(&caller.role) && self.owner_id == caller.owner().id
    }

    /// Returns the description that was given at the beginning.
    fn description(&self) -> ContentDescription {
        let text = |field: &str| self.text(field).map(str::to_owned);
        ContentDescription {
            mimetype: text("mimetype").unwrap_or_else(|| "application/octet-stream".into()),
            cache_control: text("cacheControl").unwrap_or_else(|| "no-cache".into()),
            robots_tag: None,
            user_metadata: self.user_metadata.clone(),
        }
    }

    fn target(&self) -> ObjectPath {
        ObjectPath { bucket: self.bucket.clone(), name: self.key.clone() }
    }

    /// Tests whether the caller may write the object, now with this content.
    async fn permit(&self, operation: &Operation, content_length: Option<u64>, size: u64) -> Result<UploadPermit> {
        let request = UploadRequest {
            target: self.target(),
            upsert: true,
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
/// Those of [`upload::permit`].
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
    let parted = PartedVersion { upload: backend.begin_parts(&at).await?, at };
    let metadata = json!({
        "mimetype": description.mimetype,
        "cacheControl": description.cache_control,
        "role": caller.role,
    });
    let metadata = metadata.to_string();
    let user_metadata = description.user_metadata.map(|metadata| metadata.to_string());
    let values = [
        Some(parted.upload.as_bytes()),
        Some(target.bucket.as_bytes()),
        Some(target.name.as_bytes()),
        Some(version.as_bytes()),
        owner.id.as_deref().map(str::as_bytes),
        Some(metadata.as_bytes()),
        user_metadata.as_deref().map(str::as_bytes),
    ];
    let step = Step { text: statements::INSERT_UPLOAD, values: &values };
    match operation.write(Actor::Service, &[step], Ending::Commit).await {
        Ok(_) => Ok(parted.upload),
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
    let step = Step { text: statements::FIND_UPLOAD, values: &values };
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
    upload.permit(operation, Some(size), upload.other_size.saturating_add(size)).await
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
    let waiting = tokio::time::timeout(service.settings.upload_wait, service.uploads.acquire());
    let Ok(Ok(_slot)) = waiting.await else { return Err(StorageError::TooManyUploads) };
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
    let task = tokio::spawn(async move {
        let values = texts.each_ref().map(|text| Some(text.as_bytes()));
        let steps = [
            Step { text: statements::LOCK_UPLOAD, values: &values[..1] },
            Step { text: statements::PUT_PART, values: &values },
        ];
        let results = match operation.write(Actor::Service, &steps, Ending::Commit).await {
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
    });
    task.await.unwrap_or(Err(StorageError::Internal))?;
    Ok(part)
}

/// A part whose row is not committed yet. If this is dropped, its bytes are deleted, unless it is
/// kept. What fails is deleted with the upload.
struct NewPart {
    service: Arc<Service>,
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

fn delete_in_background(service: &Arc<Service>, parted: &PartedVersion, names: Vec<PartName>) {
    let Ok(runtime) = Handle::try_current() else { return };
    let (service, parted) = (Arc::clone(service), parted.clone());
    runtime.spawn(async move {
        for name in names {
            match service.backend.delete_part(&parted, &name).await {
                // The upload has ended meanwhile
                Ok(()) | Err(BackendError::NotFound) => {}
                Err(error) => tracing::warn!(error = %error, "a part that is not used could not be deleted"),
            }
        }
    });
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
    let step = Step { text: statements::LIST_PARTS, values: &values };
    let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
    if rows.joined.rows == 0 { Ok(Vec::new()) } else { parse(&rows.bytes()) }
}

/// Completes an upload with parts that are named by number and ETag. Returns the row as JSON.
///
/// Once begun it is completed, even if the request is cancelled meanwhile: a large version takes
/// longer than some clients wait.
///
/// # Errors
/// `NoSuchUpload`, a part that is missing or has another ETag, an order that does not ascend, the
/// verdict of the policies. The upload stays after the last three.
pub(crate) async fn complete(operation: &Operation, name: UploadName, wanted: Vec<(u16, String)>) -> Result<Bytes> {
    // Only the owner of an upload keeps others from completing it
    let upload = find(operation, &name, 0).await?;
    let completion = operation.service.completions.begin(&upload.id)?;
    let operation = operation.clone();
    let task = tokio::spawn(async move {
        let _completion = completion;
        // An attempt before may have completed it meanwhile
        let upload = find(&operation, &name, 0).await?;
        complete_alone(&operation, upload, &wanted).await
    });
    task.await.unwrap_or_else(|error| {
        tracing::error!(error = %error, "an upload could not be completed");
        Err(StorageError::Internal)
    })
}

/// Completes an upload that no other request completes.
async fn complete_alone(operation: &Operation, upload: MultipartUpload, wanted: &[(u16, String)]) -> Result<Bytes> {
    let service = &operation.service;
    let stored = parts(operation, &upload, 0, usize::from(MAX_PART_NUMBER)).await?;
    let parts = chosen(&upload.id, stored, wanted)?;
    let size = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.size));
    upload.permit(operation, Some(size), size).await?;

    // The content of an attempt that failed may still be deleted
    let mut version = NewVersion::begin(service, &upload.bucket, &upload.key).await?;
    let parted = PartedVersion { upload: upload.id.clone(), at: version.key().clone() };
    let assembled = service.backend.assemble_parts(&parted, &parts).await;
    version.received();
    let content = match assembled {
        // Aborted meanwhile
        Err(BackendError::NotFound) => return Err(S3Error::NO_SUCH_UPLOAD.into()),
        assembled => assembled?,
    };
    let description = upload.description();
    let metadata = NewMetadata {
        etag: content.etag.as_deref().unwrap_or_default(),
        size: content.size,
        modified: content.modified,
        mimetype: &description.mimetype,
        cache_control: &description.cache_control,
        robots_tag: None,
    };
    let row = NewRow {
        metadata: metadata.to_json(),
        user_metadata: description.user_metadata.as_ref().map(Value::to_string),
        owner: operation.caller()?.owner(),
        upsert: true,
    };
    let written = upload::write_row_of_upload(operation, version, row, upload.id).await;
    if written.is_ok() {
        abort_in_background(service, parted);
    }
    written
}

/// Returns the stored parts that a request names.
fn chosen(id: &str, stored: Vec<PartRow>, wanted: &[(u16, String)]) -> Result<Vec<StoredPart>> {
    if wanted.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(S3Error::INVALID_PART_ORDER.into());
    }
    let mut stored: HashMap<u16, PartRow> = stored.into_iter().map(|part| (part.number, part)).collect();
    let part = |(number, etag): &(u16, String)| {
        let part = stored.remove(number).ok_or_else(|| S3Error::missing_part(*number, id))?;
        if part.etag != etag.trim_matches('"') {
            return Err(S3Error::wrong_part(*number).into());
        }
        Ok(StoredPart { name: PartName { number: part.number, id: part.id }, etag: part.etag, size: part.size })
    };
    wanted.iter().map(part).collect()
}

/// Ends an upload and deletes its parts.
///
/// # Errors
/// The verdict of the policies; `NoSuchUpload` if it has ended.
pub(crate) async fn abort(operation: &Operation, upload: &MultipartUpload) -> Result<()> {
    upload.permit(operation, None, 0).await?;
    end(operation, upload).await
}

async fn end(operation: &Operation, upload: &MultipartUpload) -> Result<()> {
    let values = [Some(upload.id.as_bytes())];
    let step = Step { text: statements::DELETE_UPLOAD, values: &values };
    let results = operation.write(Actor::Service, &[step], Ending::Commit).await?;
    if results.rows(0).is_empty() {
        return Err(S3Error::NO_SUCH_UPLOAD.into());
    }
    abort_in_background(&operation.service, upload.parted());
    Ok(())
}

/// Deletes the parts of an upload that has ended. What fails is left for [`sweep`].
fn abort_in_background(service: &Arc<Service>, parted: PartedVersion) {
    let service = Arc::clone(service);
    tokio::spawn(async move {
        if let Err(error) = service.backend.abort_parts(&parted).await {
            tracing::warn!(error = %error, "the parts of an upload could not be deleted");
        }
    });
}

/// Ends the uploads that have received nothing for `age`, and deletes parts without an upload that
/// did not change for that long. Returns the buckets and keys of the ended uploads.
///
/// # Errors
/// Those of PostgreSQL and of the backend.
pub(crate) async fn end_abandoned(service: &Arc<Service>, age: Duration) -> Result<Vec<ObjectPath>> {
    let request = RequestDescription::new(&Method::DELETE, "", &HeaderMap::new(), None);
    let operation = Operation::new(service, "storage.s3.upload.abort_multipart", None, request);
    let seconds = age.as_secs().to_string();
    let mut ended = Vec::new();
    loop {
        let values = [Some(seconds.as_bytes())];
        let step = Step { text: statements::OLD_UPLOADS, values: &values };
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
    let step = Step { text: statements::ALL_UPLOADS, values: &[] };
    let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
    let kept: HashSet<String> = if rows.joined.rows == 0 { HashSet::new() } else { parse(&rows.bytes())? };
    Ok(operation.service.backend.sweep_parts(&kept, grace).await?)
}

/// A request for a page of uploads.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadListRequest {
    pub bucket: String,
    pub prefix: String,
    /// The text that ends a group of keys; empty: keys are not grouped.
    pub delimiter: String,
    /// The key before the page. With an id: the upload before the page.
    pub after_key: Option<String>,
    pub after_id: Option<String>,
    pub limit: usize,
}

/// One entry of a page of uploads.
#[derive(Debug, Clone)]
pub(crate) enum UploadListEntry {
    Upload {
        key: String,
        id: String,
        created_at: String,
    },
    /// The beginning that a group of keys has in common.
    Group(String),
}

#[derive(Debug, Deserialize)]
struct UploadRow {
    id: String,
    key: String,
    created_at: String,
}

/// Returns a page of the caller's uploads, and true if others follow. The service sees all.
///
/// # Errors
/// Those of PostgreSQL.
pub(crate) async fn list(operation: &Operation, request: UploadListRequest) -> Result<(Vec<UploadListEntry>, bool)> {
    let UploadListRequest { bucket, prefix, delimiter, mut after_key, mut after_id, limit } = request;
    if [&bucket, &prefix, &delimiter].iter().any(|text| text.contains('\0')) {
        return Ok((Vec::new(), false));
    }
    let caller = operation.caller()?;
    let sees_all = if caller.is_service_role() { "true" } else { "false" };
    let owner = caller.owner().id;
    let beyond = list_page::beyond(&prefix);
    // A group that ended the page before is skipped as a whole
    if let Some(group) =
        after_key.as_deref().filter(|key| after_id.is_none() && group_of(key, &prefix, &delimiter) == Some(key))
    {
        let Some(behind) = list_page::beyond(group) else { return Ok((Vec::new(), false)) };
        (after_key, after_id) = (Some(behind), Some(String::new()));
    }
    let batch = (limit + 1).to_string();
    let mut entries: Vec<UploadListEntry> = Vec::new();
    // Each round yields an entry, or is the last one
    loop {
        let values = [
            Some(bucket.as_bytes()),
            Some(prefix.as_bytes()),
            beyond.as_deref().map(str::as_bytes),
            after_key.as_deref().map(str::as_bytes),
            after_id.as_deref().map(str::as_bytes),
            Some(sees_all.as_bytes()),
            owner.as_deref().map(str::as_bytes),
            Some(batch.as_bytes()),
        ];
        let step = Step { text: statements::LIST_UPLOADS, values: &values };
        let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
        let rows: Vec<UploadRow> = if rows.joined.rows == 0 { Vec::new() } else { parse(&rows.bytes())? };
        let is_last = rows.len() <= limit;
        for row in rows {
            let group = group_of(&row.key, &prefix, &delimiter);
            if let (Some(UploadListEntry::Group(last)), Some(group)) = (entries.last(), group)
                && last == group
            {
                continue;
            }
            if entries.len() == limit {
                return Ok((entries, true));
            }
            match group {
                Some(group) => {
                    let Some(behind) = list_page::beyond(group) else { return Ok((entries, false)) };
                    (after_key, after_id) = (Some(behind), Some(String::new()));
                    entries.push(UploadListEntry::Group(group.to_owned()));
                }
                None => {
                    (after_key, after_id) = (Some(row.key.clone()), Some(row.id.clone()));
                    entries.push(UploadListEntry::Upload { key: row.key, id: row.id, created_at: row.created_at });
                }
            }
        }
        if is_last {
            return Ok((entries, false));
        }
    }
}

/// Returns the beginning of a key up to the first delimiter behind the prefix.
fn group_of<'a>(key: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(prefix).filter(|_| !delimiter.is_empty())?;
    let end = rest.find(delimiter)? + delimiter.len();
    key.get(..prefix.len() + end)
}
