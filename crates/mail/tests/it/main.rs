//! Tests of the crate's public interface.
#![allow(clippy::unwrap_used)]

mod address;
mod message;
mod smtp;
mod templates;
mod text;
mod tls;
