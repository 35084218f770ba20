//! The compact form of a JWT: three base64url parts with dots between.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::key::Algorithm;

/// The longest token that is parsed, in bytes: no header can carry a longer one.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// The reasons for which a token is rejected.
///
/// The texts are the details that clients of the authentication service see after `invalid JWT:
/// unable to parse or verify signature, `. Each reason for which the data API has its own text is a
/// variant of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The number of parts is not three.
    #[error("token is malformed: token contains an invalid number of segments")]
    Segments(usize),
    /// Not a JWT: a part is not base64url, or the header cannot be parsed.
    #[error("token is malformed: {0}")]
    Malformed(&'static str),
    /// The header can be parsed, but the signature is not base64url.
    #[error("token is malformed: could not base64 decode signature")]
    UnreadableSignature,
    /// The signature is valid, but the payload is not a JSON object.
    #[error("token is malformed: {0}")]
    UnreadableClaims(&'static str),
    /// The signature does not match the content.
    #[error("token signature is invalid: signature is invalid")]
    BadSignature,
    /// `exp` has passed.
    #[error("token has invalid claims: token is expired")]
    Expired,
    /// `nbf` is in the future.
    #[error("token has invalid claims: token is not valid yet")]
    NotYetValid,
    /// `iat` is in the future. Only [`crate::Claims::check_times_within`] checks it.
    #[error("token has invalid claims: token used before issued")]
    IssuedInFuture,
    /// A claim that must be a number is not one: `exp`, `nbf` or `iat`.
    #[error("token has invalid claims: {0} is invalid")]
    NotANumber(&'static str),
    /// No key has the token's `kid` and algorithm.
    #[error(
        "token is unverifiable: error while executing keyfunc: unrecognized JWT kid {kid} for algorithm {algorithm}"
    )]
    UnknownKey {
        /// The token's `kid`, `<nil>` without one; cut to 64 printable characters.
        kid: String,
        /// The token's `alg`.
        algorithm: &'static str,
    },
    /// The algorithm is registered, but no key is for it.
    #[error("token signature is invalid: signing method {0} is invalid")]
    NoKeyForAlgorithm(&'static str),
    /// `none` ([`TokenError::is_unsecured`]), or an unregistered algorithm; cut to 64 printable
    /// characters.
    #[error("token signature is invalid: signing method {0} is invalid")]
    UnsupportedAlgorithm(String),
    /// The token of a third party is for another audience.
    #[error("token has invalid claims: token has invalid audience")]
    OtherAudience,
    /// A token could not be made: its claims are not a JSON object, or there is no key to sign
    /// with.
    #[error("the token could not be signed: {0}")]
    Unsigned(&'static str),
}

impl TokenError {
    /// Returns the error of a token whose key is not known.
    pub(crate) fn unknown_key(id: Option<&str>, algorithm: Algorithm) -> Self {
        Self::UnknownKey { kid: id.map_or_else(|| "<nil>".to_owned(), printable), algorithm: algorithm.name() }
    }

    /// Returns true if the token declares itself unsigned (`alg` is `none`, in any case).
    pub fn is_unsecured(&self) -> bool {
        matches!(self, Self::UnsupportedAlgorithm(name) if name.eq_ignore_ascii_case("none"))
    }

    /// Returns true if no key of the ring signed the token, so that the key of another ring may
    /// have.
    pub(crate) fn is_of_another_key(&self) -> bool {
        matches!(self, Self::UnknownKey { .. } | Self::NoKeyForAlgorithm(_) | Self::BadSignature)
    }

    /// Returns true if the token was rejected for its times alone: its signature was verified, and
    /// another leeway or clock may accept it.
    pub fn is_untimely(&self) -> bool {
        matches!(self, Self::Expired | Self::NotYetValid | Self::IssuedInFuture | Self::NotANumber(_))
    }
}

/// Registered algorithms that are not supported, so that a token with one is distinguished from an
/// invalid one.
const OTHER_ALGORITHMS: [&str; 2] = ["HS384", "HS512"];

/// The unverified header of a token: enough to find the keys, never to be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHeader {
    /// `alg`
    pub algorithm: Algorithm,
    /// `kid`; an empty one counts as absent.
    pub key_id: Option<String>,
}

impl TokenHeader {
    /// Parses the header of a token in compact form.
    ///
    /// # Errors
    /// When the token has the wrong form, or its algorithm is not an [`Algorithm`].
    pub fn read(token: &str) -> Result<Self, TokenError> {
        let parts = Parts::parse(token)?;
        Ok(Self { algorithm: parts.algorithm, key_id: parts.key_id })
    }

    /// Returns the error of a token of this header where its key is not known.
    pub fn unknown_key(&self) -> TokenError {
        TokenError::unknown_key(self.key_id.as_deref(), self.algorithm)
    }
}

/// A parsed token, not verified yet.
pub(crate) struct Parts<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// The signed part: header, dot, payload.
    pub(crate) signed: &'a [u8],
    pub(crate) payload: &'a str,
    pub(crate) signature: Vec<u8>,
}

/// Returns the unverified `iss` of a token: enough to choose the keys, never to be trusted.
pub(crate) fn named_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        iss: Option<String>,
    }
    let payload = token.split('.').nth(1).filter(|_| token.len() <= MAX_TOKEN_BYTES)?;
    serde_json::from_slice::<Named>(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?.iss
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<serde_json::Value>,
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

impl<'a> Parts<'a> {
    pub(crate) fn parse(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Malformed("token is too long"));
        }
        let segments = || TokenError::Segments(token.split('.').count());
        let (signed, signature) = token.rsplit_once('.').ok_or_else(segments)?;
        let (header, payload) = signed.split_once('.').ok_or_else(segments)?;
        if payload.contains('.') {
            return Err(segments());
        }
        let header = decode(header, "could not base64 decode header")?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|_| TokenError::Malformed("could not JSON decode header"))?;
        // RFC 7515, 4.1.11: a token with an unknown critical extension must be rejected. No
        // extension is known
        if header.crit.is_some() {
            return Err(TokenError::Malformed("critical header parameters are not supported"));
        }
        let algorithm = Algorithm::parse(&header.alg).ok_or_else(|| {
            match OTHER_ALGORITHMS.into_iter().find(|name| *name == header.alg) {
                Some(name) => TokenError::NoKeyForAlgorithm(name),
                None => TokenError::UnsupportedAlgorithm(printable(&header.alg)),
            }
        })?;
        let key_id = match header.kid {
            Some(serde_json::Value::String(id)) if !id.is_empty() => Some(id),
            _ => None,
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::UnreadableSignature)?;
        Ok(Self { algorithm, key_id, signed: signed.as_bytes(), payload, signature })
    }

    pub(crate) fn payload(&self) -> Result<Vec<u8>, TokenError> {
        decode(self.payload, "could not base64 decode claim")
    }

    pub(crate) fn unknown_key(&self) -> TokenError {
        TokenError::unknown_key(self.key_id.as_deref(), self.algorithm)
    }
}

/// Decodes strictly: no padding, no other alphabet, no stray bits, so that a token has one spelling
/// only.
fn decode(part: &str, wrong: &'static str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed(wrong))
}

/// Returns text of a client in a form that is safe in an error message: short, no control
/// characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic()).take(64).collect()
}
