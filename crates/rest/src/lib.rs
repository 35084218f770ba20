//! Tables, views and functions as REST: everything under `/rest/v1`.
//!
//! The wire format is PostgREST's. A request passes through these stages, a folder each:
//!
//! 1. [`request`] and [`query`]: text to types. Knows no database.
//! 2. [`plan`]: types to a plan, checked against the [`schema`] cache. Pure.
//! 3. [`sql`]: a plan to one statement and its parameters. Pure. SQL is written here only; values
//!    of a client enter it as parameters, names as quoted identifiers.
//! 4. `execute`: one transaction in the role of the request.
//! 5. `response`: the result to status, headers and body.
//!
//! `handler` runs the stages. `snapshot` holds the state that a request is executed with
//! (configuration and schema cache) and reloads it; `config` is the configuration, by the server
//! and by the login role. `openapi` describes the exposed objects.
//!
//! This crate must not know configuration files, other services, or how requests reach it. API keys
//! are checked before.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
pub mod config;
mod data_api;
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
mod snapshot;
pub mod sql;
pub mod statement_builder;

pub use error::RestError;
pub use rest::{Rest, RestSettings};
