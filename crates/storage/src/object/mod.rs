//! Objects: upload, download, listing, move, copy, deletion.
//!
//! These are the operations of every protocol. Permission, limits, versions and the commit are
//! inside; a protocol only reads requests and writes responses.

pub(crate) mod condition;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod description;
pub(crate) mod download;
pub(crate) mod list;
pub(crate) mod list_page;
pub(crate) mod multipart;
pub(crate) mod new_row;
pub(crate) mod relocate;
pub(crate) mod upload;
mod version;

use portico_database::wire::RowSeparators;

use crate::error::Result;
use crate::model::BucketRules;
use crate::operation::{Actor, Operation, SqlStep};
use crate::sql;

/// Returns the rules of a bucket; `None` if it does not exist.
pub(crate) async fn bucket_rules(operation: &Operation, bucket: &str) -> Result<Option<BucketRules>> {
    let values = [Some(bucket.as_bytes())];
    let step = SqlStep { text: sql::BUCKET_RULES, values: &values };
    operation.read(Actor::Service, step, RowSeparators::default()).await?.one()
}
