//! Channels over WebSockets: broadcast, presence and database changes, everything under
//! `/realtime/v1`.
//!
//! `socket` knows frames and connections, `channel` joins and the state of a channel, `rooms` the
//! way of a message to its receivers. PostgreSQL decides who may read and write a private channel
//! and who sees a change.
//!
//! Promises: what one channel may not see does not reach it, whatever another one does; a client
//! that does not read costs bounded memory and delays no other. This crate must not know
//! configuration files, other services, or how requests reach it.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod authorise;
mod broadcast;
mod changes;
mod channel;
mod cluster;
mod decode;
mod error;
#[cfg(test)]
mod fixture;
mod identity;
mod meter;
mod presence;
mod realtime;
mod replay;
mod rooms;
mod routes;
mod settings;
mod socket;
mod sql;
mod stream;

pub use cluster::{RealtimeClusterSettings, RealtimeClusterTransport};
pub use identity::KeyRefresh;
pub use realtime::{Realtime, RealtimeFoundation, RequestOrigin};
pub use settings::{ChangesSettings, RealtimeLimits, RealtimeSettings};
