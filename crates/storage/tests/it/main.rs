//! Tests of the service on a real PostgreSQL and a real folder.
#![allow(clippy::unwrap_used)]

mod bad_input;
mod buckets;
mod deletion;
mod delivery;
mod full_disk;
mod gc;
mod helper;
mod interruption;
mod listing;
mod memory;
mod moving;
mod owner_reads;
mod permission;
mod permission_model;
mod place;
mod rendering;
mod resumable;
mod resumable_input;
mod resumable_interruption;
mod s3;
mod signing;
mod upload;
