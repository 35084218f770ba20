//! Upload: a test under the caller's role, the content, and the commit.
//!
//! The test writes the row under the role of the caller and is rolled back: the policies of the
//! project decide, with the duplicate check after them. The content is then stored as a new
//! version, and the row is written by the service. What an upsert replaces may have changed while
//! the content arrived, so its test is repeated in the transaction that commits, behind the lock.

use std::path::Path;

use bytes::Bytes;
use portico_base::inherit_request;
use portico_database::wire::{Param, WireError};
use serde_json::json;

use super::bucket_rules;
use super::condition::{ConditionOutcome, Conditions};
pub(crate) use super::description::{ContentDescription, metadata_text};
use super::download::find_visible;
use super::version::NewVersion;
use crate::backend::{ByteRange, ContentStream, StoredContent, VersionKey};
use crate::error::{ExistingResource, Result, S3Error, StorageError};
use crate::identity::Owner;
use crate::limits::check_mime_type;
use crate::model::{BucketRules, NewMetadata};
use crate::name::{ObjectKey, ObjectPath};
use crate::operation::{Actor, Operation, SqlStep, TransactionEnd, WriteError, parse};
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
    let size_limit = match test_with_rules(operation, actor, &row, *upsert).await {
        Ok(rules) => check_limits(operation, request, rules)?,
        Err(error) => {
            // The limits come before the policies. A failed test returns nothing of the bucket
            check_limits(operation, request, bucket_rules(operation, &target.bucket).await?)?;
            return Err(error);
        }
    };
    let mimetype = description.mimetype.clone();
    let (bucket, exact_size) = (target.bucket.clone(), request.exact_size);
    Ok(UploadPermit { bucket, key, upsert: *upsert, owner, size_limit, exact_size, mimetype })
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

/// Like [`test`], but also returns the rules of the bucket, in one transaction.
async fn test_with_rules(
    operation: &Operation,
    actor: Actor,
    row: &RowValues<'_>,
    upsert: bool,
) -> Result<Option<BucketRules>> {
    let (values, bucket) = (row.values(), [Some(row.bucket.as_bytes())]);
    let rules = SqlStep { text: sql::BUCKET_RULES, values: &bucket };
    let outcome = operation.test_after(rules, actor, SqlStep { text: test_of(upsert), values: &values }).await;
    let results = outcome.map_err(|error| StorageError::from(error).naming(ExistingResource::Key))?;
    results.rows(0).first().map(|row| parse(row.bytes(0).unwrap_or_default())).transpose()
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
/// [`StorageError::InvalidMimeType`], and those of the backend.
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
    if fits { Ok(()) } else { Err(StorageError::InvalidMimeType(mimetype.to_owned())) }
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
    let row = NewRow::of_content(&content, &description, permit.owner, permit.upsert);
    write_row(operation, version, row, conditions, WrittenColumns::IdAndMetadata).await
}

/// The columns of a written row that are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenColumns {
    IdAndMetadata,
    All,
}

/// The conditions of the transaction that writes a row.
#[derive(Debug, Default)]
pub(crate) struct CommitConditions {
    /// The upload in parts with this id has not ended. It ends with the transaction.
    pub upload: Option<String>,
    /// The object exists and has this ETag, which is without quotes; `*` is every ETag.
    pub etag: Option<String>,
}

impl CommitConditions {
    /// Returns the error of a transaction in which one of them was not met.
    fn unmet(&self, error: &WireError) -> Option<StorageError> {
        match error.postgres()?.code.as_str() {
            sql::CONDITION_FAILED if self.upload.is_some() => Some(S3Error::NO_SUCH_UPLOAD.into()),
            sql::ETAG_DIFFERS if self.etag.is_some() => Some(S3Error::PRECONDITION_FAILED.into()),
            _ => None,
        }
    }
}

/// The columns of a new row, besides its key and its version.
pub(crate) struct NewRow {
    pub metadata: String,
    pub user_metadata: Option<String>,
    pub owner: Owner,
    pub upsert: bool,
}

impl NewRow {
    /// Returns the columns of content as its sender describes it.
    pub fn of_content(content: &StoredContent, description: &ContentDescription, owner: Owner, upsert: bool) -> Self {
        let metadata = NewMetadata {
            etag: content.etag.as_deref().unwrap_or_default(),
            size: content.size,
            modified: content.modified,
            mimetype: &description.mimetype,
            cache_control: &description.cache_control,
            robots_tag: description.robots_tag.as_deref(),
        };
        let user_metadata = description.user_metadata.clone();
        Self { metadata: metadata.to_json(), user_metadata, owner, upsert }
    }
}

/// Writes the row of a new version as the service. Returns the row as JSON.
///
/// # Errors
/// Those of PostgreSQL, `NoSuchUpload` and `PreconditionFailed` for conditions that are not met.
pub(crate) async fn write_row(
    operation: &Operation,
    mut version: NewVersion,
    row: NewRow,
    conditions: CommitConditions,
    returned: WrittenColumns,
) -> Result<Bytes> {
    let operation = operation.clone();
    let task = tokio::spawn(inherit_request(async move {
        version.commit_sent();
        let key = version.key().clone();
        let values = RowValues {
            bucket: &key.bucket,
            name: &key.name,
            owner: &row.owner,
            version: version.id(),
            metadata: row.metadata,
            user_metadata: row.user_metadata,
        };
        let values = values.values();
        let address = [values[0], values[1]];
        let upload = [conditions.upload.as_deref().map(str::as_bytes)];
        let required = [address[0], address[1], conditions.etag.as_deref().map(str::as_bytes)];
        let mut before = Vec::with_capacity(4);
        if conditions.upload.is_some() {
            before.push(SqlStep { text: sql::multipart::CONSUME_UPLOAD, values: &upload });
        }
        before.push(SqlStep { text: sql::LOCK_KEY, values: &address });
        let locked = before.len();
        before.push(SqlStep { text: sql::LOCK_OBJECT, values: &address });
        if conditions.etag.is_some() {
            before.push(SqlStep { text: sql::REQUIRE_ETAG, values: &required });
        }
        let written = before.len();
        // A signed URL has no caller, and its policies were tested when it was signed
        let is_bound = operation.known_caller().is_some_and(|caller| !caller.is_service_role());
        let test = (row.upsert && is_bound).then_some(SqlStep { text: sql::TEST_UPSERT, values: &values });
        let text = match (row.upsert, returned) {
            (false, WrittenColumns::IdAndMetadata) => sql::INSERT_OBJECT,
            (true, WrittenColumns::IdAndMetadata) => sql::UPSERT_OBJECT,
            (false, WrittenColumns::All) => sql::INSERT_WHOLE_OBJECT,
            (true, WrittenColumns::All) => sql::UPSERT_WHOLE_OBJECT,
        };
        let write = [SqlStep { text, values: &values }];
        match operation.write_tested(Actor::Service, &before, test, &write, TransactionEnd::Commit).await {
            // A trigger of the project has prevented the row
            Ok(results) if results.rows(written).is_empty() => {
                version.rolled_back();
                Err(StorageError::Internal)
            }
            Ok(results) => {
                let replaced = results.rows(locked).iter();
                let replaced = replaced.map(|row| VersionKey::new(&key.bucket, &key.name, row.text(0)));
                let row = results.rows(written).first().and_then(|row| row.get(0));
                version.committed(replaced.collect());
                row.ok_or(StorageError::Internal)
            }
            Err(error) => {
                let unmet = match &error {
                    WriteError::RolledBack(error) => conditions.unmet(error),
                    _ => None,
                };
                let failed = failed_commit(error, version);
                Err(unmet.unwrap_or(failed))
            }
        }
    }));
    task.await.unwrap_or_else(|error| {
        tracing::error!(error = %error, "the row of an upload could not be written");
        Err(StorageError::Internal)
    })
}

/// Returns the error of a transaction that would have committed a version.
pub(crate) fn failed_commit(error: WriteError, version: NewVersion) -> StorageError {
    if !matches!(error, WriteError::Unknown(_)) {
        version.rolled_back();
    }
    match StorageError::from(error).naming(ExistingResource::Key) {
        StorageError::Locked => StorageError::LockTimeout,
        other => other,
    }
}

/// The values of the columns that an upload writes.
pub(crate) struct RowValues<'a> {
    pub bucket: &'a str,
    pub name: &'a str,
    pub owner: &'a Owner,
    pub version: &'a str,
    pub metadata: String,
    pub user_metadata: Option<String>,
}

impl RowValues<'_> {
    /// Returns the values in the order of [`sql::TEST_INSERT`].
    pub fn values(&self) -> [Param<'_>; 7] {
        [
            Some(self.bucket.as_bytes()),
            Some(self.name.as_bytes()),
            self.owner.uuid().map(str::as_bytes),
            self.owner.id.as_deref().map(str::as_bytes),
            Some(self.version.as_bytes()),
            Some(self.metadata.as_bytes()),
            self.user_metadata.as_deref().map(str::as_bytes),
        ]
    }
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
