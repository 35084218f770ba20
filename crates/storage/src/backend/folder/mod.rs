//! Content in a folder.
//!
//! An upload is written to a file in `incoming` and moved to its place once it is complete. Content
//! and folder are flushed beside each other: no row names the version before both are on disk, and
//! its id is new, so what a loss of power leaves at its place before that is never read. A copy is
//! a second name of the same file, since versions never change.

mod buffer;
mod cached;
mod content;
mod draft;
mod durable;
mod file;
mod parts;
mod receive;
mod small_contents;
mod store;
mod writers;

pub(crate) use self::store::ContentFolder;
