//! The connections of clients.
//!
//! - `handshake`: the checks before a connection is upgraded
//! - `task`: reads and writes one socket

pub(crate) mod handshake;
mod task;

pub use handshake::RequestOrigin;
