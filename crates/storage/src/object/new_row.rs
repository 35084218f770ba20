//! The row of a new version, and the transaction that writes it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use portico_base::inherit_request;
use portico_database::wire::{Param, WireError};

use super::description::ContentDescription;
use super::version::NewVersion;
use crate::backend::{StoredContent, VersionKey};
use crate::error::{ExistingResource, Result, S3Error, StorageError};
use crate::identity::Owner;
use crate::model::NewMetadata;
use crate::operation::{Actor, Operation, SqlStep, TransactionEnd, WriteError};
use crate::sql;

/// The time for which the test of an upsert counts: the policies may change too.
const RECENT: Duration = Duration::from_secs(10);

/// A row that is there and that a test has allowed its caller to replace.
///
/// It was read before the test. Each change gives a row another row version (`xmin`), so as long as
/// it has this one, it was this row, unchanged, that the test was about.
#[derive(Debug)]
pub(crate) struct TestedRow {
    /// `xmin`
    pub row_version: String,
    /// The version of its content.
    pub version: Option<String>,
    /// The time of the test.
    pub at: Instant,
}

impl TestedRow {
    fn is_recent(&self) -> bool {
        self.at.elapsed() < RECENT
    }
}

/// The columns of a written row that are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenColumns {
    IdAndMetadata,
    All,
}

/// The conditions of the transaction that writes a row.
#[derive(Debug, Default, PartialEq, Eq)]
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
    /// The row that the caller was allowed to replace.
    pub tested: Option<TestedRow>,
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
        Self { metadata: metadata.to_json(), user_metadata, owner, upsert, tested: None }
    }
}

/// A row that was written.
struct WrittenRow {
    json: Option<Bytes>,
    /// The versions of the content that it had before.
    replaced: Vec<VersionKey>,
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
        let NewRow { metadata, user_metadata, owner, upsert, tested } = row;
        let (bucket, name) = (&*key.bucket, &*key.name);
        let row = RowValues { bucket, name, owner: &owner, version: version.id(), metadata, user_metadata };
        let tested = tested.filter(|tested| tested.is_recent() && conditions == CommitConditions::default());
        let replaced = match &tested {
            Some(tested) if returned == WrittenColumns::IdAndMetadata => replace_row(&operation, &row, tested).await,
            _ => Ok(None),
        };
        let written = match replaced {
            Ok(None) => write_behind_lock(&operation, &row, upsert, &conditions, returned).await,
            replaced => replaced,
        };
        match written {
            // A trigger of the project has prevented the row
            Ok(None) => {
                version.rolled_back();
                Err(StorageError::Internal)
            }
            Ok(Some(written)) => {
                version.committed(written.replaced);
                written.json.ok_or(StorageError::Internal)
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

fn has_code(error: &WireError, code: &str) -> bool {
    error.postgres().is_some_and(|error| error.code == code)
}

/// Replaces a row, if it is still the one that the caller was allowed to replace. `None`: nothing
/// was written, since it is another one or for another reason.
async fn replace_row(
    operation: &Operation,
    row: &RowValues<'_>,
    tested: &TestedRow,
) -> std::result::Result<Option<WrittenRow>, WriteError> {
    let [bucket, name, owner, owner_id, version, metadata, user_metadata] = row.values();
    let row_version = Some(tested.row_version.as_bytes());
    let (address, values) =
        ([bucket, name], [bucket, name, owner, owner_id, version, metadata, user_metadata, row_version]);
    let steps =
        [SqlStep { text: sql::LOCK_KEY, values: &address }, SqlStep { text: sql::REPLACE_OBJECT, values: &values }];
    match operation.write(Actor::Service, &steps, TransactionEnd::Commit).await {
        Ok(results) => Ok(results.rows(1).first().map(|written| WrittenRow {
            json: written.get(0),
            replaced: vec![VersionKey::new(row.bucket, row.name, tested.version.as_deref())],
        })),
        Err(WriteError::RolledBack(error)) if has_code(&error, sql::CONDITION_FAILED) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a row whatever it replaces. An upsert is tested again, behind the lock of the row.
async fn write_behind_lock(
    operation: &Operation,
    row: &RowValues<'_>,
    upsert: bool,
    conditions: &CommitConditions,
    returned: WrittenColumns,
) -> std::result::Result<Option<WrittenRow>, WriteError> {
    let values = row.values();
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
    let test = (upsert && is_bound).then_some(SqlStep { text: sql::TEST_UPSERT, values: &values });
    let text = match (upsert, returned) {
        (false, WrittenColumns::IdAndMetadata) => sql::INSERT_OBJECT,
        (true, WrittenColumns::IdAndMetadata) => sql::UPSERT_OBJECT,
        (false, WrittenColumns::All) => sql::INSERT_WHOLE_OBJECT,
        (true, WrittenColumns::All) => sql::UPSERT_WHOLE_OBJECT,
    };
    let write = [SqlStep { text, values: &values }];
    let results = operation.write_tested(Actor::Service, &before, test, &write, TransactionEnd::Commit).await?;
    let replaced = results.rows(locked).iter();
    let replaced = replaced.map(|found| VersionKey::new(row.bucket, row.name, found.text(0))).collect();
    Ok(results.rows(written).first().map(|written| WrittenRow { json: written.get(0), replaced }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_counts_for_a_while() {
        let tested = |at| TestedRow { row_version: "1".into(), version: None, at };
        assert!(tested(Instant::now()).is_recent());
        assert!(!tested(Instant::now().checked_sub(RECENT).unwrap()).is_recent());
    }
}
