//! Pages of the uploads that have begun, with groups of keys.

use serde::Deserialize;

use crate::error::Result;
use crate::object::list_page;
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep, parse};
use crate::sql::multipart as statements;

/// A request for a page of uploads.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadListRequest {
    pub bucket: String,
    pub prefix: String,
    /// The text that ends a group of keys; empty: keys are not grouped.
    pub delimiter: String,
    /// The key before the page. With an id: the upload before the page.
    pub after_key: Option<String>,
    pub after_id: Option<String>,
    pub limit: usize,
}

/// One entry of a page of uploads.
#[derive(Debug, Clone)]
pub(crate) enum UploadListEntry {
    Upload {
        key: String,
        id: String,
        created_at: String,
    },
    /// The beginning that a group of keys has in common.
    Group(String),
}

#[derive(Debug, Deserialize)]
struct UploadRow {
    id: String,
    key: String,
    created_at: String,
}

/// Returns a page of the caller's uploads, and true if others follow. The service sees all.
///
/// # Errors
/// Those of PostgreSQL.
pub(crate) async fn list(operation: &Operation, request: UploadListRequest) -> Result<(Vec<UploadListEntry>, bool)> {
    let UploadListRequest { bucket, prefix, delimiter, mut after_key, mut after_id, limit } = request;
    if [&bucket, &prefix, &delimiter].iter().any(|text| text.contains('\0')) {
        return Ok((Vec::new(), false));
    }
    let caller = operation.caller()?;
    let sees_all = if caller.is_service_role() { "true" } else { "false" };
    let owner = caller.owner().id;
    let beyond = list_page::beyond(&prefix);
    // A group that ended the page before is skipped as a whole
    if let Some(group) =
        after_key.as_deref().filter(|key| after_id.is_none() && group_of(key, &prefix, &delimiter) == Some(key))
    {
        let Some(behind) = list_page::beyond(group) else { return Ok((Vec::new(), false)) };
        (after_key, after_id) = (Some(behind), Some(String::new()));
    }
    let batch = (limit + 1).to_string();
    let mut entries: Vec<UploadListEntry> = Vec::new();
    // Each round yields an entry, or is the last one
    loop {
        let values = [
            Some(bucket.as_bytes()),
            Some(prefix.as_bytes()),
            beyond.as_deref().map(str::as_bytes),
            after_key.as_deref().map(str::as_bytes),
            after_id.as_deref().map(str::as_bytes),
            Some(sees_all.as_bytes()),
            owner.as_deref().map(str::as_bytes),
            Some(batch.as_bytes()),
        ];
        let step = SqlStep { text: statements::LIST_UPLOADS, values: &values };
        let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
        let rows: Vec<UploadRow> = if rows.joined.rows == 0 { Vec::new() } else { parse(&rows.bytes())? };
        let is_last = rows.len() <= limit;
        for row in rows {
            let group = group_of(&row.key, &prefix, &delimiter);
            if let (Some(UploadListEntry::Group(last)), Some(group)) = (entries.last(), group)
                && last == group
            {
                continue;
            }
            if entries.len() == limit {
                return Ok((entries, true));
            }
            match group {
                Some(group) => {
                    let Some(behind) = list_page::beyond(group) else { return Ok((entries, false)) };
                    (after_key, after_id) = (Some(behind), Some(String::new()));
                    entries.push(UploadListEntry::Group(group.to_owned()));
                }
                None => {
                    (after_key, after_id) = (Some(row.key.clone()), Some(row.id.clone()));
                    entries.push(UploadListEntry::Upload { key: row.key, id: row.id, created_at: row.created_at });
                }
            }
        }
        if is_last {
            return Ok((entries, false));
        }
    }
}

/// Returns the beginning of a key up to the first delimiter behind the prefix.
fn group_of<'a>(key: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(prefix).filter(|_| !delimiter.is_empty())?;
    let end = rest.find(delimiter)? + delimiter.len();
    key.get(..prefix.len() + end)
}
