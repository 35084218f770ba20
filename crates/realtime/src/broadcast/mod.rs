//! Broadcasts that do not come from a socket: over HTTP, and from rows of the database.

pub(crate) mod database;
pub(crate) mod http;
