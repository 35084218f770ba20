//! Secrets that are encrypted in the configuration (`encrypted:...`, the dotenvx format).
//!
//! A message is ECIES on secp256k1: an ephemeral public key, then AES-256-GCM with a key that HKDF
//! derives from the ephemeral key and the shared point.

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::aes::Aes256;
use aes_gcm::aes::cipher::consts::U16;
use aes_gcm::{AesGcm, Key, Nonce};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k256::elliptic_curve::sec1::ToEncodedPoint;
use k256::{PublicKey, SecretKey};
use portico_base::Secret;

use crate::environment::Environment;

/// The private keys in `DOTENV_PRIVATE_KEY` and `DOTENV_PRIVATE_KEY_*`.
pub(crate) struct DecryptionKeys {
    keys: Vec<Secret>,
}

/// The reasons for which a value cannot be decrypted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum EncryptedValueError {
    #[error("missing private key")]
    MissingKey,
    #[error("the value is no encrypted message")]
    Malformed,
    #[error("none of the private keys fits")]
    WrongKey,
}

/// The lengths of an uncompressed point, of the nonce and of the tag, in the order at the start of
/// a message.
const POINT: usize = 65;
const NONCE: usize = 16;
const TAG: usize = 16;

impl DecryptionKeys {
    pub fn from_environment(environment: &Environment) -> Self {
        let keys = environment
            .with_prefix("DOTENV_PRIVATE_KEY")
            .filter(|(name, _)| *name == "DOTENV_PRIVATE_KEY" || name.starts_with("DOTENV_PRIVATE_KEY_"))
            .flat_map(|(_, keys)| keys.split(','))
            .map(str::trim)
            .filter(|key| !key.is_empty())
            .map(Secret::new)
            .collect();
        Self { keys }
    }

    /// Decrypts a message (base64) with the first matching key.
    pub fn decrypt(&self, message: &str) -> Result<Secret, EncryptedValueError> {
        if self.keys.is_empty() {
            return Err(EncryptedValueError::MissingKey);
        }
        let message = STANDARD.decode(message.trim()).map_err(|_| EncryptedValueError::Malformed)?;
        if message.len() < POINT + NONCE + TAG {
            return Err(EncryptedValueError::Malformed);
        }
        let (point, sealed) = message.split_at(POINT);
        let ephemeral = PublicKey::from_sec1_bytes(point).map_err(|_| EncryptedValueError::Malformed)?;
        let opened = self.keys.iter().find_map(|key| open(key, &ephemeral, point, sealed));
        let plain = opened.ok_or(EncryptedValueError::WrongKey)?;
        String::from_utf8(plain).map(Secret::new).map_err(|_| EncryptedValueError::Malformed)
    }
}

fn open(key: &Secret, ephemeral: &PublicKey, point: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let key = key.expose();
    let key = SecretKey::from_slice(&hex::decode(key.strip_prefix("0x").unwrap_or(key)).ok()?).ok()?;
    let shared = (ephemeral.to_projective() * *key.to_nonzero_scalar()).to_affine();
    let shared = PublicKey::from_affine(shared).ok()?.to_encoded_point(false);
    let master = [point, shared.as_bytes()].concat();
    let mut key = [0; 32];
    Salt::new(HKDF_SHA256, &[]).extract(&master).expand(&[], KeyLength).ok()?.fill(&mut key).ok()?;

    let (nonce, rest) = sealed.split_at(NONCE);
    let (tag, text) = rest.split_at(TAG);
    let cipher = AesGcm::<Aes256, U16>::new(Key::<Aes256>::from_slice(&key));
    // The format puts the tag first, the cipher expects it last
    cipher.decrypt(Nonce::<U16>::from_slice(nonce), [text, tag].concat().as_slice()).ok()
}

/// The length that HKDF derives: an AES-256 key.
struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Made with the library of the original tool (`eciesjs`).
    const KEY: &str = "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f";
    const MESSAGE: &str = "BDx/baj+Dv18IwTRvnYIT+59frxgXh3vzCeguwLlmjdqyQ0GmjETXE7blr7s3aV9LjMs5+AN8BMODVKEO2rD/nuiBoBfeS8XesDj+MIulfDnPpFRmuZxOdHM+hNBHCDPBPHx0XWFfd7p5q9Yxal92fpv+A==";

    fn keys(variables: &[(&str, &str)]) -> DecryptionKeys {
        DecryptionKeys::from_environment(&variables.iter().copied().collect())
    }

    #[test]
    fn a_message_is_decrypted_with_the_matching_key() {
        let other = "2a".repeat(32);
        let both = format!("{other}, {KEY}");
        for variables in [
            [("DOTENV_PRIVATE_KEY", KEY)],
            [("DOTENV_PRIVATE_KEY_PRODUCTION", KEY)],
            [("DOTENV_PRIVATE_KEY", both.as_str())],
        ] {
            let opened = keys(&variables).decrypt(MESSAGE);
            assert_eq!(opened.as_ref().map(Secret::expose), Ok("sesame öffne dich"), "{variables:?}");
        }
    }

    #[test]
    fn an_undecryptable_message_has_a_reason() {
        assert_eq!(keys(&[]).decrypt(MESSAGE), Err(EncryptedValueError::MissingKey));
        assert_eq!(keys(&[("DOTENV_PRIVATE_KEYS", KEY)]).decrypt(MESSAGE), Err(EncryptedValueError::MissingKey));
        assert_eq!(
            keys(&[("DOTENV_PRIVATE_KEY", &"2a".repeat(32))]).decrypt(MESSAGE),
            Err(EncryptedValueError::WrongKey)
        );
        assert_eq!(keys(&[("DOTENV_PRIVATE_KEY", "no key")]).decrypt(MESSAGE), Err(EncryptedValueError::WrongKey));
        let mine = keys(&[("DOTENV_PRIVATE_KEY", KEY)]);
        assert_eq!(mine.decrypt("***"), Err(EncryptedValueError::Malformed));
        assert_eq!(mine.decrypt(&MESSAGE[..100]), Err(EncryptedValueError::Malformed));
        let tampered = format!("{}{}", &MESSAGE[..MESSAGE.len() - 6], "AAAA==");
        assert_eq!(mine.decrypt(&tampered), Err(EncryptedValueError::WrongKey));
    }

    proptest! {
        #[test]
        fn no_message_makes_decryption_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = keys(&[("DOTENV_PRIVATE_KEY", KEY)]).decrypt(&STANDARD.encode(bytes));
        }
    }
}
