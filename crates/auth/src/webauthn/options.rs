//! The parts of options that both uses of WebAuthn send to browsers (WebAuthn level 3, section
//! 5.4).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::public_key::CoseAlgorithm;
use super::relying_party::RelyingParty;

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
    CoseAlgorithm::OFFERED
        .into_iter()
        .map(|algorithm| json!({ "type": "public-key", "alg": algorithm.number() }))
        .collect()
}

/// Returns a credential as a member of options. Transports that are not known are left out.
pub(crate) fn descriptor(id: &[u8], transports: &[String]) -> Value {
    let mut descriptor = json!({ "type": "public-key", "id": URL_SAFE_NO_PAD.encode(id) });
    if !transports.is_empty() {
        descriptor["transports"] = json!(transports);
    }
    descriptor
}

/// Returns a new random challenge in base64url.
pub(crate) fn new_challenge() -> String {
    const CHALLENGE_BYTES: usize = 32;
    portico_base::random::base64url(CHALLENGE_BYTES)
}

/// Returns the bytes of a challenge that [`new_challenge`] made.
pub(crate) fn challenge_bytes(challenge: &Value) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(challenge.as_str()?).ok().filter(|bytes| !bytes.is_empty())
}
