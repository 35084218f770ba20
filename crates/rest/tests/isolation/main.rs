//! The adversarial tests of the data API: no request may act as another, see anything of another,
//! or find anything that another left behind (`docs/isolation.md`).
//!
//! The tests know nothing of the server's mechanism. They send real HTTP requests of alternating
//! callers through the whole server, with very few database connections. Each
//! [`scenario::Scenario`] is a piece of schema at one of the places where PostgreSQL runs code or
//! reads settings, with requests that reach it. The [`oracle`] compares every response, and every
//! written row, with what the request's own caller must see.
//!
//! - `scenarios/`: one module for each kind of place. Each module has one test. It sends the
//!   requests alone on fresh connections, then one by one over a single connection, then many at
//!   once.
//! - `directed`: schedules for the classic leaks.
//! - `stress`: everything at once in random order, with kills, cancels, aborts, lock waits and DDL.
#![allow(clippy::unwrap_used)]
// Tables of scenarios are long
#![allow(clippy::too_many_lines)]

mod caller;
mod directed;
mod oracle;
mod pooled;
mod remote;
mod scenario;
mod scenarios;
mod schedule;
mod server;
mod stress;
