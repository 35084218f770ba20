//! Tests of the service on a real PostgreSQL, with the content in a real folder and in a store.
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
mod on_s3;
mod owner_reads;
mod permission;
mod permission_model;
mod place;
mod rendering;
mod resumable;
mod resumable_input;
mod resumable_interruption;
mod s3;
mod seed;
mod signing;
mod upload;
