//! Uploads in parts: begun once, received in any order and by several connections, completed in one
//! step.
//!
//! An upload belongs to the caller who has begun it. The policies decide about the object at the
//! beginning, with each part and at the end, as for an upload in one request. The rows of the
//! bookkeeping are the service's.

mod complete;
mod lifecycle;
mod list;

pub(crate) use self::complete::{CompletionRequest, complete};
pub(crate) use self::lifecycle::{
    MAX_PART_NUMBER, UploadName, abort, begin, end_abandoned, find, parts, permit_part, put_part, sweep,
};
pub(crate) use self::list::{UploadListEntry, UploadListRequest, list};
