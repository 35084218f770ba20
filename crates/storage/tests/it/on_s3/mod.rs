//! The tests with the content in an S3-compatible store: those of the folder that touch content,
//! and those of the store's own faults.
// Each file is compiled for the folder and for the store, which differ in their `Place`
#![allow(clippy::duplicate_mod)]

#[path = "../bad_input.rs"]
mod bad_input;
#[path = "../buckets.rs"]
mod buckets;
#[path = "../deletion.rs"]
mod deletion;
#[path = "../delivery.rs"]
mod delivery;
mod faults;
#[path = "../gc.rs"]
mod gc;
#[path = "../helper.rs"]
#[allow(dead_code)]
mod helper;
#[path = "../interruption.rs"]
mod interruption;
#[path = "../moving.rs"]
mod moving;
mod parts;
#[path = "../permission.rs"]
mod permission;
mod place;
#[path = "../resumable.rs"]
mod resumable;
#[path = "../resumable_interruption.rs"]
mod resumable_interruption;
mod roles;
#[path = "../s3/mod.rs"]
mod s3;
#[path = "../upload.rs"]
mod upload;
