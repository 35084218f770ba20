//! The gateway: connections, API keys, the caller, routing, CORS, limits, compression, request ids,
//! the access log, and the files of the web app.
//!
//! - [`mod@gateway`]: the path of one request, from the connection to a service and back
//! - `connection`: workers, the connection limit, the bytes of requests, HTTP/1 and HTTP/2
//! - `request`: the rules for one request: host, client address, keys, CORS, body, compression
//! - `web_app`: static files
//!
//! Promises: a router behind the gateway finds a [`portico_tokens::Caller`], a
//! [`portico_base::RequestId`] and a [`portico_base::ClientAddress`] in the extensions of every
//! request; no request is larger or slower than its mount allows; a panic in a service is a 500 for
//! one client and does not affect the others.
//!
//! Must not know: what a service does, the database, the project's files.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod connection;
mod gateway;
mod request;
mod web_app;

pub use connection::workers::Workers;
pub use connection::{ConnectionGuard, Serve, ServeLimits, serve};
pub use gateway::{BoxedResponse, Gateway, GatewayBuilder};
pub use request::access::{AccessRules, DEFAULT_BODY_LIMIT, DEFAULT_TIMEOUT, KeyPolicy};
pub use request::cors::Cors;
pub use request::gateway_headers::GatewayHeaders;
pub use web_app::{WebApp, WebAppError, image_media_type};
