//! Codes and links that prove that a message was received (auth-core 13).
//!
//! Only a hash is stored: of the address and the code together, so that a leaked table does not give the codes away and a
//! code is worth nothing for another address. Links carry that hash.

use std::time::Duration;

use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use crate::model::User;

/// Marks the hash of a flow with a proof key.
const PKCE_PREFIX: &str = "pkce_";

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
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

    /// Whether the stored token is still good.
    pub fn is_fresh(self, user: &User, life: Duration, now: OffsetDateTime) -> bool {
        !self.stored(user).is_empty() && self.sent_at(user).is_some_and(|sent| now < sent + life)
    }

    /// How long to wait before it may be sent again; `None`: not at all.
    pub fn wait(self, user: &User, interval: Duration, now: OffsetDateTime) -> Option<Duration> {
        let next = self.sent_at(user)? + interval;
        (now < next).then(|| (next - now).unsigned_abs())
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
        let code = portico_tokens::random::digits(digits);
        let hash = hash(address, &code);
        let hash = if is_pkce { format!("{PKCE_PREFIX}{hash}") } else { hash };
        Self { code, hash }
    }
}

/// Lower-case hexadecimal SHA-224 of address and code.
fn hash(address: &str, code: &str) -> String {
    portico_tokens::hash::sha224_hex(format!("{address}{code}").as_bytes())
}

/// Whether a typed code is the one that was sent to the address. In constant time.
pub fn code_matches(stored: &str, address: &str, code: &str) -> bool {
    let expected = stored.strip_prefix(PKCE_PREFIX).unwrap_or(stored);
    !expected.is_empty() && bool::from(expected.as_bytes().ct_eq(hash(address, code).as_bytes()))
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
        }
        assert_eq!(hash("ada@example.com", "123456").len(), 56);
        assert!(!code_matches("", "ada@example.com", "123456"));
        assert!(!code_matches("pkce_", "", ""));
        assert!(!hash_matches("", ""));
    }
}
