//! The client's side of a sign-in: PKCE verifiers and the claims of tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// A PKCE verifier and its S256 challenge.
#[derive(Debug, Clone)]
pub struct Pkce {
    /// The secret that the client keeps until the exchange.
    pub verifier: String,
    /// The value that it sends when the flow begins.
    pub challenge: String,
}

impl Pkce {
    /// Returns a new pair.
    #[must_use]
    pub fn new() -> Self {
        let verifier = portico_base::random::base64url(48);
        let challenge = URL_SAFE_NO_PAD.encode(portico_base::hash::sha256(verifier.as_bytes()));
        Self { verifier, challenge }
    }
}

impl Default for Pkce {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the claims of a token without verification.
///
/// # Panics
/// When `token` is no JWT.
#[must_use]
#[track_caller]
pub fn claims_of(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("a JWT has three parts");
    let bytes = URL_SAFE_NO_PAD.decode(payload).expect("the payload is base64url");
    serde_json::from_slice(&bytes).expect("the payload is JSON")
}
