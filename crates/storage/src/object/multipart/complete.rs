//! The end of an upload: its parts become one object.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::StreamExt;
use portico_base::{hash, inherit_request, random};
use portico_database::wire::RowSeparators;
use serde_json::json;
use uuid::{Builder, Uuid};

use super::lifecycle::{MAX_PART_NUMBER, MultipartUpload, PartRow, UploadName, abort_in_background, find, parts};
use crate::backend::BackendError;
use crate::backend::parts::{PartName, PartedVersion, StoredPart};
use crate::checksum::ExpectedChecksum;
use crate::error::{Result, S3Error, StorageError};
use crate::identity::CallerIdentity;
use crate::model::ObjectRow;
use crate::name::ObjectPath;
use crate::object::condition::WriteCondition;
use crate::object::new_row::{CommitConditions, NewRow, WrittenColumns, write_row};
use crate::object::upload;
use crate::object::version::NewVersion;
use crate::operation::{Actor, Operation, SqlStep};
use crate::service::StorageService;
use crate::sql;

/// The bytes of a version's id that tell which completion has made it.
const MARK_BYTES: usize = 8;
/// The smallest part besides the last one, in bytes.
const MIN_PART_SIZE: u64 = 5 * 1024 * 1024;

/// The first half of the ids of the versions that a completion makes: a digest of the caller, the
/// upload and the parts. A client that has lost the response and sends the request again gets it
/// from the row of the object, whose version shows that this request has made it.
#[derive(Debug, Clone, Copy)]
struct CompletionMark([u8; MARK_BYTES]);

impl CompletionMark {
    /// Returns the mark of a request. Another caller, or another choice of parts, has another one.
    fn of(caller: &CallerIdentity, name: &UploadName, parts: &[(u16, String)]) -> Self {
        let UploadName { target: ObjectPath { bucket, name: key }, id } = name;
        let parts: Vec<(u16, &str)> = parts.iter().map(|(number, etag)| (*number, etag.trim_matches('"'))).collect();
        let request = json!([caller.role, caller.subject, bucket, key, id, parts]).to_string();
        let mut mark = [0; MARK_BYTES];
        mark.copy_from_slice(&hash::sha256(request.as_bytes())[..MARK_BYTES]);
        Self(mark)
    }

    /// Returns an id that no version ever had: its second half is random.
    fn new_version(self) -> String {
        self.marked(random::bytes()).to_string()
    }

    /// Tests whether a completion with this mark has made a version.
    fn is_of(self, version: &str) -> bool {
        Uuid::try_parse(version).is_ok_and(|id| id == self.marked(id.into_bytes()))
    }

    fn marked(self, mut bytes: [u8; 16]) -> Uuid {
        bytes[..MARK_BYTES].copy_from_slice(&self.0);
        Builder::from_custom_bytes(bytes).into_uuid()
    }
}

/// A request to complete an upload.
pub(crate) struct CompletionRequest {
    pub name: UploadName,
    /// The numbers and ETags of the parts.
    pub parts: Vec<(u16, String)>,
    /// Checksums of the whole object.
    pub checksums: Vec<ExpectedChecksum>,
    /// The condition on the object that has the key.
    pub condition: Option<WriteCondition>,
}

/// Completes an upload. Returns the row as JSON.
///
/// Once begun it is completed, even if the request is cancelled meanwhile: a large version takes
/// longer than some clients wait. An equal request after that returns the same row, until the
/// object is replaced or deleted.
///
/// # Errors
/// `NoSuchUpload`, a part that is missing or has another ETag, an order that does not ascend, a
/// part other than the last one below 5 MiB, content that is not of its declared type or has
/// another checksum, the verdict of the policies, `PreconditionFailed`. The upload stays after all
/// but the first.
pub(crate) async fn complete(operation: &Operation, request: CompletionRequest) -> Result<Bytes> {
    let mark = CompletionMark::of(operation.caller()?, &request.name, &request.parts);
    let target = request.name.target.clone();
    match complete_once(operation, request, mark).await {
        Err(error) if error == S3Error::NO_SUCH_UPLOAD.into() => {
            completed_before(operation, &target, mark).await?.ok_or(error)
        }
        outcome => outcome,
    }
}

async fn complete_once(operation: &Operation, request: CompletionRequest, mark: CompletionMark) -> Result<Bytes> {
    // Only the owner of an upload keeps others from completing it
    let upload = find(operation, &request.name, 0).await?;
    let completion = operation.service.completions.begin(&upload.id)?;
    let operation = operation.clone();
    let task = tokio::spawn(inherit_request(async move {
        let _completion = completion;
        // An attempt before may have completed it meanwhile
        let upload = find(&operation, &request.name, 0).await?;
        complete_alone(&operation, upload, request, mark).await
    }));
    task.await.unwrap_or_else(|error| {
        tracing::error!(error = %error, "an upload could not be completed");
        Err(StorageError::Internal)
    })
}

/// Returns the row of the object that an equal request has completed before, as JSON; `None` if
/// there is none, or the object was replaced or deleted since.
async fn completed_before(operation: &Operation, target: &ObjectPath, mark: CompletionMark) -> Result<Option<Bytes>> {
    if target.bucket.contains('\0') || target.name.contains('\0') {
        return Ok(None);
    }
    let values = [Some(target.bucket.as_bytes()), Some(target.name.as_bytes())];
    let step = SqlStep { text: sql::FIND_OBJECT_JSON, values: &values };
    let found = operation.read(Actor::Service, step, RowSeparators::default()).await?;
    let version = found.one::<ObjectRow>()?.and_then(|row| row.version);
    Ok(version.filter(|version| mark.is_of(version)).map(|_| found.bytes()))
}

/// Completes an upload that no other request completes.
async fn complete_alone(
    operation: &Operation,
    upload: MultipartUpload,
    request: CompletionRequest,
    mark: CompletionMark,
) -> Result<Bytes> {
    let CompletionRequest { parts: wanted, checksums, condition, .. } = request;
    let service = &operation.service;
    let stored = parts(operation, &upload, 0, usize::from(MAX_PART_NUMBER)).await?;
    let parts = chosen(&upload.id, stored, &wanted)?;
    let size = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.size));
    let upsert = condition != Some(WriteCondition::Absent);
    upload.permit(operation, Some(size), size, upsert).await?;
    let etag = match condition {
        Some(WriteCondition::Etag(etag)) => Some(etag),
        Some(WriteCondition::Absent) | None => None,
    };
    if let Some(etag) = &etag {
        upload::require_etag(operation, &upload.target(), etag).await?;
    }

    // The content of an attempt that failed may still be deleted
    let mut version = NewVersion::with_id(service, &upload.bucket, &upload.key, mark.new_version()).await?;
    let parted = PartedVersion { upload: upload.id.clone(), at: version.key().clone() };
    let assembled = service.backend.assemble_parts(&parted, &parts).await;
    version.received();
    let content = match assembled {
        // Aborted meanwhile
        Err(BackendError::NotFound) => return Err(S3Error::NO_SUCH_UPLOAD.into()),
        assembled => assembled?,
    };
    let description = upload.description();
    upload::check_content(service, &version, content.size, &description.mimetype).await?;
    verify(service, &version, checksums).await?;
    let row = NewRow::of_content(&content, &description, operation.caller()?.owner(), upsert);
    let conditions = CommitConditions { upload: Some(upload.id), etag };
    let written = write_row(operation, version, row, conditions, WrittenColumns::IdAndMetadata).await;
    if written.is_ok() {
        abort_in_background(service, parted);
    }
    written
}

/// Compares the content of a version with its checksums, for which the whole of it is read. A
/// version that has others is to be dropped.
///
/// # Errors
/// `BadDigest`, and those of the backend.
async fn verify(service: &StorageService, version: &NewVersion, mut checksums: Vec<ExpectedChecksum>) -> Result<()> {
    if checksums.is_empty() {
        return Ok(());
    }
    let mut content = service.backend.get(version.key(), None).await?.body.into_data_stream();
    while let Some(chunk) = content.next().await {
        let chunk = chunk.map_err(|error| {
            tracing::error!(error = %error, "the parts of an upload could not be read");
            StorageError::Internal
        })?;
        checksums.iter_mut().for_each(|expected| expected.checksum.update(&chunk));
    }
    let are_equal = checksums.into_iter().all(|expected| expected.checksum.finish() == expected.value);
    if are_equal { Ok(()) } else { Err(S3Error::BAD_DIGEST.into()) }
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
    let chosen = wanted.iter().map(part).collect::<Result<Vec<_>>>()?;
    let full = chosen.split_last().map_or(&[][..], |(_, full)| full);
    if full.iter().any(|part| part.size < MIN_PART_SIZE) { Err(S3Error::TOO_SMALL.into()) } else { Ok(chosen) }
}
