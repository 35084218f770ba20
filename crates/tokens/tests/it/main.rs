//! Tokens, keys and key rings through the public interface.

#![allow(clippy::unwrap_used)]

mod jwk;
mod kept;
mod refused;
mod ring;
mod third_party;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_tokens::{KeyRing, SigningKey};
use serde_json::Value;
use time::OffsetDateTime;

/// Returns two private keys of each algorithm, made for these tests only.
fn keys() -> &'static BTreeMap<String, Vec<Value>> {
    static KEYS: OnceLock<BTreeMap<String, Vec<Value>>> = OnceLock::new();
    KEYS.get_or_init(|| serde_json::from_str(include_str!("keys.json")).unwrap())
}

/// Returns a ring of one of the test keys.
fn ring(algorithm: &str, number: usize) -> KeyRing {
    KeyRing::new(None, vec![SigningKey::parse_jwk(&keys()[algorithm][number]).unwrap()]).unwrap()
}

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap()
}

fn encode(part: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(part)
}

fn decode(part: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(part).unwrap()
}

fn header_of(token: &str) -> Value {
    serde_json::from_slice(&decode(token.split('.').next().unwrap())).unwrap()
}
