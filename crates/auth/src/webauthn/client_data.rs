//! Client data: what the browser says of a ceremony (WebAuthn level 3, section 5.8.1).

use super::error::CeremonyError;
use super::origin::RelyingPartyOrigin;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;

/// The ceremony that the browser performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ceremony {
    Registration,
    Assertion,
}

impl Ceremony {
    fn name(self) -> &'static str {
        match self {
            Self::Registration => "webauthn.create",
            Self::Assertion => "webauthn.get",
        }
    }
}

#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    ceremony: String,
    challenge: String,
    origin: String,
}

/// Checks that the client data is of this ceremony, answers this challenge, and comes from one of
/// the origins.
///
/// # Errors
/// [`CeremonyError`] names the first check that failed.
pub(super) fn check(
    bytes: &[u8],
    ceremony: Ceremony,
    challenge: &[u8],
    origins: &[RelyingPartyOrigin],
) -> Result<(), CeremonyError> {
    let data: ClientData = serde_json::from_slice(bytes).map_err(|_| CeremonyError::ClientData)?;
    if data.ceremony != ceremony.name() {
        return Err(CeremonyError::Ceremony);
    }
    let answered =
        URL_SAFE_NO_PAD.decode(data.challenge.trim_end_matches('=')).map_err(|_| CeremonyError::Challenge)?;
    if !bool::from(answered.ct_eq(challenge)) {
        return Err(CeremonyError::Challenge);
    }
    match origins.iter().any(|allowed| allowed.matches(&data.origin)) {
        true => Ok(()),
        false => Err(CeremonyError::Origin),
    }
}
