//! Moves: another name, another bucket, or both. The row stays the same one.

use std::sync::Arc;

use portico_base::inherit_request;
use portico_database::wire::Param;

use super::copy::{check_destination, copy_content, find_replacement};
use super::download::find_visible;
use super::new_row::failed_commit;
use super::version::delete_versions;
use crate::backend::VersionKey;
use crate::backend::journal::JournalNames;
use crate::error::{ExistingResource, Result, StorageError};
use crate::identity::Owner;
use crate::model::ObjectRow;
use crate::name::{ObjectKey, ObjectPath, is_folder_placeholder};
use crate::operation::{Actor, Operation, SqlStep, TransactionEnd, WriteError};
use crate::sql;

/// A request to move an object.
#[derive(Debug, Clone)]
struct MoveRequest {
    source: ObjectPath,
    bucket: String,
    key: ObjectKey,
    owner: Owner,
}

/// The outcome of an attempt to move an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveOutcome {
    Moved,
    /// The row that was found is not there any more: replaced, moved or deleted.
    Outdated,
}

/// Moves an object. One that is replaced meanwhile is moved as it is then.
///
/// # Errors
/// The first check that fails: the new key, the source, the limits of the destination, the
/// policies.
pub(crate) async fn relocate(operation: &Operation, source: ObjectPath, destination: ObjectPath) -> Result<()> {
    let key = ObjectKey::parse(&destination.name)?;
    let mut row = find_visible(operation, &source).await?;
    if source == destination {
        return Ok(());
    }
    let request = MoveRequest { source, bucket: destination.bucket, key, owner: operation.caller()?.owner() };
    let mut attempts = 0;
    while relocate_version(operation, &request, &row).await? == MoveOutcome::Outdated {
        attempts += 1;
        row = find_replacement(operation, &request.source, &row, attempts).await?;
    }
    Ok(())
}

/// Moves an object with this row.
async fn relocate_version(operation: &Operation, request: &MoveRequest, row: &ObjectRow) -> Result<MoveOutcome> {
    let MoveRequest { source, bucket, key, .. } = request;
    // The limits of a bucket do not apply to the mark of an empty folder, so the other name decides
    let was_placeholder = is_folder_placeholder(&source.name);
    if source.bucket != *bucket || key.is_folder_placeholder() || was_placeholder {
        check_destination(operation, bucket, key, &row.metadata).await?;
    }
    let values = [request.values().as_slice(), &[Some(b"1")]].concat();
    let tested = [SqlStep { text: sql::TEST_MOVE, values: &values }];
    let results = operation.write(Actor::Caller, &tested, TransactionEnd::RollBack).await?;
    if results.rows(0).is_empty() {
        // Gone since, or the policies for updates do not apply to it
        let is_there = find_visible(operation, source).await?.id == row.id;
        let denied = || StorageError::AccessDenied("new row violates row-level security policy".into());
        return if is_there { Err(denied()) } else { Ok(MoveOutcome::Outdated) };
    }

    let service = &operation.service;
    let from = VersionKey::new(&source.bucket, &source.name, row.version.as_deref());
    let Some((mut version, stored)) = copy_content(service, &from, bucket, key).await? else {
        return Ok(MoveOutcome::Outdated);
    };
    let names = JournalNames { bucket: source.bucket.clone(), names: vec![source.name.clone()] };
    let left = service.journal.enter(names).await?;
    let metadata = row.metadata.for_new_version(stored.size, stored.modified).to_json();
    let (operation, request, replaced) = (operation.clone(), request.clone(), row.version.clone());
    let task = tokio::spawn(inherit_request(async move {
        version.commit_sent();
        let id = version.id().to_owned();
        let version_values = [Some(id.as_bytes()), Some(metadata.as_bytes()), replaced.as_deref().map(str::as_bytes)];
        let values = [request.values().as_slice(), &version_values].concat();
        // In one order for all, so that two moves never wait for each other
        let mut places = [[values[0], values[1]], [values[2], values[3]]];
        places.sort_unstable();
        let steps = [
            SqlStep { text: sql::LOCK_KEY, values: &places[0] },
            SqlStep { text: sql::LOCK_KEY, values: &places[1] },
            SqlStep { text: sql::MOVE_OBJECT, values: &values },
        ];
        match operation.write(Actor::Service, &steps, TransactionEnd::Commit).await {
            Ok(results) if results.rows(2).is_empty() => {
                version.rolled_back();
                left.close().await;
                Ok(MoveOutcome::Outdated)
            }
            Ok(_) => {
                version.committed(Vec::new());
                let service = Arc::clone(&operation.service);
                tokio::spawn(inherit_request(async move { delete_versions(&service, left, vec![from]).await }));
                Ok(MoveOutcome::Moved)
            }
            Err(error) => {
                if !matches!(error, WriteError::Unknown(_)) {
                    left.close().await;
                }
                Err(failed_commit(error, version).naming(ExistingResource::Resource))
            }
        }
    }));
    task.await.unwrap_or(Err(StorageError::Internal))
}

impl MoveRequest {
    /// Returns the values that [`sql::TEST_MOVE`] and [`sql::MOVE_OBJECT`] have in common.
    fn values(&self) -> [Param<'_>; 6] {
        [
            Some(self.source.bucket.as_bytes()),
            Some(self.source.name.as_bytes()),
            Some(self.bucket.as_bytes()),
            Some(self.key.as_str().as_bytes()),
            self.owner.uuid().map(str::as_bytes),
            self.owner.id.as_deref().map(str::as_bytes),
        ]
    }
}
