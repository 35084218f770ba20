//! Ids, email addresses and phone numbers as types.
//!
//! Ids are newtypes so that two of them cannot be swapped; addresses can only be made by parsing,
//! so every query that takes one compares the form that is stored.

use std::fmt;

use postgres_types::{FromSql, ToSql};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{AuthError, ContractError};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ToSql, FromSql, Serialize, Deserialize)]
        #[postgres(transparent)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Makes a fresh random id.
            pub fn random() -> Self {
                Self(portico_base::random::uuid())
            }

            /// Reads the canonical text form; `None` for anything else.
            pub fn parse(text: &str) -> Option<Self> {
                Uuid::try_parse(text).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// `auth.users.id`, the `sub` claim.
    UserId
}
id! {
    /// `auth.sessions.id`, the `session_id` claim.
    SessionId
}
id! {
    /// `auth.flow_state.id`, the OAuth `state` parameter.
    FlowStateId
}
id! {
    /// `auth.mfa_factors.id`
    FactorId
}
id! {
    /// `auth.mfa_challenges.id`
    FactorChallengeId
}
id! {
    /// `auth.identities.id`, shown to clients as `identity_id`.
    IdentityId
}
id! {
    /// `auth.webauthn_credentials.id`.
    PasskeyId
}
id! {
    /// `auth.webauthn_challenges.id`, shown to clients as `challenge_id`.
    CeremonyChallengeId
}

/// The greatest length of an email address in bytes: the width of the column.
const EMAIL_MAX_BYTES: usize = 255;

/// An email address in the form that is stored and compared: trimmed and lower-cased.
///
/// Only [`EmailAddress::parse`] makes one, so a query that takes `&EmailAddress`
/// cannot miss a user because of letter case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EmailAddress(String);

impl EmailAddress {
    /// Checks and normalises an address.
    ///
    /// Quoted local parts, IP-literal domains and domains without a dot pass. Control characters,
    /// invisible and direction-changing characters, and labels that mix look-alike scripts (a
    /// Cyrillic letter in a Latin word) do not.
    ///
    /// # Errors
    /// `validation_failed` with the contract's text for a missing, an over-long and a malformed
    /// address.
    pub fn parse(text: &str) -> Result<Self, AuthError> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(ContractError::EmailRequired.into());
        }
        if trimmed.len() > EMAIL_MAX_BYTES {
            return Err(ContractError::EmailTooLong.into());
        }
        let lowered = trimmed.to_lowercase();
        // Lower-casing can lengthen a text
        if lowered.len() > EMAIL_MAX_BYTES || !is_address(&lowered) {
            return Err(ContractError::EmailMalformed.into());
        }
        Ok(Self(lowered))
    }

    /// Returns the address of a row or claim, which was checked before: lower-cased only.
    pub fn from_stored(text: &str) -> Self {
        Self(text.trim().to_lowercase())
    }

    /// Returns the stored form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part after the last `@`.
    pub fn domain(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

impl fmt::Display for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for EmailAddress {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    !text.chars().any(is_unsafe_character) && is_local_part(local) && is_domain(domain)
}

fn is_local_part(local: &str) -> bool {
    if let Some(quoted) = local.strip_prefix('"') {
        let Some(inner) = quoted.strip_suffix('"') else {
            return false;
        };
        let mut escaped = false;
        for character in inner.chars() {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return false,
                _ => {}
            }
        }
        return !escaped && !inner.is_empty();
    }
    !local.is_empty()
        && local.split('.').all(|atom| {
            !atom.is_empty()
                && !mixes_scripts(atom)
                && atom.chars().all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || is_mark(c))
        })
}

fn is_domain(domain: &str) -> bool {
    if let Some(literal) = domain.strip_prefix('[') {
        let Some(literal) = literal.strip_suffix(']') else {
            return false;
        };
        let literal = literal.strip_prefix("ipv6:").unwrap_or(literal);
        return literal.parse::<std::net::IpAddr>().is_ok();
    }
    !domain.is_empty()
        && domain.len() <= 253
        && domain.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && !mixes_scripts(label)
                && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_' || is_mark(c))
        })
}

/// Returns true if a character is a combining mark that words of some scripts cannot be written
/// without.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{0300}'..='\u{036f}' | '\u{0900}'..='\u{0dff}' | '\u{0e00}'..='\u{0eff}' | '\u{3099}' | '\u{309a}')
}

/// Returns true if a character is invisible, or changes how others look.
pub(crate) fn is_unsafe_character(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ff00}'..='\u{ffef}' | '\u{fff0}'..='\u{ffff}'
            | '\u{1d400}'..='\u{1d7ff}'
            | '\u{e0000}'..='\u{e0fff}')
        || (c.is_whitespace() && c != ' ')
}

/// Returns true if a word is written with look-alike letters of several alphabets.
fn mixes_scripts(word: &str) -> bool {
    let mut seen = 0u8;
    for c in word.chars() {
        seen |= match c {
            'a'..='z' | 'A'..='Z' | '\u{00c0}'..='\u{024f}' => 1,
            '\u{0370}'..='\u{03ff}' | '\u{1f00}'..='\u{1fff}' => 2,
            '\u{0400}'..='\u{052f}' => 4,
            '\u{0530}'..='\u{058f}' => 8,
            '\u{13a0}'..='\u{13ff}' | '\u{ab70}'..='\u{abbf}' => 16,
            _ => 0,
        };
    }
    seen.count_ones() > 1
}

/// A phone number as it is stored: E.164 digits without the plus sign.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PhoneNumber(String);

impl PhoneNumber {
    /// Removes one leading `+` and all spaces, then checks the form.
    ///
    /// # Errors
    /// 400 `validation_failed`.
    pub fn parse(text: &str) -> Result<Self, AuthError> {
        let digits: String = text.strip_prefix('+').unwrap_or(text).chars().filter(|c| *c != ' ').take(32).collect();
        let well_formed = (2..=15).contains(&digits.len())
            && !digits.starts_with('0')
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !well_formed {
            return Err(ContractError::PhoneMalformed.into());
        }
        Ok(Self(digits))
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PhoneNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_trimmed_and_lower_cased() {
        let address = EmailAddress::parse("  Ada.Lovelace@Example.COM ").unwrap();
        assert_eq!(address.as_str(), "ada.lovelace@example.com");
        assert_eq!(address.domain(), "example.com");
    }

    #[test]
    fn unusual_but_valid_addresses_pass() {
        for text in [
            "\"odd name\"@example.com",
            "root@localhost",
            "x@[127.0.0.1]",
            "x@[ipv6:::1]",
            "jörg@bücher.example",
            "анна@почта.рф",
            "a+b_c-d@sub.example.co",
        ] {
            assert!(EmailAddress::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn malformed_and_deceptive_addresses_are_refused() {
        for text in [
            "plain",
            "@example.com",
            "a@",
            "a b@example.com",
            "a@b@c",
            "a..b@example.com",
            ".a@example.com",
            "a@-example.com",
            "a@exa mple.com",
            "a@example..com",
            "a@example.com\r\nBcc: x@example.com",
            "a\u{0}@example.com",
            "a\u{200b}@example.com",
            "\u{202e}a@example.com",
            "\u{0430}da@example.com",
            "ada@ex\u{0430}mple.com",
            "ada@e\u{fe0f}xample.com",
            "a@\u{ff45}xample.com",
            "\"a@example.com",
            "x@[1.2.3]",
        ] {
            assert!(EmailAddress::parse(text).is_err(), "{text:?}");
        }
        assert!(EmailAddress::parse(&format!("{}@example.com", "a".repeat(250))).is_err());
    }

    #[test]
    fn phones_lose_plus_and_spaces() {
        assert_eq!(PhoneNumber::parse("+1 555 000 1111").unwrap().as_str(), "15550001111");
        for text in ["", "+", "0123", "12a", "1", "++15550001111", "1234567890123456", "१२३४"] {
            assert!(PhoneNumber::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_is_stable(text in "\\PC*|[a-z.@\"\\\\\\[\\]+ -]{0,40}") {
            if let Ok(address) = EmailAddress::parse(&text) {
                prop_assert_eq!(EmailAddress::parse(address.as_str()).unwrap(), address);
            }
            if let Ok(phone) = PhoneNumber::parse(&text) {
                prop_assert_eq!(PhoneNumber::parse(phone.as_str()).unwrap(), phone);
            }
        }
    }
}
