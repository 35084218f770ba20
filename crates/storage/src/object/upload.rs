//! Upload: a test under the caller's role, the content, and the commit.
//!
//! The test writes the row under the role of the caller and is rolled back: the policies of the
//! project decide, with the duplicate check after them. The content is then stored as a new
//! version, and the row is written by the service. What an upsert replaces may have changed while
//! the content arrived. So its test is repeated in the transaction that commits, behind the lock,
//! unless the row that is replaced is still the very one of the test ([`TestedRow`]).

use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::bucket_rules;
use super::condition::{ConditionOutcome, Conditions};
pub(crate) use super::description::{ContentDescription, metadata_text};
use super::download::find_visible;
use super::new_row::{CommitConditions, NewRow, RowValues, TestedRow, WrittenColumns, write_row};
use super::version::NewVersion;
use crate::backend::{ByteRange, ContentStream, StoredContent};
use crate::error::{ExistingResource, Result, S3Error, StorageError};
use crate::identity::Owner;
use crate::limits::check_mime_type;
use crate::model::BucketRules;
use crate::name::{ObjectKey, ObjectPath};
use crate::operation::{Actor, Operation, SqlStep, TransactionEnd, parse};
use crate::service::StorageService;
use crate::{media_type, sql};

/// The version in the row of a permission test.
const TEST_VERSION: &str = "1";

/// A request to store an object.
#[derive(Debug, Clone)]
pub(crate) struct UploadRequest {
    pub target: ObjectPath,
    /// An existing object is replaced.
    pub upsert: bool,
    /// The size that the request declares, as policies see it.
    pub content_length: Option<u64>,
    /// The size of the content, if the request declares it exactly.
    pub exact_size: Option<u64>,
    /// The request has the content, so the description's type is the content's.
    pub has_content: bool,
    pub description: ContentDescription,
}

/// The permission for an upload. Only [`permit`] makes one.
#[derive(Debug)]
pub(crate) struct UploadPermit {
    bucket: String,
    key: ObjectKey,
    upsert: bool,
    owner: Owner,
    /// The largest content, in bytes.
    size_limit: u64,
    /// The size of the content, if the request declares it exactly.
    exact_size: Option<u64>,
    /// The declared type of the content.
    mimetype: String,
    /// The row that the caller may replace.
    tested: Option<TestedRow>,
}

impl UploadPermit {
    /// Returns the size of the largest content, in bytes.
    pub fn size_limit(&self) -> u64 {
        self.size_limit
    }

    /// Lowers the size of the largest content.
    pub fn limit_size(&mut self, limit: u64) {
        self.size_limit = self.size_limit.min(limit);
    }
}

/// The authority that an upload runs with.
#[derive(Debug, Clone)]
pub(crate) enum UploadAuthority {
    /// The caller's role decides.
    Caller,
    /// A signed URL has decided before.
    SignedUrl(Owner),
}

/// Checks whether an upload is allowed: the bucket, its limits, the key, and the policies, in this
/// order.
///
/// # Errors
/// The first check that fails.
pub(crate) async fn permit(
    operation: &Operation,
    request: &UploadRequest,
    authority: UploadAuthority,
) -> Result<UploadPermit> {
    let UploadRequest { target, upsert, content_length, description, .. } = request;
    let writer = match authority {
        UploadAuthority::Caller => operation.caller().map(|caller| (Actor::Caller, caller.owner())),
        UploadAuthority::SignedUrl(owner) => Ok((Actor::Service, owner)),
    };
    let (key, (actor, owner)) = match (ObjectKey::parse(&target.name), writer) {
        (Ok(key), Ok(writer)) => (key, writer),
        (key, writer) => {
            check_limits(operation, request, bucket_rules(operation, &target.bucket).await?)?;
            return Err(key.err().or(writer.err()).unwrap_or(StorageError::Internal));
        }
    };
    let mut metadata = json!({ "mimetype": description.mimetype });
    if let Some(length) = content_length {
        metadata["contentLength"] = (*length).into();
    }
    let row = RowValues {
        bucket: &target.bucket,
        name: key.as_str(),
        owner: &owner,
        version: TEST_VERSION,
        metadata: metadata.to_string(),
        user_metadata: description.user_metadata.clone(),
    };
    let (size_limit, tested) = match test_with_rules(operation, actor, &row, *upsert).await {
        Ok((rules, tested)) => (check_limits(operation, request, rules)?, tested),
        Err(error) => {
            // The limits come before the policies. A failed test returns nothing of the bucket
            check_limits(operation, request, bucket_rules(operation, &target.bucket).await?)?;
            return Err(error);
        }
    };
    let mimetype = description.mimetype.clone();
    let (bucket, exact_size) = (target.bucket.clone(), request.exact_size);
    Ok(UploadPermit { bucket, key, upsert: *upsert, owner, size_limit, exact_size, mimetype, tested })
}

/// Checks an upload against the rules of its bucket. Returns the size of the largest content.
///
/// # Errors
/// [`StorageError::NoSuchBucket`], [`StorageError::InvalidMimeType`], [`StorageError::TooLarge`]
fn check_limits(operation: &Operation, request: &UploadRequest, rules: Option<BucketRules>) -> Result<u64> {
    let UploadRequest { target, exact_size, has_content, description, .. } = request;
    let rules = rules.ok_or(StorageError::NoSuchBucket)?;
    let mut size_limit = rules.size_limit(operation.service.settings.file_size_limit);
    if ObjectKey::parse(&target.name).is_ok_and(|key| key.is_folder_placeholder()) {
        size_limit = 0;
    } else if *has_content {
        check_mime_type(&description.mimetype, rules.allowed_mime_types.as_deref())?;
    }
    if exact_size.is_some_and(|size| size > size_limit) {
        return Err(StorageError::TooLarge("object"));
    }
    Ok(size_limit)
}

/// Like [`test`], but also returns the rules of the bucket and the row that an upsert replaces, in
/// one transaction.
async fn test_with_rules(
    operation: &Operation,
    actor: Actor,
    row: &RowValues<'_>,
    upsert: bool,
) -> Result<(Option<BucketRules>, Option<TestedRow>)> {
    let (values, key) = (row.values(), [Some(row.bucket.as_bytes()), Some(row.name.as_bytes())]);
    let before = match upsert {
        true => SqlStep { text: sql::BUCKET_RULES_AND_OBJECT, values: &key },
        false => SqlStep { text: sql::BUCKET_RULES, values: &key[..1] },
    };
    let at = Instant::now();
    let outcome = operation.test_after(before, actor, SqlStep { text: test_of(upsert), values: &values }).await;
    let results = outcome.map_err(|error| StorageError::from(error).naming(ExistingResource::Key))?;
    let Some(found) = results.rows(0).first() else { return Ok((None, None)) };
    let rules = parse(found.bytes(0).unwrap_or_default())?;
    let tested = found.text(1).map(|row_version| TestedRow {
        row_version: row_version.to_owned(),
        version: found.text(2).map(str::to_owned),
        at,
    });
    Ok((Some(rules), tested))
}

/// Returns the statement that tests whether a row may be written.
fn test_of(upsert: bool) -> &'static str {
    if upsert { sql::TEST_UPSERT } else { sql::TEST_INSERT }
}

/// Tests whether a row may be written, and writes nothing.
///
/// # Errors
/// The verdict of PostgreSQL.
pub(crate) async fn test(operation: &Operation, actor: Actor, row: &RowValues<'_>, upsert: bool) -> Result<()> {
    let values = row.values();
    let step = SqlStep { text: test_of(upsert), values: &values };
    let outcome = operation.write(actor, &[step], TransactionEnd::RollBack).await;
    outcome.map(drop).map_err(|error| StorageError::from(error).naming(ExistingResource::Key))
}

/// Content that is stored and has no row yet. It is deleted if this is dropped.
pub(crate) struct ReceivedContent {
    version: NewVersion,
    content: StoredContent,
}

/// Receives the content of an upload.
///
/// # Errors
/// [`StorageError::TooLarge`], the errors of the sender and of the backend; nothing is left then.
pub(crate) async fn receive(
    operation: &Operation,
    permit: &UploadPermit,
    content: ContentStream<'_>,
) -> Result<ReceivedContent> {
    let service = &operation.service;
    let _slot = operation.upload_slot().await?;
    let mut version = NewVersion::begin(service, &permit.bucket, permit.key.as_str()).await?;
    // The place of the content is prepared for as much
    let limit = permit.exact_size.map_or(permit.size_limit, |size| size.min(permit.size_limit));
    let content = service.backend.put(version.key(), content, limit).await;
    version.received();
    let content = content?;
    check_content(service, &version, content.size, &permit.mimetype).await?;
    Ok(ReceivedContent { version, content })
}

/// Checks that the content of a new version begins as its declared type does, if the settings say
/// so. A version that does not is to be dropped.
///
/// # Errors
/// [`StorageError::AnotherMimeType`], and those of the backend.
pub(crate) async fn check_content(
    service: &StorageService,
    version: &NewVersion,
    size: u64,
    mimetype: &str,
) -> Result<()> {
    if !service.settings.sniff_mime_types || size == 0 {
        return Ok(());
    }
    let beginning = ByteRange::From(0, Some(media_type::BEGINNING as u64 - 1));
    let body = service.backend.get(version.key(), Some(beginning)).await?.body;
    let beginning = axum::body::to_bytes(body, media_type::BEGINNING).await.map_err(|error| {
        tracing::error!(error = %error, "the beginning of an object could not be read");
        StorageError::Internal
    })?;
    let fits = media_type::can_be(mimetype, &beginning);
    if fits { Ok(()) } else { Err(StorageError::AnotherMimeType(mimetype.to_owned())) }
}

/// Stores a finished file as the content of an upload. The file must not change from now on, and
/// may be gone afterwards; its size was checked. `version` is an id that no version ever had, and
/// `etag` the ETag of the content.
///
/// # Errors
/// The errors of the backend; the file is left then.
pub(crate) async fn receive_file(
    operation: &Operation,
    permit: &UploadPermit,
    version: String,
    file: &Path,
    etag: String,
) -> Result<ReceivedContent> {
    let service = &operation.service;
    let mut version = NewVersion::with_id(service, &permit.bucket, permit.key.as_str(), version).await?;
    let content = service.backend.put_file(version.key(), file).await;
    version.received();
    let content = content?;
    check_content(service, &version, content.size, &permit.mimetype).await?;
    Ok(ReceivedContent { version, content: StoredContent { etag: content.etag.or(Some(etag)), ..content } })
}

/// Writes the row of received content. Returns its id and its metadata as JSON.
///
/// Once begun it is completed, even if the request is cancelled meanwhile.
///
/// # Errors
/// Those of PostgreSQL; the content is deleted unless the row may be committed.
pub(crate) async fn commit(
    operation: &Operation,
    permit: UploadPermit,
    received: ReceivedContent,
    description: ContentDescription,
) -> Result<Bytes> {
    commit_if(operation, permit, received, description, CommitConditions::default()).await
}

async fn commit_if(
    operation: &Operation,
    permit: UploadPermit,
    received: ReceivedContent,
    description: ContentDescription,
    conditions: CommitConditions,
) -> Result<Bytes> {
    let ReceivedContent { version, content } = received;
    let row =
        NewRow { tested: permit.tested, ..NewRow::of_content(&content, &description, permit.owner, permit.upsert) };
    write_row(operation, version, row, conditions, WrittenColumns::IdAndMetadata).await
}

/// Runs all three steps of an upload.
///
/// # Errors
/// Those of the steps.
pub(crate) async fn store(
    operation: &Operation,
    request: UploadRequest,
    authority: UploadAuthority,
    content: ContentStream<'_>,
) -> Result<Bytes> {
    let permit = permit(operation, &request, authority).await?;
    let received = receive(operation, &permit, content).await?;
    commit(operation, permit, received, request.description).await
}

/// Checks that the caller sees an object with an ETag, which is without quotes; `*` is every ETag.
///
/// # Errors
/// [`StorageError::NoSuchKey`], `PreconditionFailed`.
pub(crate) async fn require_etag(operation: &Operation, target: &ObjectPath, etag: &str) -> Result<()> {
    let current = find_visible(operation, target).await?;
    let conditions = Conditions { if_match: Some(etag.to_owned()), ..Conditions::default() };
    let is_met = conditions.evaluate(&current) == ConditionOutcome::Met;
    if is_met { Ok(()) } else { Err(S3Error::PRECONDITION_FAILED.into()) }
}

/// Like [`store`], but only if an object has the ETag, which is without quotes; `*` is every ETag.
/// The condition holds when the object is replaced, not only before.
///
/// # Errors
/// [`StorageError::NoSuchKey`], `PreconditionFailed`, and those of the steps.
pub(crate) async fn replace(
    operation: &Operation,
    request: UploadRequest,
    etag: String,
    content: ContentStream<'_>,
) -> Result<Bytes> {
    let permit = permit(operation, &request, UploadAuthority::Caller).await?;
    require_etag(operation, &request.target, &etag).await?;
    let received = receive(operation, &permit, content).await?;
    let conditions = CommitConditions { etag: Some(etag), ..CommitConditions::default() };
    commit_if(operation, permit, received, request.description, conditions).await
}
