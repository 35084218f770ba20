//! Column encryption (auth-core 14.3): secrets of accounts that are kept sealed in their rows.
//!
//! A sealed value is a JSON text that names its key: AES-256-GCM under a key derived from the operator's master key and the
//! id of the row, so that a value copied into another row opens nothing. Values in clear and values under any known key are
//! read; what is written is sealed with the current key, if there is one. Dumps of hosted projects may carry this form.

use std::collections::BTreeMap;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portico_base::random;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::settings::{EncryptionSettings, SettingsError};

const ALGORITHM: &str = "aes-gcm-hkdf";
/// The form of a password has 255 characters at most; names of keys must leave room.
const MAX_KEY_NAME: usize = 64;
const KEY_BYTES: usize = 32;

type MasterKey = [u8; KEY_BYTES];

/// The master keys, by name.
#[derive(Default)]
pub(crate) struct ColumnKeys {
    keys: BTreeMap<String, MasterKey>,
    /// Seals what is written.
    current: Option<String>,
}

/// As the column has it.
#[derive(Serialize, Deserialize)]
struct Sealed {
    key_id: String,
    alg: String,
    data: String,
    nonce: String,
}

/// A value as it was before it was sealed.
#[derive(PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) text: String,
    /// It was in clear or under an older key: store it anew.
    pub(crate) is_outdated: bool,
}

impl std::fmt::Debug for Opened {
    // The text is a secret
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("is_outdated", &self.is_outdated).finish_non_exhaustive()
    }
}

/// A sealed value that can not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("it is sealed with the key {0:?}, which is not configured")]
    UnknownKey(String),
    #[error("it is sealed by {0:?}, which is not known")]
    UnknownAlgorithm(String),
    #[error("it was not sealed with the configured key of that name, or for another row")]
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

    /// The form for the column of `row`: sealed, or in clear without a current key. Nothing stays nothing.
    pub(crate) fn seal(&self, row: Uuid, text: &str) -> String {
        let Some((name, key)) = self.current.as_ref().and_then(|name| self.keys.get_key_value(name)) else {
            return text.to_owned();
        };
        if text.is_empty() {
            return String::new();
        }
        seal(name, key, row, text, random::bytes())
    }

    /// Reads the column of `row`. What is not of the sealed form is in clear.
    pub(crate) fn open(&self, row: Uuid, stored: &str) -> Result<Opened, OpenError> {
        let Some(sealed) = parse(stored) else {
            let is_outdated = self.current.is_some() && !stored.is_empty();
            return Ok(Opened { text: stored.to_owned(), is_outdated });
        };
        if sealed.alg != ALGORITHM {
            return Err(OpenError::UnknownAlgorithm(sealed.alg));
        }
        let Some(key) = self.keys.get(&sealed.key_id) else {
            return Err(OpenError::UnknownKey(sealed.key_id));
        };
        let text = decrypt(key, row, &sealed).ok_or(OpenError::Damaged)?;
        // Without a current key nothing is sealed any more, but nothing is opened for good either
        let is_outdated = self.current.as_ref().is_some_and(|current| *current != sealed.key_id);
        Ok(Opened { text, is_outdated })
    }
}

fn parse(stored: &str) -> Option<Sealed> {
    if !stored.starts_with('{') {
        return None;
    }
    serde_json::from_str(stored).ok()
}

/// base64url, padding as it comes.
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

/// The row's own key.
fn row_key(master: &MasterKey, row: Uuid) -> Option<LessSafeKey> {
    let info = row.hyphenated().to_string();
    let mut key = [0; KEY_BYTES];
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(master);
    extracted.expand(&[info.as_bytes()], Length).ok()?.fill(&mut key).ok()?;
    UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
}

fn seal(name: &str, master: &MasterKey, row: Uuid, text: &str, nonce: [u8; NONCE_LEN]) -> String {
    let key = row_key(master, row).expect("a key of 32 bytes is a key of AES-256");
    let mut data = text.as_bytes().to_vec();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut data)
        .expect("a text of some hundred bytes can be sealed");
    let sealed = Sealed {
        key_id: name.to_owned(),
        alg: ALGORITHM.to_owned(),
        data: STANDARD.encode(data),
        nonce: STANDARD.encode(nonce),
    };
    serde_json::to_string(&sealed).expect("four texts are JSON")
}

fn decrypt(master: &MasterKey, row: Uuid, sealed: &Sealed) -> Option<String> {
    let nonce: [u8; NONCE_LEN] = STANDARD.decode(&sealed.nonce).ok()?.try_into().ok()?;
    let mut data = STANDARD.decode(&sealed.data).ok()?;
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
    fn a_value_sealed_elsewhere_is_opened() {
        // Computed with another implementation: HKDF-SHA-256 of the bytes 0 to 31 with the row's id as info, AES-256-GCM
        let stored = r#"{"key_id":"k1","alg":"aes-gcm-hkdf","data":"wgbkiVW1kEz6OcsxwlA8P3T1sEJW3x+BD+m+wLg=","nonce":"AAECAwQFBgcICQoL"}"#;
        let opened = keys(None, &[("k1", FIRST)]).open(ROW, stored).unwrap();
        assert_eq!(opened.text, "$2a$04$vector");
        assert!(!opened.is_outdated);
        let sealed: Sealed = serde_json::from_str(stored).unwrap();
        let nonce = STANDARD.decode(&sealed.nonce).unwrap().try_into().unwrap();
        assert_eq!(seal("k1", &master_key(FIRST).unwrap(), ROW, "$2a$04$vector", nonce), stored);
    }

    #[test]
    fn old_keys_and_clear_values_are_read_and_found_outdated() {
        let old = keys(Some("k1"), &[("k1", FIRST)]).seal(ROW, "secret");
        let both = keys(Some("k2"), &[("k1", FIRST), ("k2", SECOND)]);
        for stored in [old.as_str(), "secret"] {
            let opened = both.open(ROW, stored).unwrap();
            assert_eq!((opened.text.as_str(), opened.is_outdated), ("secret", true));
        }
        let new = both.seal(ROW, "secret");
        assert!(!new.contains("secret") && new.contains("\"key_id\":\"k2\""));
        assert!(!both.open(ROW, &new).unwrap().is_outdated);
    }

    #[test]
    fn without_keys_everything_is_in_clear() {
        let none = ColumnKeys::default();
        assert_eq!(none.seal(ROW, "secret"), "secret");
        let opened = none.open(ROW, "{not json").unwrap();
        assert_eq!((opened.text.as_str(), opened.is_outdated), ("{not json", false));
        assert_eq!(keys(Some("k1"), &[("k1", FIRST)]).seal(ROW, ""), "");
        assert!(!keys(Some("k1"), &[("k1", FIRST)]).open(ROW, "").unwrap().is_outdated);
    }

    #[test]
    fn what_can_not_be_opened_says_why() {
        let stored = keys(Some("k1"), &[("k1", FIRST)]).seal(ROW, "secret");
        let open = |keys: ColumnKeys, row, stored: &str| keys.open(row, stored).unwrap_err();
        assert_eq!(open(ColumnKeys::default(), ROW, &stored), OpenError::UnknownKey("k1".into()));
        assert_eq!(open(keys(None, &[("k1", SECOND)]), ROW, &stored), OpenError::Damaged);
        assert_eq!(open(keys(None, &[("k1", FIRST)]), Uuid::from_u128(1), &stored), OpenError::Damaged);
        let other = stored.replace(ALGORITHM, "rot13");
        assert_eq!(open(keys(None, &[("k1", FIRST)]), ROW, &other), OpenError::UnknownAlgorithm("rot13".into()));
    }

    #[test]
    fn keys_are_checked_at_the_start() {
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
    fn a_sealed_password_fits_its_column() {
        let name = "k".repeat(MAX_KEY_NAME);
        let sealed = keys(Some(&name), &[(&name, FIRST)]).seal(ROW, &"x".repeat(60));
        assert!(sealed.len() <= 255, "{}", sealed.len());
    }

    proptest! {
        #[test]
        fn every_text_round_trips(text in "\\PC{1,200}", row: u128) {
            let keys = keys(Some("k1"), &[("k1", FIRST)]);
            let row = Uuid::from_u128(row);
            prop_assert_eq!(keys.open(row, &keys.seal(row, &text)).unwrap().text, text);
        }

        #[test]
        fn nothing_panics(stored in "\\PC{0,80}", data in "[A-Za-z0-9+/=]{0,40}", nonce in "[A-Za-z0-9+/=]{0,24}") {
            let keys = keys(Some("k1"), &[("k1", FIRST)]);
            let _ = keys.open(ROW, &stored);
            let json = format!(r#"{{"key_id":"k1","alg":"aes-gcm-hkdf","data":"{data}","nonce":"{nonce}"}}"#);
            prop_assert_eq!(keys.open(ROW, &json), Err(OpenError::Damaged));
        }
    }
}
