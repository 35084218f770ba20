//! Attestation objects (WebAuthn level 3, sections 6.5 and 8).

use ciborium::Value;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use webpki::EndEntityCert;
use webpki::aws_lc_rs::{
    ECDSA_P256_SHA256, ECDSA_P384_SHA384, ECDSA_P521_SHA512, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    RSA_PSS_2048_8192_SHA384_LEGACY_KEY, RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
};

use super::authenticator_data::{AttestedCredential, AuthenticatorData};
use super::error::CeremonyError;
use super::public_key::{CoseAlgorithm, read_value};

/// The formats that the standard registers, which a response may name.
const FORMATS: [&str; 8] =
    [NO_ATTESTATION, "packed", "tpm", "android-key", "android-safetynet", "fido-u2f", "apple", "compound"];

/// The format of a registration without attestation.
const NO_ATTESTATION: &str = "none";

/// A decoded attestation object.
#[derive(Debug, Clone)]
pub(super) struct Attestation {
    format: String,
    pub authenticator_data: Vec<u8>,
    statement: Value,
}

impl Attestation {
    /// Decodes an attestation object.
    ///
    /// # Errors
    /// [`CeremonyError::AttestationObject`] when it is malformed or of an unknown format.
    pub fn parse(bytes: &[u8]) -> Result<Self, CeremonyError> {
        Self::read(bytes).ok_or(CeremonyError::AttestationObject)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let value = read_value(&mut rest).filter(|_| rest.is_empty())?;
        let format = field(&value, "fmt")?.as_text()?.to_owned();
        let authenticator_data = field(&value, "authData")?.as_bytes()?.clone();
        let statement = field(&value, "attStmt")?.clone();
        let is_known = FORMATS.contains(&&*format) && (statement.is_map() || statement.is_array());
        is_known.then_some(Self { format, authenticator_data, statement })
    }

    /// Verifies the statement, for the formats whose signature is over the authenticator data and
    /// the hash of the client data. Returns the format that counts: a statement of another one
    /// proves nothing, and is taken for none, as the standard permits for attestation that is not
    /// trusted.
    ///
    /// # Errors
    /// [`CeremonyError::Attestation`] for a wrong signature.
    pub fn verified_format(
        &self,
        data: &AuthenticatorData,
        credential: &AttestedCredential,
        client_data_hash: &[u8; 32],
    ) -> Result<&str, CeremonyError> {
        let is_verified = match &*self.format {
            NO_ATTESTATION => self.statement.as_map().is_some_and(Vec::is_empty),
            "packed" | "android-key" => {
                let message = [&self.authenticator_data[..], client_data_hash].concat();
                self.is_signed(&message, credential)
            }
            "fido-u2f" => fido_u2f_message(data, credential, client_data_hash)
                .is_some_and(|message| self.is_signed(&message, credential)),
            _ => return Ok(NO_ATTESTATION),
        };
        is_verified.then_some(&*self.format).ok_or(CeremonyError::Attestation)
    }

    /// Returns true if the statement's signature is that of its certificate, or without one that of
    /// the new key.
    fn is_signed(&self, message: &[u8], credential: &AttestedCredential) -> bool {
        let Some(signature) = field(&self.statement, "sig").and_then(Value::as_bytes) else {
            return false;
        };
        let algorithm = match field(&self.statement, "alg") {
            // FIDO U2F knows only one
            None if self.format == "fido-u2f" => Some(CoseAlgorithm::Es256),
            number => number
                .and_then(Value::as_integer)
                .and_then(|number| i64::try_from(number).ok())
                .and_then(CoseAlgorithm::of_number),
        };
        let Some(algorithm) = algorithm else {
            return false;
        };
        match field(&self.statement, "x5c") {
            Some(chain) => {
                let leaf = chain.as_array().and_then(|chain| chain.first()).and_then(Value::as_bytes);
                leaf.is_some_and(|leaf| {
                    let leaf = CertificateDer::from(leaf.as_slice());
                    EndEntityCert::try_from(&leaf)
                        .is_ok_and(|leaf| leaf.verify_signature(verification(algorithm), message, signature).is_ok())
                })
            }
            None => {
                self.format == "packed"
                    && algorithm == credential.public_key.algorithm()
                    && credential.public_key.verifies(message, signature)
            }
        }
    }
}

/// Returns the message that a FIDO U2F authenticator signs.
fn fido_u2f_message(
    data: &AuthenticatorData,
    credential: &AttestedCredential,
    client_data_hash: &[u8; 32],
) -> Option<Vec<u8>> {
    let point = credential.public_key.uncompressed_point()?;
    Some([&[0], &data.rp_id_hash[..], client_data_hash, &credential.id, point].concat())
}

fn verification(algorithm: CoseAlgorithm) -> &'static dyn SignatureVerificationAlgorithm {
    match algorithm {
        CoseAlgorithm::Es256 => ECDSA_P256_SHA256,
        CoseAlgorithm::Es384 => ECDSA_P384_SHA384,
        CoseAlgorithm::Es512 => ECDSA_P521_SHA512,
        CoseAlgorithm::Rs256 => RSA_PKCS1_2048_8192_SHA256,
        CoseAlgorithm::Rs384 => RSA_PKCS1_2048_8192_SHA384,
        CoseAlgorithm::Rs512 => RSA_PKCS1_2048_8192_SHA512,
        CoseAlgorithm::Ps256 => RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        CoseAlgorithm::Ps384 => RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        CoseAlgorithm::Ps512 => RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        CoseAlgorithm::EdDsa => ED25519,
    }
}

/// Returns the member of a CBOR map with a text as its key. `None` also where it is there twice.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let mut values = value.as_map()?.iter().filter(|(key, _)| key.as_text() == Some(name));
    values.next().filter(|_| values.next().is_none()).map(|(_, value)| value)
}
