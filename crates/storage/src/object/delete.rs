//! Deletion of objects. The content is deleted after the commit.

use std::sync::Arc;

use bytes::Bytes;
use portico_base::inherit_request;
use portico_database::wire::Row;
use serde_json::value::RawValue;

use super::version::delete_versions;
use crate::backend::VersionKey;
use crate::backend::journal::{JournalEntry, JournalNames};
use crate::error::{Result, S3Error, StorageError};
use crate::model::NamedVersion;
use crate::name::ObjectPath;
use crate::operation::{Actor, Operation, SqlStep, StepResults, TransactionEnd, WriteError, parse};
use crate::sql;

/// The number of objects that one transaction deletes.
const CHUNK: usize = 500;

/// Deletes one object.
///
/// # Errors
/// [`StorageError::NoSuchKey`] for an object that does not exist or that the caller cannot see;
/// [`StorageError::AccessDenied`] for one that the caller can see and may not delete.
pub(crate) async fn delete(operation: &Operation, path: &ObjectPath) -> Result<()> {
    delete_if(operation, path, None).await
}

/// Like [`delete`], but only if the object has an ETag, which is without quotes; `*` is every ETag.
/// The condition holds when the object is deleted, not only before.
///
/// # Errors
/// Those of [`delete`], and `PreconditionFailed`.
pub(crate) async fn delete_if(operation: &Operation, path: &ObjectPath, etag: Option<&str>) -> Result<()> {
    if path.bucket.contains('\0') || path.name.contains('\0') {
        return Err(StorageError::NoSuchKey);
    }
    let names = std::slice::from_ref(&path.name);
    let chunk = delete_chunk(operation, Actor::Caller, &path.bucket, names, etag).await?;
    if !chunk.rows.is_empty() {
        return Ok(());
    }
    // An object that was not there before the deletion, or is not there behind it, was gone at some
    // moment. So was one that another has followed since
    let (Some(before), Some((after, current))) = (chunk.before, chunk.after) else {
        return Err(StorageError::NoSuchKey);
    };
    let is_wanted = etag.is_none_or(|etag| etag == "*" || current.as_deref() == Some(etag));
    match before == after {
        _ if !is_wanted => Err(S3Error::PRECONDITION_FAILED.into()),
        true => Err(StorageError::AccessDenied("Access denied".into())),
        false => Err(StorageError::NoSuchKey),
    }
}

/// Deletes the objects with some names, as far as the caller may. Returns their rows as a JSON
/// array.
///
/// # Errors
/// Those of PostgreSQL. Chunks that were deleted before stay deleted.
pub(crate) async fn delete_many(operation: &Operation, bucket: &str, names: &[String]) -> Result<Bytes> {
    // No object has such a name
    let names: Vec<String> = names.iter().filter(|name| !name.contains('\0')).cloned().collect();
    let mut deleted: Vec<Box<RawValue>> = Vec::new();
    if !bucket.contains('\0') {
        for chunk in names.chunks(CHUNK) {
            for row in delete_chunk(operation, Actor::Caller, bucket, chunk, None).await?.rows {
                deleted.push(parse(&row)?);
            }
        }
    }
    serde_json::to_vec(&deleted).map(Bytes::from).map_err(|_| StorageError::Internal)
}

/// Deletes the objects with some names, whatever the policies say.
///
/// # Errors
/// Those of PostgreSQL. Chunks that were deleted before stay deleted.
pub(crate) async fn delete_as_service(operation: &Operation, bucket: &str, names: &[String]) -> Result<()> {
    for chunk in names.chunks(CHUNK) {
        delete_chunk(operation, Actor::Service, bucket, chunk, None).await?;
    }
    Ok(())
}

/// The outcome of one transaction that deletes objects.
struct DeletedChunk {
    /// The deleted rows, as JSON.
    rows: Vec<Bytes>,
    /// The id of the first object as the caller saw it before the deletion.
    before: Option<String>,
    /// The id and the ETag of the first object as the caller saw it behind the deletion.
    after: Option<(String, Option<String>)>,
}

/// Deletes objects in one transaction, with an ETag only those that have it.
async fn delete_chunk(
    operation: &Operation,
    actor: Actor,
    bucket: &str,
    names: &[String],
    etag: Option<&str>,
) -> Result<DeletedChunk> {
    let first = names.first().cloned().unwrap_or_default();
    let entry = JournalNames { bucket: bucket.to_owned(), names: names.to_vec() };
    let entry = operation.service.journal.enter_deletion(entry).await?;
    let (operation, bucket, list) = (operation.clone(), bucket.to_owned(), sql::text_array(names));
    let etag = etag.map(str::to_owned);
    // Once begun it is completed, even if the request is cancelled
    let task = tokio::spawn(inherit_request(async move {
        let see = [Some(bucket.as_bytes()), Some(first.as_bytes())];
        let mut delete = vec![Some(bucket.as_bytes()), Some(list.as_bytes())];
        delete.extend(etag.as_ref().map(|etag| Some(etag.as_bytes())));
        let text = if etag.is_some() { sql::DELETE_OBJECTS_WITH_ETAG } else { sql::DELETE_OBJECTS };
        let steps = [
            SqlStep { text: sql::SEE_OBJECT, values: &see },
            SqlStep { text, values: &delete },
            SqlStep { text: sql::SEE_ETAG, values: &see },
        ];
        let results = operation.write(actor, &steps, TransactionEnd::Commit).await;
        let results = finish(&operation, entry, &bucket, results, 1, 1).await?;
        let text = |row: &Row, column| row.text(column).map(str::to_owned);
        Ok(DeletedChunk {
            rows: results.rows(1).iter().filter_map(|row| row.get(0)).collect(),
            before: results.rows(0).first().and_then(|row| text(row, 0)),
            after: results.rows(2).first().and_then(|row| Some((text(row, 0)?, text(row, 1)))),
        })
    }));
    task.await.unwrap_or(Err(StorageError::Internal))
}

/// Deletes the content of the rows that a transaction has deleted. A column of its rows has their
/// names and versions.
pub(crate) async fn finish(
    operation: &Operation,
    entry: JournalEntry,
    bucket: &str,
    outcome: std::result::Result<StepResults, WriteError>,
    statement: usize,
    column: usize,
) -> Result<StepResults> {
    let results = match outcome {
        Ok(results) => results,
        // The clean-up finds out
        Err(error @ WriteError::Unknown(_)) => return Err(error.into()),
        Err(error) => {
            entry.close().await;
            return Err(error.into());
        }
    };
    let versions = results.rows(statement).iter().filter_map(|row| {
        let row: NamedVersion = parse(row.bytes(column)?).ok()?;
        Some(VersionKey::new(bucket, &row.name, row.version.as_deref()))
    });
    let versions = versions.collect();
    let service = Arc::clone(&operation.service);
    tokio::spawn(inherit_request(async move { delete_versions(&service, entry, versions).await }));
    Ok(results)
}
