//! The connections of clients.
//!
//! - `handshake`: the checks before a connection is upgraded
//! - `task`: reads and writes one socket, on a connection that `metered_io` counts

pub(crate) mod handshake;
mod metered_io;
mod task;

pub use handshake::RequestOrigin;
