//! Content in a bucket of an S3-compatible store.
//!
//! A version is an object of its own, which a store makes visible as a whole. So what a crash
//! leaves is a version without a row, as in a folder, or a multipart upload without an end.

mod client;
mod content;
mod credentials;
mod error;
mod key;
mod parts;
mod signature;
mod store;
mod upload;
mod xml;

pub(crate) use self::store::S3Store;
