//! Copies.

use std::sync::Arc;

use bytes::Bytes;

use super::bucket_rules;
use super::condition::{ConditionOutcome, Conditions};
use super::download::find_visible;
use super::new_row::{CommitConditions, NewRow, RowValues, WrittenColumns, write_row};
use super::upload::{check_content, require_etag, test};
use super::version::NewVersion;
use crate::backend::{BackendError, StoredContent, VersionKey};
use crate::error::{Result, S3Error, StorageError};
use crate::limits::check_mime_type;
use crate::model::{FileMetadata, ObjectRow};
use crate::name::{ObjectKey, ObjectPath};
use crate::operation::{Actor, Operation};
use crate::service::StorageService;

/// The most rows of a source that a copy or move begins with: a source that is replaced again and
/// again is given up.
const MAX_ATTEMPTS: u32 = 5;

/// A request to copy an object.
#[derive(Debug, Clone)]
pub(crate) struct CopyRequest {
    pub source: ObjectPath,
    pub destination: ObjectPath,
    /// An existing object is replaced.
    pub upsert: bool,
    /// `None`: the metadata of the source.
    pub metadata: Option<CopyMetadata>,
    /// The conditions on the source.
    pub conditions: Conditions,
    /// The ETag that the replaced object must have, without quotes; `*` is every ETag.
    pub replaced_etag: Option<String>,
}

/// The metadata of a copy. The type and the cache control stay as they are at the source if they
/// are not given; the user's metadata do not.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopyMetadata {
    pub cache_control: Option<String>,
    pub mimetype: Option<String>,
    /// JSON as text.
    pub user_metadata: Option<String>,
}

/// Checks an object against the limits of the bucket that it is to be in. A bucket that does not
/// exist has none: the write fails. The mark of an empty folder has no content and any type.
///
/// # Errors
/// [`StorageError::TooLarge`], [`StorageError::InvalidMimeType`]
pub(crate) async fn check_destination(
    operation: &Operation,
    bucket: &str,
    key: &ObjectKey,
    metadata: &FileMetadata,
) -> Result<()> {
    if key.is_folder_placeholder() {
        // A size that SQL has removed may be any
        return if metadata.size() == Some(0) { Ok(()) } else { Err(StorageError::TooLarge("object")) };
    }
    let Some(rules) = bucket_rules(operation, bucket).await? else { return Ok(()) };
    let limit = rules.size_limit(operation.service.settings.file_size_limit);
    if metadata.size().is_some_and(|size| size > limit) {
        return Err(StorageError::TooLarge("object"));
    }
    check_mime_type(metadata.mimetype().unwrap_or("application/octet-stream"), rules.allowed_mime_types.as_deref())
}

/// Copies the content of a version to a new one. Returns `None` if the source was replaced or
/// deleted meanwhile.
///
/// # Errors
/// Those of the backend.
pub(crate) async fn copy_content(
    service: &Arc<StorageService>,
    from: &VersionKey,
    bucket: &str,
    key: &ObjectKey,
) -> Result<Option<(NewVersion, StoredContent)>> {
    let mut version = NewVersion::begin(service, bucket, key.as_str()).await?;
    let stored = service.backend.copy(from, version.key()).await;
    version.received();
    match stored {
        Err(BackendError::NotFound) => Ok(None),
        stored => Ok(Some((version, stored?))),
    }
}

/// Finds the row that has replaced another one, after this number of attempts with earlier rows.
///
/// # Errors
/// [`StorageError::NoSuchKey`] if the object is gone, or its content is; after the last attempt
/// [`StorageError::LockTimeout`].
pub(crate) async fn find_replacement(
    operation: &Operation,
    source: &ObjectPath,
    replaced: &ObjectRow,
    attempts: u32,
) -> Result<ObjectRow> {
    let row = find_visible(operation, source).await?;
    if row.version == replaced.version {
        return Err(StorageError::NoSuchKey);
    }
    if attempts < MAX_ATTEMPTS { Ok(row) } else { Err(StorageError::LockTimeout) }
}

/// Copies an object. Returns the new row as JSON. A source that is replaced meanwhile is copied as
/// it is then.
///
/// # Errors
/// The first check that fails: the key of the copy, the source, the limits of the destination, the
/// policies there.
pub(crate) async fn copy(operation: &Operation, request: CopyRequest) -> Result<Bytes> {
    let key = ObjectKey::parse(&request.destination.name)?;
    let mut row = find_visible(operation, &request.source).await?;
    let mut attempts = 0;
    loop {
        if let Some(copied) = copy_version(operation, &request, &key, &row).await? {
            return Ok(copied);
        }
        attempts += 1;
        row = find_replacement(operation, &request.source, &row, attempts).await?;
    }
}

/// Copies an object with this row. Returns the new row as JSON; `None` if the source was replaced
/// or deleted meanwhile.
async fn copy_version(
    operation: &Operation,
    request: &CopyRequest,
    key: &ObjectKey,
    row: &ObjectRow,
) -> Result<Option<Bytes>> {
    let CopyRequest { source, destination, upsert, metadata, conditions, replaced_etag } = request;
    if conditions.evaluate(row) != ConditionOutcome::Met {
        return Err(S3Error::PRECONDITION_FAILED.into());
    }
    let (changes, user_metadata) = match metadata {
        None => (CopyMetadata::default(), row.user_metadata.as_ref().map(|metadata| metadata.get().to_owned())),
        Some(changes) => (changes.clone(), changes.user_metadata.clone()),
    };
    let metadata = row.metadata.replacing(changes.cache_control.as_deref(), changes.mimetype.as_deref());
    check_destination(operation, &destination.bucket, key, &metadata).await?;
    let owner = operation.caller()?.owner();
    let tested = RowValues {
        bucket: &destination.bucket,
        name: key.as_str(),
        owner: &owner,
        version: "1",
        metadata: metadata.to_json(),
        user_metadata: user_metadata.clone(),
    };
    test(operation, Actor::Caller, &tested, *upsert).await?;
    if let Some(etag) = replaced_etag {
        require_etag(operation, destination, etag).await?;
    }

    let service = &operation.service;
    let from = VersionKey::new(&source.bucket, &source.name, row.version.as_deref());
    let Some((version, stored)) = copy_content(service, &from, &destination.bucket, key).await? else {
        return Ok(None);
    };
    if let Some(mimetype) = &changes.mimetype {
        check_content(service, &version, stored.size, mimetype).await?;
    }
    let metadata = metadata.for_new_version(stored.size, stored.modified).to_json();
    let row = NewRow { metadata, user_metadata, owner, upsert: *upsert, tested: None };
    let conditions = CommitConditions { etag: replaced_etag.clone(), ..CommitConditions::default() };
    write_row(operation, version, row, conditions, WrittenColumns::All).await.map(Some)
}
