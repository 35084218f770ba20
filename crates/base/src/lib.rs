//! The foundation that every other crate may use: time, randomness, digests, secrets, colours, and
//! what a request carries besides its caller.
//!
//! Promises: [`Clock`] is the only reader of the wall clock, and [`random`] the only source of
//! unpredictable values, so tests control both. [`Secret`] never prints its text.
//!
//! Must not know: how requests are received and responded to, the database, tokens, any service.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod allowed_origins;
mod capped_semaphore;
mod client_address;
mod clock;
mod current_request;
mod error_chain;
mod forwarded_headers;
mod logged_response;
mod request_id;
mod secret;

pub mod colour;
pub mod hash;
pub mod random;
pub mod token_bucket;

pub use allowed_origins::AllowedOrigins;
pub use capped_semaphore::{CappedPermit, CappedSemaphore};
pub use client_address::ClientAddress;
pub use clock::Clock;
pub use current_request::{
    CurrentRequest, inherit_request, inherit_request_blocking, spawn_blocking, with_current_request, with_request,
};
pub use error_chain::error_chain;
pub use forwarded_headers::ForwardedHeaders;
pub use logged_response::{LoggedErrorCode, LoggedRoute};
pub use request_id::RequestId;
pub use secret::Secret;
