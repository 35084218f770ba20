//! Buckets and objects under row-level security: everything under `/storage/v1`.
//!
//! The rows are in schema `storage`, the content in a [`backend`]. Each operation runs under the
//! role and the claims of its caller ([`operation`]): PostgreSQL decides what is allowed. An upload
//! is tested under the caller's role, received, and then written by the service.
//!
//! `routes` knows HTTP and no SQL. `bucket`, `object` and `sign` are the operations, which other
//! protocols ([`s3`], resumable uploads) call as well. `sql` has the statements.
//!
//! Promises: an acknowledged object is durable; an object that was not acknowledged is never
//! visible; no request reads or changes a row that its role cannot. This crate must not know
//! configuration files, other services, or how requests reach it.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backend;
mod bucket;
mod cleanup;
mod error;
mod gc;
mod http;
mod identity;
mod limits;
mod media_type;
mod model;
mod name;
mod object;
mod operation;
mod rendering;
mod reserved;
mod resumable;
mod routes;
mod s3;
mod seed;
mod service;
mod settings;
mod sign;
mod sigv4;
mod sql;
mod storage;
mod unfinished;

pub use gc::{GcError, GcOptions, GcSummary};
pub use reserved::{ListedObject, ReservedObjectError};
pub use seed::{ExistingBuckets, SeedBucket, SeedError};
pub use settings::{
    BackendSettings, ImageSettings, S3AccessKey, S3Settings, S3StoreCredentials, S3StoreSettings, StorageSettings,
};
pub use storage::Storage;
