//! The tests of the service with the content in an S3-compatible store: those of the folder that
//! touch content, and those of the store's own faults.
#![allow(clippy::unwrap_used)]

#[path = "../it/bad_input.rs"]
mod bad_input;
#[path = "../it/buckets.rs"]
mod buckets;
#[path = "../it/deletion.rs"]
mod deletion;
#[path = "../it/delivery.rs"]
mod delivery;
mod faults;
#[path = "../it/gc.rs"]
mod gc;
#[path = "../it/helper.rs"]
#[allow(dead_code)]
mod helper;
#[path = "../it/interruption.rs"]
mod interruption;
#[path = "../it/moving.rs"]
mod moving;
mod parts;
#[path = "../it/permission.rs"]
mod permission;
mod place;
#[path = "../it/resumable.rs"]
mod resumable;
#[path = "../it/resumable_interruption.rs"]
mod resumable_interruption;
#[path = "../it/s3/mod.rs"]
mod s3;
#[path = "../it/upload.rs"]
mod upload;
