//! The front door: API keys, the caller, routing, CORS, limits, request ids, the access log, static files.
//!
//! Contract: the gateway rules of the wire protocol (who needs a key, in which form a refusal comes, CORS).
//!
//! Promises: a router behind it finds a [`portico_tokens::Caller`], a [`portico_base::RequestId`] and a
//! [`portico_base::ClientAddress`] in the extensions of every request; no request is larger or slower than its
//! mount allows; a panic in a service is a 500 for one client and nothing for the others.
//!
//! Must not know: what a service does, the database, the project's files.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access;
mod address;
mod body;
mod compression;
mod connection;
mod context;
mod cors;
mod encoding;
mod forwarding;
mod gateway;
mod host;
mod keys;
mod lanes;
mod refusal;
mod request_line;
mod slots;
mod web_app;

pub use access::{Access, DEFAULT_BODY_LIMIT, DEFAULT_TIMEOUT, KeyPolicy};
pub use connection::{Serve, ServeLimits, serve};
pub use context::{CurrentRequest, with_current_request};
pub use cors::Cors;
pub use forwarding::Outside;
pub use gateway::{BoxedAnswer, Gateway, GatewayBuilder};
pub use lanes::Lanes;
pub use web_app::{WebApp, WebAppError};
