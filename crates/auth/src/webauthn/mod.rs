//! WebAuthn as a relying party: the two ceremonies in which an authenticator registers a public key
//! and later proves that it has the private one (WebAuthn level 3, section 7).
//!
//! Passkeys and the second factor of that kind share it. Nothing here knows an account or the
//! database: callers keep challenges and credentials.
//!
//! Attestation is not requested, and no model of authenticator is trusted more than another. The
//! statement of formats that sign with a certificate or with the new key is verified all the same,
//! so that a damaged response is rejected. Other formats count as no attestation.

mod attestation;
mod authenticator_data;
mod client_data;
mod error;
mod options;
mod origin;
mod public_key;
mod relying_party;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use portico_base::hash::sha256;
use serde::{Deserialize, Deserializer};
use subtle::ConstantTimeEq as _;

pub(crate) use error::CeremonyError;
pub(crate) use options::{CredentialOwner, challenge_bytes, descriptor, new_challenge, offered_algorithms};
pub(crate) use public_key::PublicKey;
pub(crate) use relying_party::RelyingParty;

use attestation::Attestation;
use authenticator_data::AuthenticatorData;
use client_data::Ceremony;

/// Longer members of a response are rejected before they are decoded, in characters.
const MAX_MEMBER: usize = 64 * 1024;

/// Base64url with or without padding, as members of requests are written.
const LENIENT_URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Bytes that JSON carries as base64url.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base64UrlBytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for Base64UrlBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX_MEMBER {
            return Err(serde::de::Error::custom("too long"));
        }
        LENIENT_URL_SAFE.decode(text).map(Self).map_err(|_| serde::de::Error::custom("not base64url"))
    }
}

/// The constant `type` of a credential.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) enum CredentialType {
    #[serde(rename = "public-key")]
    PublicKey,
}

/// The response of a browser to registration options (`RegistrationResponseJSON`).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegistrationResponse {
    id: Base64UrlBytes,
    raw_id: Base64UrlBytes,
    #[serde(rename = "type")]
    _type: CredentialType,
    response: AttestationResponse,
}

#[derive(Debug, Clone, Deserialize)]
struct AttestationResponse {
    #[serde(rename = "clientDataJSON")]
    client_data: Base64UrlBytes,
    #[serde(rename = "attestationObject")]
    attestation_object: Base64UrlBytes,
    #[serde(default)]
    transports: Option<Vec<String>>,
}

/// The response of a browser to assertion options (`AuthenticationResponseJSON`).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AssertionResponse {
    id: Base64UrlBytes,
    raw_id: Base64UrlBytes,
    #[serde(rename = "type")]
    _type: CredentialType,
    response: SignedAssertion,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignedAssertion {
    #[serde(rename = "clientDataJSON")]
    client_data: Base64UrlBytes,
    authenticator_data: Base64UrlBytes,
    signature: Base64UrlBytes,
    #[serde(default)]
    user_handle: Option<Base64UrlBytes>,
}

impl AssertionResponse {
    /// Returns the id of the credential that signed.
    pub fn credential_id(&self) -> &[u8] {
        &self.raw_id.0
    }

    /// Returns the user handle, by which the account of a discoverable credential is found.
    pub fn user_handle(&self) -> Option<&[u8]> {
        self.response.user_handle.as_ref().map(|handle| &handle.0[..])
    }
}

/// A credential that a registration proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewCredential {
    pub id: Vec<u8>,
    /// The public key in COSE form.
    pub public_key: Vec<u8>,
    /// The format of the attestation statement that was verified, or `none`.
    pub attestation_format: String,
    /// The model of the authenticator; zeros where it is not disclosed.
    pub aaguid: [u8; 16],
    pub sign_count: u32,
    /// The ways in which the browser reaches the authenticator.
    pub transports: Vec<String>,
    pub is_backup_eligible: bool,
    pub is_backed_up: bool,
    pub is_user_verified: bool,
}

/// The part of a stored credential that the verification of an assertion needs.
#[derive(Debug, Clone)]
pub(crate) struct StoredCredential<'a> {
    pub id: &'a [u8],
    /// The public key in COSE form.
    pub public_key: &'a [u8],
    pub is_backup_eligible: bool,
}

/// A proved assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assertion {
    /// The authenticator's counter; 0 where it has none.
    pub sign_count: u32,
    pub is_backed_up: bool,
    pub is_user_verified: bool,
}

impl RelyingParty {
    /// Verifies the response to registration options.
    ///
    /// # Errors
    /// [`CeremonyError`] names the first check that failed.
    pub fn verify_registration(
        &self,
        challenge: &[u8],
        response: &RegistrationResponse,
    ) -> Result<NewCredential, CeremonyError> {
        let client_data = &response.response.client_data.0;
        client_data::check(client_data, Ceremony::Registration, challenge, &self.origins)?;
        let attestation = Attestation::parse(&response.response.attestation_object.0)?;
        let data = AuthenticatorData::parse(&attestation.authenticator_data)?;
        self.check_authenticator(&data)?;
        let credential = data.credential.as_ref().ok_or(CeremonyError::NoCredential)?;
        if response.id != response.raw_id || credential.id != response.raw_id.0 {
            return Err(CeremonyError::CredentialId);
        }
        let attestation_format = attestation.verified_format(&data, credential, &sha256(client_data))?.to_owned();
        Ok(NewCredential {
            id: credential.id.clone(),
            public_key: credential.public_key_bytes.clone(),
            attestation_format,
            aaguid: credential.aaguid,
            sign_count: data.sign_count,
            transports: known_transports(response.response.transports.as_deref().unwrap_or_default()),
            is_backup_eligible: data.is_backup_eligible,
            is_backed_up: data.is_backed_up,
            is_user_verified: data.is_user_verified,
        })
    }

    /// Verifies the response to assertion options by the credential that it names.
    ///
    /// # Errors
    /// [`CeremonyError`] names the first check that failed.
    pub fn verify_assertion(
        &self,
        challenge: &[u8],
        response: &AssertionResponse,
        credential: &StoredCredential<'_>,
    ) -> Result<Assertion, CeremonyError> {
        if response.id != response.raw_id || credential.id != response.raw_id.0 {
            return Err(CeremonyError::CredentialId);
        }
        let signed = &response.response;
        client_data::check(&signed.client_data.0, Ceremony::Assertion, challenge, &self.origins)?;
        let data = AuthenticatorData::parse(&signed.authenticator_data.0)?;
        self.check_authenticator(&data)?;
        if data.is_backup_eligible != credential.is_backup_eligible {
            return Err(CeremonyError::BackupEligibility);
        }
        let message = [&signed.authenticator_data.0[..], &sha256(&signed.client_data.0)].concat();
        match PublicKey::parse(credential.public_key)?.verifies(&message, &signed.signature.0) {
            true => Ok(Assertion {
                sign_count: data.sign_count,
                is_backed_up: data.is_backed_up,
                is_user_verified: data.is_user_verified,
            }),
            false => Err(CeremonyError::Signature),
        }
    }

    fn check_authenticator(&self, data: &AuthenticatorData) -> Result<(), CeremonyError> {
        if !bool::from(data.rp_id_hash.ct_eq(&sha256(self.id.as_bytes()))) {
            return Err(CeremonyError::RelyingParty);
        }
        match data.is_user_present {
            true => Ok(()),
            false => Err(CeremonyError::UserPresence),
        }
    }
}

/// Returns the transports that the standard names, each once: browsers pass on whatever the
/// authenticator says.
fn known_transports(given: &[String]) -> Vec<String> {
    const KNOWN: [&str; 6] = ["ble", "hybrid", "internal", "nfc", "smart-card", "usb"];
    let given = |known: &&str| given.iter().any(|given| given == known);
    KNOWN.into_iter().filter(given).map(str::to_owned).collect()
}
