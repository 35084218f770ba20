//! The crate against a real PostgreSQL with the schema of `schema.sql`.
#![allow(clippy::unwrap_used)]

mod calls;
mod database;
mod random_reads;
mod reads;
mod schema;
mod steps;
mod writes;
