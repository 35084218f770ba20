//! Channels over WebSockets: broadcast, presence and database changes, everything under
//! `/realtime/v1`.
//!
//! - `connection`: the handshake and the task of one socket; `socket`: frames of both versions as
//!   bytes, and the outbox
//! - `channel`: joins, and the messages of a socket by kind; `service`: the shared state
//! - `rooms`: the delivery of a message to its receivers, by thread; a message is encoded once for
//!   each version, and its bytes are shared by all receivers
//! - `authorise`: policies of private channels; `presence`; `broadcast`: over HTTP and from SQL;
//!   `replay`: stored messages
//! - `stream`: one logical replication for the server → `decode`: changes and their values as JSON
//!   → `changes`: subscriptions, filters, who may see a row
//! - `cluster`: several servers
//!
//! PostgreSQL decides who may read and write a private channel and who sees a change.
//!
//! Promises: what one channel may not see does not reach it, whatever another one does; a client
//! that does not read costs bounded memory and delays no other. This crate must not know
//! configuration files, other services, or how requests reach it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::too_many_lines))]

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
mod monitoring;
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
pub use realtime::Realtime;
pub use service::RealtimeFoundation;
pub use settings::{
    ChangesSettings, RealtimeClusterSettings, RealtimeClusterTransport, RealtimeLimits, RealtimeSettings,
};
