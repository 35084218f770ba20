//! The key that `id_token`s are signed with.

use std::sync::Arc;

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_SHA256},
};
use axum::response::{IntoResponse, Response};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::StatusCode;
use portico_base::hash;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The one key of the program, made when it is first asked for: that takes a moment, for which
/// neither the start of the server nor every test of a process should wait.
static KEY: OnceCell<Arc<ProviderKey>> = OnceCell::const_new();

/// An RSA key, as Google signs with.
pub(super) struct ProviderKey {
    pair: RsaKeyPair,
    id: String,
}

/// The key could not be made or used: the machine gives no randomness or no memory.
#[derive(Debug, thiserror::Error)]
#[error("the signing key of the identity provider cannot be used")]
pub(super) struct KeyFailure;

impl IntoResponse for KeyFailure {
    fn into_response(self) -> Response {
        tracing::error!(error = %self, "a request to the identity provider failed");
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

/// Returns the key.
pub(super) async fn get() -> Result<Arc<ProviderKey>, KeyFailure> {
    let make = || async {
        let pair = portico_base::spawn_blocking(|| RsaKeyPair::generate(KeySize::Rsa2048)).await;
        let pair = pair.map_err(|_| KeyFailure)?.map_err(|_| KeyFailure)?;
        let id = hash::sha256_hex(pair.public_key().as_ref())[..40].to_owned();
        Ok(Arc::new(ProviderKey { pair, id }))
    };
    KEY.get_or_try_init(make).await.cloned()
}

/// Begins making the key, so that it is there by the time a person has chosen.
pub(super) fn prepare() {
    if !KEY.initialized() {
        tokio::spawn(async { get().await.map(drop) });
    }
}

impl ProviderKey {
    pub(super) fn jwks(&self) -> Value {
        let (modulus, exponent) = public_numbers(self.pair.public_key().as_ref()).unwrap_or_default();
        json!({"keys": [{
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.id,
            "n": BASE64_URL_SAFE_NO_PAD.encode(modulus),
            "e": BASE64_URL_SAFE_NO_PAD.encode(exponent),
        }]})
    }

    pub(super) fn sign(&self, claims: &Value) -> Result<String, KeyFailure> {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "RS256", "kid": self.id, "typ": "JWT"})), part(claims));
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature)
            .map_err(|_| KeyFailure)?;
        Ok(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Returns the modulus and the exponent of a public key in the form of PKCS #1: a sequence of two
/// integers.
fn public_numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sequence, _) = element(der, 0x30)?;
    let (modulus, rest) = element(sequence, 0x02)?;
    let (exponent, _) = element(rest, 0x02)?;
    // A leading zero says that the number is positive, and is no part of it
    Some((modulus.strip_prefix(&[0]).unwrap_or(modulus), exponent.strip_prefix(&[0]).unwrap_or(exponent)))
}

/// Returns the content of the DER element that `der` begins with, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [found, length, rest @ ..] = der else { return None };
    let (length, rest) = match usize::from(*length) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (digits, rest) = rest.split_at_checked(long - 0x80).filter(|(digits, _)| digits.len() <= 4)?;
            (digits.iter().fold(0, |length, digit| length * 256 + usize::from(*digit)), rest)
        }
    };
    (*found == tag).then_some(())?;
    rest.split_at_checked(length)
}
