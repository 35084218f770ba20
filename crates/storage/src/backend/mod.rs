//! The place of the content of objects: immutable versions, each under a bucket, a name and a
//! version id.
//!
//! A version gets its name with one step, when all of its bytes have arrived. Once the backend has
//! returned, bytes and name are durable, and only then may a row refer to it: a version without a
//! row is not an object.

pub(crate) mod content_writer;
pub(crate) mod disk_threads;
pub(crate) mod flush;
pub(crate) mod folder;
mod interface;
pub(crate) mod journal;
mod model;
pub(crate) mod object_store;
pub(crate) mod parts;
mod path;
pub(crate) mod piece_hasher;
pub(crate) mod piece_permit;
mod sized_body;
mod work_queue;

pub(crate) use self::interface::Backend;
pub(crate) use self::model::{
    BackendError, ByteRange, ContentStream, OpenContent, StoredContent, StoredFile, VersionKey,
};
