//! Tests of the crate on a real PostgreSQL, with the schema of `schema.sql`.
#![allow(clippy::unwrap_used)]

mod admin;
mod calls;
mod database;
mod http;
mod openapi;
mod random_queries;
mod random_reads;
mod reads;
mod request_log;
mod schema;
mod schema_functions;
mod schema_relationships;
mod seeded_dice;
mod writes;
