//! Tables, views and functions as REST: everything under `/rest/v1`.
//!
//! Keeps the wire contract `rest`. A request goes through four stages, each a room of its own:
//!
//! 1. [`query`], [`preferences`], [`media`], [`body`]: text to types. Pure; knows no schema and no database.
//! 2. [`plan`]: types to a plan, checked against the [`schema`] cache. Pure.
//! 3. [`sql`]: a plan to one statement and its parameters. Pure. Here and nowhere else SQL is written; what a client sent
//!    enters it only as a parameter or as a quoted identifier.
//! 4. `execute`: one transaction in the caller's role, then the answer.
//!
//! This crate must not know: configuration files, other services, or how requests reached it. API keys are checked before.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod array;
pub mod config;
pub mod error;
mod execute;
mod handler;
mod openapi;
pub mod plan;
pub mod query;
pub mod request;
mod response;
mod rest;
pub mod schema;
mod service;
mod snapshot;
pub mod sql;
pub mod statement_builder;

pub use error::RestError;
pub use rest::{Rest, RestSettings};
