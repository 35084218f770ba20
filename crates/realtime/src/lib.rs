//! Channels over WebSockets: broadcast, presence and database changes, everything under
//! `/realtime/v1`.
//!
//! `connection` accepts and serves sockets, `socket` has their frames, `channel` joins and the
//! state of a channel, `rooms` the way of a message to its receivers. PostgreSQL decides who may
//! read and write a private channel and who sees a change.
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
mod connection;
mod decode;
mod error;
#[cfg(test)]
mod fixture;
mod identity;
mod ids;
mod meter;
mod presence;
mod realtime;
mod replay;
mod rooms;
mod routes;
mod service;
mod settings;
mod socket;
mod sql;
mod stream;

pub use connection::RequestOrigin;
pub use identity::KeyRefresh;
pub use realtime::Realtime;
pub use service::RealtimeFoundation;
pub use settings::{
    ChangesSettings, RealtimeClusterSettings, RealtimeClusterTransport, RealtimeLimits, RealtimeSettings,
};
