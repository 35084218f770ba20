//! Moves: another name, another bucket, or both. The row stays the same one.

use std::sync::Arc;

use portico_base::inherit_request;
use portico_database::wire::Param;

use super::copy::{check_destination, copy_content};
use super::download::find_visible;
use super::upload::failed_commit;
use super::version::delete_versions;
use crate::backend::VersionKey;
use crate::backend::journal::JournalNames;
use crate::error::{Result, StorageError};
use crate::identity::Owner;
use crate::name::{ObjectKey, ObjectPath, is_folder_placeholder};
use crate::operation::{Actor, Operation, SqlStep, TransactionEnd, WriteError};
use crate::sql;

/// Moves an object.
///
/// # Errors
/// The first check that fails: the new key, the source, the limits of the destination, the
/// policies.
pub(crate) async fn relocate(operation: &Operation, source: ObjectPath, destination: ObjectPath) -> Result<()> {
    let key = ObjectKey::parse(&destination.name)?;
    let row = find_visible(operation, &source).await?;
    if source == destination {
        return Ok(());
    }
    // The limits of a bucket do not apply to the mark of an empty folder, so the other name decides
    let was_placeholder = is_folder_placeholder(&source.name);
    if source.bucket != destination.bucket || key.is_folder_placeholder() || was_placeholder {
        check_destination(operation, &destination.bucket, &key, &row.metadata).await?;
    }
    let owner = operation.caller()?.owner();
    let values = [moved(&source, &destination.bucket, &key, &owner).as_slice(), &[Some(b"1")]].concat();
    let tested = [SqlStep { text: sql::TEST_MOVE, values: &values }];
    let results = operation.write(Actor::Caller, &tested, TransactionEnd::RollBack).await?;
    // The row is visible, and the policies for updates do not apply to it
    if results.rows(0).is_empty() {
        return Err(StorageError::AccessDenied("new row violates row-level security policy".into()));
    }

    let service = &operation.service;
    let from = VersionKey::new(&source.bucket, &source.name, row.version.as_deref());
    let (mut version, stored) = copy_content(service, &from, &destination.bucket, &key).await?;
    let names = JournalNames { bucket: source.bucket.clone(), names: vec![source.name.clone()] };
    let left = service.journal.enter(names).await?;
    let metadata = row.metadata.for_new_version(stored.size, stored.modified).to_json();
    let operation = operation.clone();
    let task = tokio::spawn(inherit_request(async move {
        version.commit_sent();
        let id = version.id().to_owned();
        let replaced = row.version.as_deref().map(str::as_bytes);
        let version_values = [Some(id.as_bytes()), Some(metadata.as_bytes()), replaced];
        let values = [moved(&source, &destination.bucket, &key, &owner).as_slice(), &version_values].concat();
        // In one order for all, so that two moves never wait for each other
        let mut places = [[values[0], values[1]], [values[2], values[3]]];
        places.sort_unstable();
        let steps = [
            SqlStep { text: sql::LOCK_KEY, values: &places[0] },
            SqlStep { text: sql::LOCK_KEY, values: &places[1] },
            SqlStep { text: sql::MOVE_OBJECT, values: &values },
        ];
        match operation.write(Actor::Service, &steps, TransactionEnd::Commit).await {
            // Replaced, moved or deleted since
            Ok(results) if results.rows(2).is_empty() => {
                version.rolled_back();
                left.close().await;
                Err(StorageError::NoSuchKey)
            }
            Ok(_) => {
                version.committed(Vec::new());
                let service = Arc::clone(&operation.service);
                tokio::spawn(inherit_request(async move { delete_versions(&service, left, vec![from]).await }));
                Ok(())
            }
            Err(error) => {
                if !matches!(error, WriteError::Unknown(_)) {
                    left.close().await;
                }
                Err(failed_commit(error, version))
            }
        }
    }));
    task.await.unwrap_or(Err(StorageError::Internal))
}

/// Returns the values that [`sql::TEST_MOVE`] and [`sql::MOVE_OBJECT`] have in common.
fn moved<'a>(source: &'a ObjectPath, bucket: &'a str, key: &'a ObjectKey, owner: &'a Owner) -> [Param<'a>; 6] {
    [
        Some(source.bucket.as_bytes()),
        Some(source.name.as_bytes()),
        Some(bucket.as_bytes()),
        Some(key.as_str().as_bytes()),
        owner.uuid().map(str::as_bytes),
        owner.id.as_deref().map(str::as_bytes),
    ]
}
