//! The decision who receives a change: what a role may read, the conditions that only PostgreSQL
//! can compare, and the events of errors.

pub(super) mod access;
pub(super) mod authorise;
pub(super) mod database_tests;
mod registry_pauses;
pub(super) mod unauthorized;
pub(super) mod verdict;
