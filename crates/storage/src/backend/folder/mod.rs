//! Content in a folder.
//!
//! An upload is written to a file in `incoming`, flushed, and moved to its place, whose folder is
//! then flushed too: a version is there as a whole and survives a loss of power, or is not there.
//! A copy is a second name of the same file, since versions never change.

mod buffer;
mod cached;
mod content;
mod draft;
mod durable;
mod file;
mod parts;
mod store;

pub(crate) use self::store::ContentFolder;
