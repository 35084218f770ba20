//! The tokens of codes and links, which prove that a message was received.
//!
//! Only a hash of the address, the code and a salt is stored, so that a code is worth nothing for
//! another address. Links carry the stored text. Other servers hash without a salt: a person who
//! knows an address can then compute the links of all codes and try those, past every limit on
//! codes for one account. The salt makes a link unguessable. Stored hashes without a salt are still
//! accepted.

use std::time::Duration;

use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use crate::model::User;

/// Marks the hash of a flow with a proof key.
const PKCE_PREFIX: &str = "pkce_";
/// The number of bytes of the salt, with which a stored text begins in hexadecimal digits.
const SALT_BYTES: usize = 16;
/// The number of hexadecimal digits of a stored text: that of SHA-224.
const STORED_DIGITS: usize = 56;

/// The purpose of a token.
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
    /// Returns the label of `auth.one_time_token_type`.
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

    /// Returns the stored hash; empty when there is none.
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

    /// Returns the time at which it was last sent.
    pub fn sent_at(self, user: &User) -> Option<OffsetDateTime> {
        match self {
            Self::Confirmation => user.confirmation_sent_at,
            Self::Recovery => user.recovery_sent_at,
            Self::EmailChangeNew | Self::EmailChangeCurrent => user.email_change_sent_at,
            Self::PhoneChange => user.phone_change_sent_at,
            Self::Reauthentication => user.reauthentication_sent_at,
        }
    }

    /// Returns true if the stored token has not expired. A token that was sent farther in the
    /// future than it lives was sent before the clock was set back, and has expired.
    pub fn is_fresh(self, user: &User, life: Duration, now: OffsetDateTime) -> bool {
        !self.stored(user).is_empty() && self.sent_at(user).is_some_and(|sent| now < sent + life && sent < now + life)
    }

    /// Returns the time to wait before it may be sent again, or `None` if it may be sent now. As
    /// with [`TokenKind::is_fresh`], a clock that was set back does not make the wait longer.
    pub fn wait(self, user: &User, interval: Duration, now: OffsetDateTime) -> Option<Duration> {
        let sent = self.sent_at(user)?;
        let next = sent + interval;
        (now < next && sent < now + interval).then(|| (next - now).unsigned_abs())
    }
}

/// A new token: the digits for the message, and the hash for the database and the link.
#[derive(Clone)]
pub struct OneTimeToken {
    /// Decimal digits.
    pub code: String,
    /// The stored text, marked for flows with a proof key.
    pub hash: String,
}

impl OneTimeToken {
    /// Makes a token for a contact.
    pub fn generate(address: &str, digits: usize, is_pkce: bool) -> Self {
        Self::from_entropy(portico_base::random::bytes(), address, digits, is_pkce)
    }

    /// Makes a token of a fixed code.
    pub fn of_code(address: &str, code: &str) -> Self {
        let hash = salted(&hex::encode(portico_base::random::bytes::<SALT_BYTES>()), address, code);
        Self { code: code.to_owned(), hash }
    }

    /// Makes the token of a contact that these random bytes determine.
    pub(crate) fn from_entropy(entropy: [u8; 32], address: &str, digits: usize, is_pkce: bool) -> Self {
        let (number, salt) = entropy.split_at(SALT_BYTES);
        let number = number.iter().fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
        // At most ten digits: their distribution differs from an even one by less than 2^-90
        let limit = 10_u128.pow(u32::try_from(digits).unwrap_or(u32::MAX).min(38));
        let code = format!("{:0digits$}", number % limit);
        let hash = salted(&hex::encode(salt), address, &code);
        let hash = if is_pkce { format!("{PKCE_PREFIX}{hash}") } else { hash };
        Self { code, hash }
    }
}

/// Returns the salt, and the digits of the hash that there is room for.
fn salted(salt: &str, address: &str, code: &str) -> String {
    let mut text = format!("{salt}{}", portico_base::hash::sha256_hex(format!("{salt} {address} {code}").as_bytes()));
    text.truncate(STORED_DIGITS);
    text
}

/// Returns the form without a salt: SHA-224 of address and code, in lower-case hexadecimal digits.
fn unsalted(address: &str, code: &str) -> String {
    portico_base::hash::sha224_hex(format!("{address}{code}").as_bytes())
}

/// Returns true if a typed code is the one that was sent to the address. In constant time.
pub fn code_matches(stored: &str, address: &str, code: &str) -> bool {
    let expected = stored.strip_prefix(PKCE_PREFIX).unwrap_or(stored);
    let Some(salt) = expected.get(..2 * SALT_BYTES) else { return false };
    let ours = expected.as_bytes().ct_eq(salted(salt, address, code).as_bytes());
    let theirs = expected.as_bytes().ct_eq(unsalted(address, code).as_bytes());
    (ours | theirs).into()
}

/// Returns true if a hash from a link is the stored one. In constant time.
pub fn hash_matches(stored: &str, given: &str) -> bool {
    !stored.is_empty() && bool::from(stored.as_bytes().ct_eq(given.as_bytes()))
}

/// Returns true if a link continues a flow with a proof key.
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
    fn a_link_cannot_be_computed_from_address_and_code() {
        let token = OneTimeToken::generate("ada@example.com", 6, false);
        assert_ne!(token.hash, unsalted("ada@example.com", &token.code));
        assert_ne!(token.hash, OneTimeToken::generate("ada@example.com", 6, false).hash);
    }
}
