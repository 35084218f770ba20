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
use portico_tokens::hash;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The one key of the program, made when it is first asked for: that takes a moment, for which neither the start of the
/// server nor every test of a process should wait.
static KEY: OnceCell<Arc<ProviderKey>> = OnceCell::const_new();

/// An RSA key, as Google signs with.
pub(super) struct ProviderKey {
    pair: RsaKeyPair,
    id: String,
}

/// The key could not be made or used: the machine gives no randomness or no memory.
#[derive(Debug, thiserror::Error)]
#[error("the signing key of the identity provider can not be used")]
pub(super) struct KeyFailure;

impl IntoResponse for KeyFailure {
    fn into_response(self) -> Response {
        tracing::error!("{self}");
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

/// The key.
pub(super) async fn get() -> Result<Arc<ProviderKey>, KeyFailure> {
    let make = || async {
        let pair = tokio::task::spawn_blocking(|| RsaKeyPair::generate(KeySize::Rsa2048)).await;
        let pair = pair.map_err(|_| KeyFailure)?.map_err(|_| KeyFailure)?;
        let modulus = pair.public_key().modulus().big_endian_without_leading_zero().to_vec();
        let id = hash::sha256_hex(&modulus)[..40].to_owned();
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
        let public = self.pair.public_key();
        let number = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [{
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.id,
            "n": number(public.modulus().big_endian_without_leading_zero()),
            "e": number(public.exponent().big_endian_without_leading_zero()),
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
