//! The two written forms of a refresh token.
//!
//! *Stored* tokens are twelve random characters that live in `auth.refresh_tokens`. *Counted*
//! tokens are not stored: they name their session and a counter, and are signed with a key that
//! lives in the session's row. This module makes and reads both. [`crate::session::refresh`]
//! decides which one a session uses, and what a presented token is worth.

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_base::random;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// The length of a stored token in characters.
const STORED_LENGTH: usize = 12;
/// The only version of the counted form that exists.
const VERSION: u8 = 0;
/// The length of version and session id.
const HEADER_LENGTH: usize = 1 + 16;
const SIGNATURE_LENGTH: usize = 16;
const CHECKSUM_LENGTH: usize = 4;
/// A 63 bit counter takes at most nine bytes of seven bits.
const MAX_COUNTER_LENGTH: usize = 9;
const MAX_DECODED_LENGTH: usize = HEADER_LENGTH + MAX_COUNTER_LENGTH + SIGNATURE_LENGTH + CHECKSUM_LENGTH;
/// The length of [`MAX_DECODED_LENGTH`] bytes in base64url.
const MAX_ENCODED_LENGTH: usize = MAX_DECODED_LENGTH.div_ceil(3) * 4;

/// The error for a text that is no refresh token of either form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Refresh token is not valid")]
pub struct MalformedRefreshToken;

/// A refresh token as a client presents it.
#[derive(Clone, PartialEq, Eq)]
pub enum RefreshToken {
    /// A row of `auth.refresh_tokens` may have this text.
    Stored(String),
    /// Names a session and a counter; worth nothing until its signature is verified.
    Counted(CountedToken),
}

/// The counted form: `version | session id | counter | signature | checksum`, base64url.
#[derive(Clone, PartialEq, Eq)]
pub struct CountedToken {
    session: Uuid,
    counter: i64,
    signed: Vec<u8>,
    signature: [u8; SIGNATURE_LENGTH],
}

// Both forms are secrets: a stray `{:?}` in a log line must not show them.
impl std::fmt::Debug for RefreshToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stored(_) => "RefreshToken::Stored(***)",
            Self::Counted(_) => "RefreshToken::Counted(***)",
        })
    }
}

impl std::fmt::Debug for CountedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountedToken").field("session", &self.session).finish_non_exhaustive()
    }
}

impl RefreshToken {
    /// Reads either form. Checks the shape and the checksum only.
    ///
    /// # Errors
    /// [`MalformedRefreshToken`] for a text that this server cannot have issued.
    pub fn parse(text: &str) -> Result<Self, MalformedRefreshToken> {
        match text.len() {
            0..STORED_LENGTH => Err(MalformedRefreshToken),
            STORED_LENGTH => {
                let ok = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
                if ok { Ok(Self::Stored(text.to_owned())) } else { Err(MalformedRefreshToken) }
            }
            _ => CountedToken::parse(text).map(Self::Counted),
        }
    }

    /// Makes a token of the stored form: 60 random bits.
    #[must_use]
    pub fn new_stored() -> String {
        random::base32_lower(STORED_LENGTH)
    }
}

impl CountedToken {
    fn parse(text: &str) -> Result<Self, MalformedRefreshToken> {
        if text.len() > MAX_ENCODED_LENGTH {
            return Err(MalformedRefreshToken);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| MalformedRefreshToken)?;
        let (preceding, checksum) = split_tail(&bytes, CHECKSUM_LENGTH)?;
        if checksum != &digest::digest(&digest::SHA256, preceding).as_ref()[..CHECKSUM_LENGTH] {
            return Err(MalformedRefreshToken);
        }
        let (signed, signature) = split_tail(preceding, SIGNATURE_LENGTH)?;
        if signed.len() < HEADER_LENGTH || signed[0] != VERSION {
            return Err(MalformedRefreshToken);
        }
        let session = Uuid::from_slice(&signed[1..HEADER_LENGTH]).map_err(|_| MalformedRefreshToken)?;
        let counter = read_counter(&signed[HEADER_LENGTH..]).ok_or(MalformedRefreshToken)?;
        Ok(Self {
            session,
            counter,
            signed: signed.to_vec(),
            signature: signature.try_into().map_err(|_| MalformedRefreshToken)?,
        })
    }

    /// Returns the session that the token names.
    #[must_use]
    pub fn session(&self) -> Uuid {
        self.session
    }

    /// Returns the counter of the session when the token was made.
    #[must_use]
    pub fn counter(&self) -> i64 {
        self.counter
    }

    /// Returns true if `key` signed this token. In constant time.
    #[must_use]
    pub fn is_signed_by(&self, key: &SessionKey) -> bool {
        key.signature(&self.signed).ct_eq(&self.signature).into()
    }
}

/// The secret of one session that signs its counted refresh tokens
/// (`sessions.refresh_token_hmac_key`).
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(***)")
    }
}

impl SessionKey {
    /// Makes a random key.
    #[must_use]
    pub fn generate() -> Self {
        Self(random::bytes())
    }

    /// Reads the text of the column. Returns `None` when it is not 32 bytes in base64url.
    #[must_use]
    pub fn from_column(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?.try_into().ok().map(Self)
    }

    /// Returns the text for the column.
    #[must_use]
    pub fn to_column(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Returns the token of `session` for `counter`. The same arguments give the same token.
    #[must_use]
    pub fn token(&self, session: Uuid, counter: i64) -> String {
        let mut bytes = Vec::with_capacity(MAX_DECODED_LENGTH);
        bytes.push(VERSION);
        bytes.extend_from_slice(session.as_bytes());
        write_counter(&mut bytes, counter.unsigned_abs());
        let signature = self.signature(&bytes);
        bytes.extend_from_slice(&signature);
        let checksum = digest::digest(&digest::SHA256, &bytes);
        bytes.extend_from_slice(&checksum.as_ref()[..CHECKSUM_LENGTH]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn signature(&self, bytes: &[u8]) -> [u8; SIGNATURE_LENGTH] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), bytes);
        let mut signature = [0; SIGNATURE_LENGTH];
        signature.copy_from_slice(&tag.as_ref()[..SIGNATURE_LENGTH]);
        signature
    }
}

fn split_tail(bytes: &[u8], tail: usize) -> Result<(&[u8], &[u8]), MalformedRefreshToken> {
    let at = bytes.len().checked_sub(tail).ok_or(MalformedRefreshToken)?;
    Ok(bytes.split_at(at))
}

/// Writes a number in unsigned LEB128.
fn write_counter(bytes: &mut Vec<u8>, mut counter: u64) {
    while counter >= 0x80 {
        bytes.push((counter & 0x7f) as u8 | 0x80);
        counter >>= 7;
    }
    bytes.push(counter as u8);
}

/// Reads the whole of `bytes` as one counter. Returns `None` when it is truncated, followed by
/// other bytes, or longer than 63 bits.
fn read_counter(bytes: &[u8]) -> Option<i64> {
    let (last, others) = bytes.split_last()?;
    if others.len() >= MAX_COUNTER_LENGTH || last & 0x80 != 0 || others.iter().any(|byte| byte & 0x80 == 0) {
        return None;
    }
    let value = bytes.iter().rev().fold(0_u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    i64::try_from(value).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stored_tokens_have_twelve_lower_case_characters() {
        let token = RefreshToken::new_stored();
        assert_eq!(token.len(), 12);
        assert_eq!(RefreshToken::parse(&token), Ok(RefreshToken::Stored(token)));
    }

    #[test]
    fn texts_that_were_never_issued_are_rejected() {
        for text in [
            "",
            "short",
            "UPPERCASE123",
            "with space12",
            "abcdefghijk\u{e9}",
            "abcdefghijklm",
            &"a".repeat(22),
            &"a".repeat(5000),
        ] {
            assert_eq!(RefreshToken::parse(text), Err(MalformedRefreshToken), "{text}");
        }
    }

    #[test]
    fn the_counted_form_is_laid_out_as_specified() {
        let session = Uuid::parse_str("5d1c7c1e-9a0e-4a6f-8a6e-3b9d5a3c2b11").unwrap();
        let key = SessionKey([7; 32]);
        let bytes = URL_SAFE_NO_PAD.decode(key.token(session, 300)).unwrap();

        assert_eq!(bytes[0], 0);
        assert_eq!(&bytes[1..17], session.as_bytes());
        assert_eq!(&bytes[17..19], [0xac, 0x02], "300 as LEB128");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]), &bytes[..19]);
        assert_eq!(&bytes[19..35], &tag.as_ref()[..16]);
        assert_eq!(&bytes[35..], &digest::digest(&digest::SHA256, &bytes[..35]).as_ref()[..4]);
    }

    #[test]
    fn another_sessions_key_does_not_verify_a_token() {
        let token = SessionKey::generate().token(random::uuid(), 1);
        let RefreshToken::Counted(token) = RefreshToken::parse(&token).unwrap() else { panic!("counted") };
        assert!(!token.is_signed_by(&SessionKey::generate()));
    }

    #[test]
    fn the_column_round_trips() {
        let key = SessionKey::generate();
        assert_eq!(SessionKey::from_column(&key.to_column()).unwrap().0, key.0);
        assert!(SessionKey::from_column("short").is_none());
        assert!(SessionKey::from_column("not base64 at all!").is_none());
    }

    proptest! {
        #[test]
        fn every_counter_round_trips(counter in 0..=i64::MAX, session: u128) {
            let session = Uuid::from_u128(session);
            let key = SessionKey::generate();
            let RefreshToken::Counted(token) = RefreshToken::parse(&key.token(session, counter)).unwrap() else {
                panic!("counted")
            };
            prop_assert_eq!((token.session(), token.counter()), (session, counter));
            prop_assert!(token.is_signed_by(&key));
        }

        #[test]
        fn a_changed_character_is_noticed(at in 0_usize..51, counter in 0..100_i64) {
            let key = SessionKey::generate();
            let original = key.token(Uuid::from_u128(1), counter);
            let mut text = original.clone().into_bytes();
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
            let text = String::from_utf8(text).unwrap();
            if let Ok(RefreshToken::Counted(token)) = RefreshToken::parse(&text) {
                prop_assert!(!token.is_signed_by(&key));
            }
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = RefreshToken::parse(&text);
            let _ = RefreshToken::parse(&URL_SAFE_NO_PAD.encode(bytes));
        }
    }
}
