//! What the crate promises to services, from the outside.
#![allow(clippy::unwrap_used)]

mod address;
mod message;
mod smtp;
mod templates;
mod text;
mod tls;
