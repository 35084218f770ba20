//! The parts of options that both uses of WebAuthn send to browsers (WebAuthn level 3, section 5.4).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{Algorithm, RelyingParty};

/// The account for which a credential is made, as an authenticator keeps it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CredentialOwner<'a> {
    /// The user handle, by which the account is found again.
    pub handle: &'a str,
    /// The name that distinguishes the account.
    pub name: &'a str,
    /// The name of the person.
    pub display_name: &'a str,
}

impl CredentialOwner<'_> {
    /// Returns the member `user` of registration options.
    pub fn to_json(self) -> Value {
        json!({
            "id": URL_SAFE_NO_PAD.encode(self.handle),
            "name": self.name,
            "displayName": self.display_name,
        })
    }
}

impl RelyingParty {
    /// Returns the member `rp` of registration options.
    pub fn to_json(&self) -> Value {
        json!({ "id": self.id, "name": self.name })
    }
}

/// Returns the member `pubKeyCredParams` of registration options.
pub(crate) fn offered_algorithms() -> Value {
    Algorithm::OFFERED.into_iter().map(|algorithm| json!({ "type": "public-key", "alg": algorithm.number() })).collect()
}
