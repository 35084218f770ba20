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
mod answer;
mod array;
pub mod body;
mod caller;
mod claim_path;
pub mod config;
pub mod error;
mod execute;
mod explain;
mod grants;
mod handler;
mod in_database;
pub mod media;
mod openapi;
mod pieces;
pub mod plan;
mod postgres;
pub mod preferences;
mod prepare;
pub mod query;
pub mod range;
mod reply;
mod resource;
pub mod schema;
mod service;
mod settings;
pub mod sql;
mod state;
mod timing;
mod transaction;

pub use error::RestError;
pub use service::{Rest, RestSettings};
