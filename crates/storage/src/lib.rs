//! Buckets and objects under row-level security: everything under `/storage/v1`.
//!
//! The rows are in schema `storage`, the content in a [`backend`]. Each operation runs under the
//! role and the claims of its caller ([`operation`]): PostgreSQL decides what is allowed. An upload
//! is tested under the caller's role, received, and then written by the service.
//!
//! From the bottom:
//!
//! - `error`, `settings`, `model`, `name`, `binary_value`, `sql`: the statements
//! - `backend`: the content (`folder`, `object_store`, `parts`, `journal`); `unfinished`: resumable
//!   uploads on disk, one request at a time for each
//! - `service`: the state that requests share; `operation`: one step of SQL as the caller or as the
//!   service
//! - `bucket`, `object` (upload, download, list, move, copy, delete), `sign` (tokens of URLs),
//!   `rendering` (objects as images, by the crate `images`), `media_type` (the beginnings of
//!   files), `checksum`
//! - `http`: requests, bodies and headers that the protocols share
//! - the protocols: `routes` (REST), `resumable` (TUS) and `s3` (signatures, coded bodies, XML)
//! - `clean_up`: what a crash has left; `gc`: rows and content that do not fit together; `seed`:
//!   the buckets of `config.toml`; `reserved`: objects that the program itself keeps
//!
//! All protocols call `object`: permission, limits, versions and commit are inside.
//!
//! Promises: an acknowledged object is durable; an object that was not acknowledged is never
//! visible; no request reads or changes a row that its role cannot. This crate must not know
//! configuration files, other services, or how requests reach it.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backend;
mod binary_value;
mod bucket;
mod checksum;
mod clean_up;
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
    BackendSettings, ContainerToken, ImageSettings, S3AccessKey, S3Settings, S3StoreCredentials, S3StoreKey,
    S3StoreRole, S3StoreSettings, StorageSettings,
};
pub use storage::Storage;
