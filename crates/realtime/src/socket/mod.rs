//! WebSockets.
//!
//! - `frame`: frames from bytes and to bytes, without any state
//! - `outbox`: the frames that wait for one client, shared with all that send to it

pub(crate) mod frame;
pub(crate) mod outbox;
