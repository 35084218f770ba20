//! The rules for one request: which host and client it names, which key and body it may carry, what
//! pages of other origins may read, and how its response is encoded.

pub(crate) mod access;
pub(crate) mod body;
pub(crate) mod client;
pub(crate) mod compression;
pub(crate) mod cors;
pub(crate) mod encoding;
pub(crate) mod gateway_headers;
pub(crate) mod head_memory;
pub(crate) mod host;
pub(crate) mod keys;
pub(crate) mod rejection;

/// The longest target that the gateway accepts, in bytes. The HTTP library accepts a little more.
pub(crate) const LONGEST_TARGET: usize = 65_000;
