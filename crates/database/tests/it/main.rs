//! The crate against real PostgreSQL servers.
#![allow(clippy::unwrap_used)]

mod bootstrap;
mod bootstrap_catalog;
mod cluster;
mod faults;
mod pool;
mod scratch;
mod tls;
