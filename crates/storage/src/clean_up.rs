//! The clean-up of content without a row.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use crate::backend::journal::JournalNames;
use crate::error::Result;
use crate::model::NamedVersion;
use crate::object::multipart;
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep, parse};
use crate::service::StorageService;
use crate::sql;

/// Compares the objects of old journal entries with their rows and deletes the versions that are
/// older than `grace` and that no row refers to.
pub(crate) async fn run(service: &Arc<StorageService>, grace: Duration) {
    if let Err(error) = service.backend.sweep(grace).await {
        tracing::warn!(error = %error, "interrupted uploads could not be deleted");
    }
    let operation = Operation::of_program(service, "storage.s3.upload.abort_multipart", &Method::DELETE, "");
    if let Err(error) = multipart::sweep(&operation, grace).await {
        tracing::warn!(error = %error.message(), "parts without an upload could not be deleted");
    }
    let entries = match service.journal.left_over(grace).await {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(error = %error, "the journal of the storage service could not be read");
            return;
        }
    };
    for (id, names) in entries {
        match reconcile(service, &names, grace).await {
            Ok(true) => service.journal.remove(&id).await,
            Ok(false) => {}
            Err(error) => tracing::warn!(error = %error.message(), "content without a row could not be deleted"),
        }
    }
}

/// Returns true if nothing is left that is too young to be deleted.
async fn reconcile(service: &Arc<StorageService>, names: &JournalNames, grace: Duration) -> Result<bool> {
    let mut kept = Vec::new();
    // Before the rows are read: what is stored later is younger than the grace period
    for name in &names.names {
        kept.extend(service.backend.versions(&names.bucket, name).await?);
    }
    // So that every version which is committed from now on is among them
    let in_progress = service.in_progress().clone();
    let operation = Operation::of_program(service, "storage.object.delete", &Method::DELETE, "");
    let list = sql::text_array(&names.names);
    let values = [Some(names.bucket.as_bytes()), Some(list.as_bytes())];
    let step = SqlStep { text: sql::CURRENT_VERSIONS, values: &values };
    let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
    let rows: Vec<NamedVersion> = parse(&rows.bytes())?;
    let current: HashMap<String, Option<String>> = rows.into_iter().map(|row| (row.name, row.version)).collect();
    let mut is_complete = true;
    for version in kept {
        if current.get(&version.key.name) == Some(&version.key.version) {
            continue;
        }
        if version.since.elapsed().is_ok_and(|age| age >= grace) && !in_progress.contains(&version.key) {
            service.backend.delete(&version.key).await?;
            service.evict_images(std::slice::from_ref(&version.key)).await;
        } else {
            is_complete = false;
        }
    }
    Ok(is_complete)
}
