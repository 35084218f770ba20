//! Column encryption: secrets of accounts that are encrypted in their columns.
//!
//! An encrypted value is a JSON text that names its key: AES-256-GCM with a key derived from the
//! operator's master key and the id of the row, so that a value copied into another row cannot be
//! decrypted. Plain values and values of any known key are read; new values are encrypted with the
//! current key, if there is one. Dumps of hosted projects may contain this form.

use std::collections::BTreeMap;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portico_base::{Secret, random};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::settings::{EncryptionSettings, SettingsError};

const ALGORITHM: &str = "aes-gcm-hkdf";
/// A password column has at most 255 characters; key names must leave room.
const MAX_KEY_NAME: usize = 64;
const KEY_BYTES: usize = 32;
/// The name of the key that is derived from the JWT secret.
const DERIVED_KEY: &str = "jwt_secret";

type MasterKey = [u8; KEY_BYTES];

/// The master keys, by name.
#[derive(Default)]
pub(crate) struct ColumnKeys {
    keys: BTreeMap<String, MasterKey>,
    /// Encrypts new values.
    current: Option<String>,
}

/// The stored form of an encrypted value.
#[derive(Serialize, Deserialize)]
struct EncryptedColumn {
    key_id: String,
    alg: String,
    data: String,
    nonce: String,
}

/// A decrypted value.
#[derive(PartialEq, Eq)]
pub(crate) struct DecryptedColumn {
    pub(crate) text: String,
    /// It was plain or encrypted with an older key, and should be stored anew.
    pub(crate) is_outdated: bool,
}

impl std::fmt::Debug for DecryptedColumn {
    // The text is a secret
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecryptedColumn").field("is_outdated", &self.is_outdated).finish_non_exhaustive()
    }
}

/// The reason why a value cannot be decrypted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecryptError {
    #[error("it is encrypted with the key {0:?}, which is not configured")]
    UnknownKey(String),
    #[error("it is encrypted by {0:?}, which is not known")]
    UnknownAlgorithm(String),
    #[error("it was not encrypted with the configured key of that name, or for another row")]
    Damaged,
}

impl ColumnKeys {
    pub(crate) fn new(settings: &EncryptionSettings) -> Result<Self, SettingsError> {
        let mut keys = BTreeMap::new();
        for (name, key) in &settings.keys {
            let wrong = |reason: &str| SettingsError::Value {
                name: "encryption.keys",
                reason: format!("{:?}: {reason}", name.chars().take(MAX_KEY_NAME).collect::<String>()),
            };
            let is_name = !name.is_empty()
                && name.len() <= MAX_KEY_NAME
                && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
            if !is_name {
                return Err(wrong("a key's name has 1 to 64 printable characters"));
            }
            keys.insert(name.clone(), master_key(key.expose()).ok_or_else(|| wrong("must be 32 bytes in base64url"))?);
        }
        if let Some(current) = &settings.current
            && !keys.contains_key(current)
        {
            let reason = format!("{current:?} is not among the keys");
            return Err(SettingsError::Value { name: "encryption.current", reason });
        }
        Ok(Self { keys, current: settings.current.clone() })
    }

    /// Like [`new`](Self::new); where the operator names no current key, one is derived from
    /// `secret`, so that every value is encrypted.
    pub(crate) fn with_derived_key(settings: &EncryptionSettings, secret: &Secret) -> Result<Self, SettingsError> {
        let mut keys = Self::new(settings)?;
        keys.keys.entry(DERIVED_KEY.to_owned()).or_insert_with(|| derived_key(secret));
        keys.current.get_or_insert_with(|| DERIVED_KEY.to_owned());
        Ok(keys)
    }

    /// Like [`decrypt`](Self::decrypt), but for a column whose values are always encrypted: a plain
    /// one was written without the key.
    ///
    /// # Errors
    /// [`DecryptError`], also for a plain value.
    pub(crate) fn decrypt_sealed(&self, row: Uuid, stored: &str) -> Result<DecryptedColumn, DecryptError> {
        if parse(stored).is_none() {
            return Err(DecryptError::Damaged);
        }
        self.decrypt(row, stored)
    }

    /// Returns the value for a column of `row`: encrypted, or plain without a current key. An empty
    /// text stays empty.
    pub(crate) fn encrypt(&self, row: Uuid, text: &str) -> String {
        let Some((name, key)) = self.current.as_ref().and_then(|name| self.keys.get_key_value(name)) else {
            return text.to_owned();
        };
        if text.is_empty() {
            return String::new();
        }
        encrypt_value(name, key, row, text, random::bytes())
    }

    /// Reads a column of `row`. A value that is not of the encrypted form is plain.
    ///
    /// # Errors
    /// [`DecryptError`] when the value is encrypted and no key fits.
    pub(crate) fn decrypt(&self, row: Uuid, stored: &str) -> Result<DecryptedColumn, DecryptError> {
        let Some(encrypted) = parse(stored) else {
            let is_outdated = self.current.is_some() && !stored.is_empty();
            return Ok(DecryptedColumn { text: stored.to_owned(), is_outdated });
        };
        if encrypted.alg != ALGORITHM {
            return Err(DecryptError::UnknownAlgorithm(encrypted.alg));
        }
        let Some(key) = self.keys.get(&encrypted.key_id) else {
            return Err(DecryptError::UnknownKey(encrypted.key_id));
        };
        let text = decrypt_value(key, row, &encrypted).ok_or(DecryptError::Damaged)?;
        // Without a current key new values are plain, but encrypted ones are not rewritten
        let is_outdated = self.current.as_ref().is_some_and(|current| *current != encrypted.key_id);
        Ok(DecryptedColumn { text, is_outdated })
    }
}

fn parse(stored: &str) -> Option<EncryptedColumn> {
    if !stored.starts_with('{') {
        return None;
    }
    serde_json::from_str(stored).ok()
}

/// Parses base64url, with or without padding.
fn master_key(text: &str) -> Option<MasterKey> {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).ok()?.try_into().ok()
}

struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

/// Derives a master key from another secret of the operator's.
fn derived_key(secret: &Secret) -> MasterKey {
    let mut key = [0; KEY_BYTES];
    hkdf::Salt::new(hkdf::HKDF_SHA256, b"portico column keys")
        .extract(secret.expose().as_bytes())
        .expand(&[DERIVED_KEY.as_bytes()], Length)
        .and_then(|derived| derived.fill(&mut key))
        .expect("32 bytes can be derived");
    key
}

/// Derives the key of a row.
fn row_key(master: &MasterKey, row: Uuid) -> Option<LessSafeKey> {
    let info = row.hyphenated().to_string();
    let mut key = [0; KEY_BYTES];
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(master);
    extracted.expand(&[info.as_bytes()], Length).ok()?.fill(&mut key).ok()?;
    UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
}

fn encrypt_value(name: &str, master: &MasterKey, row: Uuid, text: &str, nonce: [u8; NONCE_LEN]) -> String {
    let key = row_key(master, row).expect("a key of 32 bytes is a key of AES-256");
    let mut data = text.as_bytes().to_vec();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut data)
        .expect("a text of some hundred bytes can be encrypted");
    let encrypted = EncryptedColumn {
        key_id: name.to_owned(),
        alg: ALGORITHM.to_owned(),
        data: STANDARD.encode(data),
        nonce: STANDARD.encode(nonce),
    };
    serde_json::to_string(&encrypted).expect("four texts are JSON")
}

fn decrypt_value(master: &MasterKey, row: Uuid, encrypted: &EncryptedColumn) -> Option<String> {
    let nonce: [u8; NONCE_LEN] = STANDARD.decode(&encrypted.nonce).ok()?.try_into().ok()?;
    let mut data = STANDARD.decode(&encrypted.data).ok()?;
    let key = row_key(master, row)?;
    let text = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut data).ok()?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROW: Uuid = Uuid::from_u128(0x5d1c_7c1e_9a0e_4a6f_8a6e_3b9d_5a3c_2b11);
    /// The bytes 0 to 31.
    const FIRST: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    /// 32 times 7.
    const SECOND: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

    fn keys(current: Option<&str>, names: &[(&str, &str)]) -> ColumnKeys {
        let keys = names.iter().map(|(name, key)| ((*name).to_owned(), (*key).into())).collect();
        ColumnKeys::new(&EncryptionSettings { current: current.map(str::to_owned), keys }).unwrap()
    }

    #[test]
    fn a_value_that_another_implementation_encrypted_is_decrypted() {
        // Computed with another implementation: HKDF-SHA-256 of the bytes 0 to 31 with the row's id
        // as info, AES-256-GCM
        let stored = r#"{"key_id":"k1","alg":"aes-gcm-hkdf","data":"wgbkiVW1kEz6OcsxwlA8P3T1sEJW3x+BD+m+wLg=","nonce":"AAECAwQFBgcICQoL"}"#;
        let decrypted = keys(None, &[("k1", FIRST)]).decrypt(ROW, stored).unwrap();
        assert_eq!(decrypted.text, "$2a$04$vector");
        assert!(!decrypted.is_outdated);
        let encrypted: EncryptedColumn = serde_json::from_str(stored).unwrap();
        let nonce = STANDARD.decode(&encrypted.nonce).unwrap().try_into().unwrap();
        assert_eq!(encrypt_value("k1", &master_key(FIRST).unwrap(), ROW, "$2a$04$vector", nonce), stored);
    }

    #[test]
    fn values_that_are_plain_or_of_older_keys_are_read_and_outdated() {
        let old = keys(Some("k1"), &[("k1", FIRST)]).encrypt(ROW, "secret");
        let both = keys(Some("k2"), &[("k1", FIRST), ("k2", SECOND)]);
        for stored in [old.as_str(), "secret"] {
            let decrypted = both.decrypt(ROW, stored).unwrap();
            assert_eq!((decrypted.text.as_str(), decrypted.is_outdated), ("secret", true));
        }
        let new = both.encrypt(ROW, "secret");
        assert!(!new.contains("secret") && new.contains("\"key_id\":\"k2\""));
        assert!(!both.decrypt(ROW, &new).unwrap().is_outdated);
    }

    #[test]
    fn without_keys_every_value_is_plain() {
        let none = ColumnKeys::default();
        assert_eq!(none.encrypt(ROW, "secret"), "secret");
        let decrypted = none.decrypt(ROW, "{not json").unwrap();
        assert_eq!((decrypted.text.as_str(), decrypted.is_outdated), ("{not json", false));
        assert_eq!(keys(Some("k1"), &[("k1", FIRST)]).encrypt(ROW, ""), "");
        assert!(!keys(Some("k1"), &[("k1", FIRST)]).decrypt(ROW, "").unwrap().is_outdated);
    }

    #[test]
    fn a_value_that_cannot_be_decrypted_has_a_reason() {
        let stored = keys(Some("k1"), &[("k1", FIRST)]).encrypt(ROW, "secret");
        let open = |keys: ColumnKeys, row, stored: &str| keys.decrypt(row, stored).unwrap_err();
        assert_eq!(open(ColumnKeys::default(), ROW, &stored), DecryptError::UnknownKey("k1".into()));
        assert_eq!(open(keys(None, &[("k1", SECOND)]), ROW, &stored), DecryptError::Damaged);
        assert_eq!(open(keys(None, &[("k1", FIRST)]), Uuid::from_u128(1), &stored), DecryptError::Damaged);
        let other = stored.replace(ALGORITHM, "rot13");
        assert_eq!(open(keys(None, &[("k1", FIRST)]), ROW, &other), DecryptError::UnknownAlgorithm("rot13".into()));
    }

    #[test]
    fn keys_are_checked_at_start() {
        let refused = |current: Option<&str>, name: &str, key: &str| {
            let keys = BTreeMap::from([(name.to_owned(), key.into())]);
            let refused = ColumnKeys::new(&EncryptionSettings { current: current.map(str::to_owned), keys });
            refused.err().map(|error| error.to_string()).unwrap()
        };
        assert_eq!(refused(None, "k1", "c2hvcnQ"), "encryption.keys: \"k1\": must be 32 bytes in base64url");
        assert!(refused(None, "k1", FIRST.trim_start_matches('A')).contains("32 bytes"));
        assert!(refused(None, "", FIRST).contains("name"));
        assert!(refused(None, &"k".repeat(65), FIRST).contains("name"));
        assert_eq!(refused(Some("k2"), "k1", FIRST), "encryption.current: \"k2\" is not among the keys");
    }

    #[test]
    fn an_encrypted_password_fits_its_column() {
        let name = "k".repeat(MAX_KEY_NAME);
        let encrypted = keys(Some(&name), &[(&name, FIRST)]).encrypt(ROW, &"x".repeat(60));
        assert!(encrypted.len() <= 255, "{}", encrypted.len());
    }

    proptest! {
        #[test]
        fn every_text_round_trips(text in "\\PC{1,200}", row: u128) {
            let keys = keys(Some("k1"), &[("k1", FIRST)]);
            let row = Uuid::from_u128(row);
            prop_assert_eq!(keys.decrypt(row, &keys.encrypt(row, &text)).unwrap().text, text);
        }

        #[test]
        fn damaged_values_are_errors(stored in "\\PC{0,80}", data in "[A-Za-z0-9+/=]{0,40}", nonce in "[A-Za-z0-9+/=]{0,24}") {
            let keys = keys(Some("k1"), &[("k1", FIRST)]);
            let _ = keys.decrypt(ROW, &stored);
            let json = format!(r#"{{"key_id":"k1","alg":"aes-gcm-hkdf","data":"{data}","nonce":"{nonce}"}}"#);
            prop_assert_eq!(keys.decrypt(ROW, &json), Err(DecryptError::Damaged));
        }
    }
}
