//! WebSockets: the handshake, the frames of both protocol versions, and the task of one socket.
//!
//! - `frame`: frames from bytes and to bytes, without any state
//! - `outbox`: the frames that wait for one client, shared with all that send to it
//! - `handshake`: the checks before a connection is upgraded
//! - `connection`: the task that reads and writes one socket

pub(crate) mod connection;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod outbox;
