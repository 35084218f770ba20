//! Buckets.

use bytes::Bytes;
use portico_base::inherit_request;
use portico_database::wire::RowSeparators;
use serde::Deserialize;

use crate::error::{ExistingResource, Result, StorageError};
use crate::limits::check_mime_types;
use crate::name::check_bucket_name;
use crate::object::delete;
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep, TransactionEnd};
use crate::{backend::journal::JournalNames, sql};

/// The number of objects that one transaction of emptying a bucket deletes.
const EMPTY_CHUNK: usize = 500;
/// Up to this number of objects, a bucket is emptied before the response.
const EMPTY_AT_ONCE: u64 = 5000;

/// A bucket to be created.
#[derive(Debug, Clone)]
pub(crate) struct NewBucket {
    pub id: String,
    pub name: String,
    pub public: bool,
    /// In bytes.
    pub file_size_limit: Option<u64>,
    pub allowed_mime_types: Option<Vec<String>>,
}

/// Changes of a bucket. The outer `None` leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct BucketChanges {
    pub public: Option<bool>,
    /// In bytes.
    pub file_size_limit: Option<Option<u64>>,
    pub allowed_mime_types: Option<Option<Vec<String>>>,
}

/// A request for a list of buckets.
#[derive(Debug, Clone)]
pub(crate) struct BucketListRequest {
    pub limit: Option<u64>,
    pub offset: u64,
    /// A text that the name contains.
    pub search: String,
    /// A column that can be sorted by.
    pub column: &'static str,
    pub descending: bool,
    /// The rows have the type of the bucket.
    pub has_type: bool,
}

/// Creates a bucket.
///
/// # Errors
/// An invalid name or content type, one that exists, and the verdict of the policies.
pub(crate) async fn create(operation: &Operation, actor: Actor, bucket: &NewBucket) -> Result<()> {
    check_bucket_name(&bucket.name)?;
    check_bucket_name(&bucket.id)?;
    check_mime_types(bucket.allowed_mime_types.as_deref().unwrap_or_default())?;
    let owner = operation.known_caller().map(|caller| caller.owner()).unwrap_or_default();
    let limit = bucket.file_size_limit.map(|limit| limit.to_string());
    let types = bucket.allowed_mime_types.as_ref().map(sql::text_array);
    let values = [
        Some(bucket.id.as_bytes()),
        Some(bucket.name.as_bytes()),
        owner.uuid().map(str::as_bytes),
        owner.id.as_deref().map(str::as_bytes),
        Some(if bucket.public { "true" } else { "false" }.as_bytes()),
        limit.as_deref().map(str::as_bytes),
        types.as_deref().map(str::as_bytes),
    ];
    let step = SqlStep { text: sql::INSERT_BUCKET, values: &values };
    let outcome = operation.write(actor, &[step], TransactionEnd::Commit).await;
    outcome.map(drop).map_err(|error| StorageError::from(error).naming(ExistingResource::Bucket))
}

/// Returns buckets as a JSON array.
///
/// # Errors
/// Those of PostgreSQL.
pub(crate) async fn list(operation: &Operation, request: &BucketListRequest) -> Result<Bytes> {
    let mut pattern = String::from("%");
    for c in request.search.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    let number = |number: u64| number.min(i64::MAX as u64).to_string();
    let (limit, offset) = (request.limit.map(number), number(request.offset));
    let values = [Some(pattern.as_bytes()), limit.as_deref().map(str::as_bytes), Some(offset.as_bytes())];
    let text = sql::list_buckets(request.column, request.descending, request.has_type);
    let rows = operation.read(Actor::Caller, SqlStep { text: &text, values: &values }, JSON_ARRAY).await?;
    Ok(if rows.joined.rows == 0 { Bytes::from_static(b"[]") } else { rows.bytes() })
}

/// Returns a bucket as JSON.
///
/// # Errors
/// [`StorageError::NoSuchBucket`]
pub(crate) async fn get(operation: &Operation, actor: Actor, id: &str) -> Result<Bytes> {
    let id = known_text(id)?;
    let values = [Some(id.as_bytes())];
    let step = SqlStep { text: sql::FIND_BUCKET, values: &values };
    let rows = operation.read(actor, step, RowSeparators::default()).await?;
    if rows.joined.rows == 0 { Err(StorageError::NoSuchBucket) } else { Ok(rows.bytes()) }
}

/// Changes a bucket.
///
/// # Errors
/// [`StorageError::NoSuchBucket`] if the caller cannot change it.
pub(crate) async fn update(operation: &Operation, actor: Actor, id: &str, changes: &BucketChanges) -> Result<()> {
    let id = known_text(id)?;
    if let Some(Some(types)) = &changes.allowed_mime_types {
        check_mime_types(types)?;
    }
    let flag = |flag: bool| Some(if flag { "true" } else { "false" }.as_bytes());
    let limit = changes.file_size_limit.flatten().map(|limit| limit.to_string());
    let types = changes.allowed_mime_types.as_ref().and_then(Option::as_ref).map(sql::text_array);
    let values = [
        Some(id.as_bytes()),
        flag(changes.public.is_some()),
        flag(changes.public.unwrap_or_default()),
        flag(changes.file_size_limit.is_some()),
        limit.as_deref().map(str::as_bytes),
        flag(changes.allowed_mime_types.is_some()),
        types.as_deref().map(str::as_bytes),
    ];
    let step = SqlStep { text: sql::UPDATE_BUCKET, values: &values };
    let results = operation.write(actor, &[step], TransactionEnd::Commit).await?;
    operation.service.private_buckets.forget(id);
    if results.rows(0).is_empty() { Err(StorageError::NoSuchBucket) } else { Ok(()) }
}

/// Deletes an empty bucket.
///
/// # Errors
/// [`StorageError::NoSuchBucket`] if the caller cannot delete it, and only then
/// [`StorageError::BucketNotEmpty`] and [`StorageError::UploadsPending`].
pub(crate) async fn delete_bucket(operation: &Operation, id: &str) -> Result<()> {
    let id = known_text(id)?;
    let values = [Some(id.as_bytes())];
    let step = SqlStep { text: sql::DELETE_BUCKET, values: &values };
    let outcome = operation.write(Actor::Caller, &[step], TransactionEnd::Commit).await;
    // Another one may follow it
    operation.service.private_buckets.forget(id);
    match outcome {
        Ok(results) if results.rows(0).is_empty() => Err(StorageError::NoSuchBucket),
        Ok(_) => Ok(()),
        Err(error) => Err(still_used(error)),
    }
}

/// Returns the error of a bucket that cannot be deleted: foreign keys name what is left in it.
fn still_used(error: crate::operation::WriteError) -> StorageError {
    if let crate::operation::WriteError::RolledBack(error) = &error
        && let Some(error) = error.postgres().filter(|error| error.code == "23503")
    {
        match error.table.as_deref() {
            Some("objects") => return StorageError::BucketNotEmpty,
            Some("s3_multipart_uploads" | "s3_multipart_uploads_parts") => return StorageError::UploadsPending,
            _ => {}
        }
    }
    error.into()
}

/// Deletes all objects of a bucket that are there now. A few are deleted before it returns, many
/// afterwards.
///
/// # Errors
/// [`StorageError::NoSuchBucket`], [`StorageError::TooManyObjects`]
pub(crate) async fn empty(operation: &Operation, id: &str) -> Result<()> {
    get(operation, Actor::Service, id).await?;
    let limit = operation.service.settings.empty_bucket_limit;
    let wanted = (limit + 1).to_string();
    let values = [Some(id.as_bytes()), Some(wanted.as_bytes())];
    let step = SqlStep { text: sql::COUNT_OBJECTS, values: &values };
    let counted: Option<ObjectCount> = operation.read(Actor::Service, step, RowSeparators::default()).await?.one()?;
    let ObjectCount { count, until } = counted.ok_or(StorageError::Internal)?;
    if count > limit {
        return Err(StorageError::TooManyObjects);
    }
    let (operation, id) = (operation.clone(), id.to_owned());
    let work = tokio::spawn(inherit_request(async move { delete_until(&operation, &id, &until).await }));
    if count <= EMPTY_AT_ONCE {
        work.await.unwrap_or(Err(StorageError::Internal))?;
    }
    Ok(())
}

/// The number of the objects of a bucket, and the time at which they were counted.
#[derive(Debug, Deserialize)]
struct ObjectCount {
    count: u64,
    until: String,
}

async fn delete_until(operation: &Operation, id: &str, until: &str) -> Result<()> {
    let chunk = EMPTY_CHUNK.to_string();
    let mut last = String::new();
    loop {
        let values = [Some(id.as_bytes()), Some(until.as_bytes()), Some(chunk.as_bytes()), Some(last.as_bytes())];
        let names = SqlStep { text: sql::NAME_SOME, values: &values };
        let names = operation.read(Actor::Service, names, JSON_ARRAY).await?;
        if names.joined.rows == 0 {
            return Ok(());
        }
        let names: Vec<String> = crate::operation::parse(&names.bytes())?;
        let list = sql::text_array(&names);
        // A trigger of the project may keep some, so the next ones are those behind them
        let next = names.last().cloned().unwrap_or_default();
        let entry = JournalNames { bucket: id.to_owned(), names };
        let entry = operation.service.journal.enter_deletion(entry).await?;
        // An object may have been deleted and created again since its name was read
        let delete = [Some(id.as_bytes()), Some(list.as_bytes()), Some(until.as_bytes())];
        let steps = [SqlStep { text: sql::DELETE_OBJECTS_UNTIL, values: &delete }];
        let outcome = operation.write(Actor::Service, &steps, TransactionEnd::Commit).await;
        delete::finish(operation, entry, id, outcome, 0, 1).await?;
        last = next;
    }
}

/// Returns an id that PostgreSQL can compare with.
fn known_text(id: &str) -> Result<&str> {
    if id.contains('\0') { Err(StorageError::NoSuchBucket) } else { Ok(id) }
}
