//! Codes and links that prove that a message was received (auth-core 13).
//!
//! Only a hash is stored: of the address, the code and a salt, so that a code is worth nothing for another address. Links carry
//! the stored text. The reference hashes without a salt, so that whoever knows an address can compute the links of all
//! its codes and try those, past every limit on codes for one account; the salt makes a link unguessable. Stored hashes
//! of the reference's form are still understood.

use std::time::Duration;

use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use crate::model::User;

/// Marks the hash of a flow with a proof key.
const PKCE_PREFIX: &str = "pkce_";
/// Bytes of the salt that a stored text begins with, in hexadecimal digits.
const SALT_BYTES: usize = 16;
/// Hexadecimal digits of the whole: as many as the reference's SHA-224 has.
const STORED_DIGITS: usize = 56;

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Sign-up, invitation, and codes by phone.
    Confirmation,
    /// Recovery and sign-in links.
    Recovery,
    /// A change of address, sent to the new one.
    EmailChangeNew,
    /// A change of address, sent to the current one.
    EmailChangeCurrent,
    /// A change of number.
    PhoneChange,
    /// The nonce of a password change.
    Reauthentication,
}

impl TokenKind {
    /// The label of `auth.one_time_token_type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirmation => "confirmation_token",
            Self::Recovery => "recovery_token",
            Self::EmailChangeNew => "email_change_token_new",
            Self::EmailChangeCurrent => "email_change_token_current",
            Self::PhoneChange => "phone_change_token",
            Self::Reauthentication => "reauthentication_token",
        }
    }

    /// The stored hash; empty when there is none.
    pub fn stored(self, user: &User) -> &str {
        match self {
            Self::Confirmation => &user.confirmation_token,
            Self::Recovery => &user.recovery_token,
            Self::EmailChangeNew => &user.email_change_token_new,
            Self::EmailChangeCurrent => &user.email_change_token_current,
            Self::PhoneChange => &user.phone_change_token,
            Self::Reauthentication => &user.reauthentication_token,
        }
    }

    /// When it was last sent.
    pub fn sent_at(self, user: &User) -> Option<OffsetDateTime> {
        match self {
            Self::Confirmation => user.confirmation_sent_at,
            Self::Recovery => user.recovery_sent_at,
            Self::EmailChangeNew | Self::EmailChangeCurrent => user.email_change_sent_at,
            Self::PhoneChange => user.phone_change_sent_at,
            Self::Reauthentication => user.reauthentication_sent_at,
        }
    }

    /// Returns true if the stored token is still good. One from farther ahead than it lives was sent before the clock was
    /// set back, and is not.
    pub fn is_fresh(self, user: &User, life: Duration, now: OffsetDateTime) -> bool {
        !self.stored(user).is_empty() && self.sent_at(user).is_some_and(|sent| now < sent + life && sent < now + life)
    }

    /// The time to wait before it may be sent again; `None`: it may be sent now. As with [`TokenKind::is_fresh`], a clock that
    /// was set back does not make the wait longer.
    pub fn wait(self, user: &User, interval: Duration, now: OffsetDateTime) -> Option<Duration> {
        let sent = self.sent_at(user)?;
        let next = sent + interval;
        (now < next && sent < now + interval).then(|| (next - now).unsigned_abs())
    }
}

/// A token as it leaves us: the digits for the message, and the hash for the database and the link.
#[derive(Clone)]
pub struct OneTimeToken {
    /// Decimal digits.
    pub code: String,
    /// What is stored, marked for flows with a proof key.
    pub hash: String,
}

impl OneTimeToken {
    /// A new token for an address or number.
    pub fn generate(address: &str, digits: usize, is_pkce: bool) -> Self {
        let code = portico_base::random::digits(digits);
        let hash = salted(&hex::encode(portico_base::random::bytes::<SALT_BYTES>()), address, &code);
        let hash = if is_pkce { format!("{PKCE_PREFIX}{hash}") } else { hash };
        Self { code, hash }
    }
}

/// The salt, and as many digits of the hash as there is room for.
fn salted(salt: &str, address: &str, code: &str) -> String {
    let mut text = format!("{salt}{}", portico_base::hash::sha256_hex(format!("{salt} {address} {code}").as_bytes()));
    text.truncate(STORED_DIGITS);
    text
}

/// The reference's form: lower-case hexadecimal SHA-224 of address and code.
fn unsalted(address: &str, code: &str) -> String {
    portico_base::hash::sha224_hex(format!("{address}{code}").as_bytes())
}

/// Whether a typed code is the one that was sent to the address. In constant time.
pub fn code_matches(stored: &str, address: &str, code: &str) -> bool {
    let expected = stored.strip_prefix(PKCE_PREFIX).unwrap_or(stored);
    let Some(salt) = expected.get(..2 * SALT_BYTES) else { return false };
    let ours = expected.as_bytes().ct_eq(salted(salt, address, code).as_bytes());
    let theirs = expected.as_bytes().ct_eq(unsalted(address, code).as_bytes());
    (ours | theirs).into()
}

/// Whether a hash from a link is the stored one. In constant time.
pub fn hash_matches(stored: &str, given: &str) -> bool {
    !stored.is_empty() && bool::from(stored.as_bytes().ct_eq(given.as_bytes()))
}

/// Whether a link continues a flow with a proof key.
pub fn is_pkce(hash: &str) -> bool {
    hash.starts_with(PKCE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_belongs_to_its_address() {
        for is_pkce_flow in [false, true] {
            let token = OneTimeToken::generate("ada@example.com", 6, is_pkce_flow);
            assert_eq!(token.code.len(), 6);
            assert_eq!(is_pkce(&token.hash), is_pkce_flow);
            assert!(code_matches(&token.hash, "ada@example.com", &token.code));
            assert!(!code_matches(&token.hash, "eve@example.com", &token.code));
            assert!(hash_matches(&token.hash, &token.hash.clone()));
            let digits = token.hash.strip_prefix(PKCE_PREFIX).unwrap_or(&token.hash);
            assert_eq!(digits.len(), STORED_DIGITS);
        }
        assert!(code_matches(&unsalted("ada@example.com", "123456"), "ada@example.com", "123456"));
        assert!(!code_matches("", "ada@example.com", "123456"));
        assert!(!code_matches("pkce_", "", ""));
        assert!(!hash_matches("", ""));
    }

    #[test]
    fn a_link_can_not_be_computed_from_address_and_code() {
        let token = OneTimeToken::generate("ada@example.com", 6, false);
        assert_ne!(token.hash, unsalted("ada@example.com", &token.code));
        assert_ne!(token.hash, OneTimeToken::generate("ada@example.com", 6, false).hash);
    }
}
