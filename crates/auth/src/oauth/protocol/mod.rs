//! The protocols spoken with providers, and the HTTP client for them.

pub mod discovery;
pub mod http_client;
mod public_address;
