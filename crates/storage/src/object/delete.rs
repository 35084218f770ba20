//! Deletion of objects. The content is deleted after the commit.

use std::sync::Arc;

use bytes::Bytes;
use portico_base::inherit_request;
use serde_json::value::RawValue;

use super::version::delete_versions;
use crate::backend::VersionKey;
use crate::backend::journal::{JournalEntry, JournalNames};
use crate::error::{Result, StorageError};
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
    if path.bucket.contains('\0') || path.name.contains('\0') {
        return Err(StorageError::NoSuchKey);
    }
    let (was_seen, rows) =
        delete_chunk(operation, Actor::Caller, &path.bucket, std::slice::from_ref(&path.name)).await?;
    match (rows.is_empty(), was_seen) {
        (false, _) => Ok(()),
        (true, true) => Err(StorageError::AccessDenied("Access denied".into())),
        (true, false) => Err(StorageError::NoSuchKey),
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
            for row in delete_chunk(operation, Actor::Caller, bucket, chunk).await?.1 {
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
        delete_chunk(operation, Actor::Service, bucket, chunk).await?;
    }
    Ok(())
}

/// Deletes objects in one transaction. Returns whether the first one was visible before, and the
/// deleted rows.
async fn delete_chunk(
    operation: &Operation,
    actor: Actor,
    bucket: &str,
    names: &[String],
) -> Result<(bool, Vec<Bytes>)> {
    let first = names.first().cloned().unwrap_or_default();
    let entry = JournalNames { bucket: bucket.to_owned(), names: names.to_vec() };
    let entry = operation.service.journal.enter_deletion(entry).await?;
    let (operation, bucket, list) = (operation.clone(), bucket.to_owned(), sql::text_array(names));
    // Once begun it is completed, even if the request is cancelled
    let task = tokio::spawn(inherit_request(async move {
        let see = [Some(bucket.as_bytes()), Some(first.as_bytes())];
        let delete = [Some(bucket.as_bytes()), Some(list.as_bytes())];
        let steps =
            [SqlStep { text: sql::SEE_OBJECT, values: &see }, SqlStep { text: sql::DELETE_OBJECTS, values: &delete }];
        let results = operation.write(actor, &steps, TransactionEnd::Commit).await;
        let results = finish(&operation, entry, &bucket, results, 1, 1).await?;
        let rows = results.rows(1).iter().filter_map(|row| row.get(0)).collect();
        Ok((!results.rows(0).is_empty(), rows))
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
