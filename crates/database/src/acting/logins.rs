//! The login roles of this installation.

use std::fmt;

use super::names::{API, AUTH, OWNER};
use crate::endpoint::settings::Password;

/// The login roles of this installation on an external server: their names and passwords follow
/// from a secret.
///
/// Installations that share a database and not the secret have different login roles, so none takes
/// another's password away.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Logins {
    tag: String,
    key: [u8; 32],
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl Logins {
    /// The parts that have a login role.
    pub const PARTS: [(&'static str, &'static str); 3] = [(API, "api"), (AUTH, "auth"), (OWNER, "owner")];

    /// Returns the logins that follow from a secret.
    pub fn new(secret: &[u8]) -> Self {
        let key = signed(secret, b"the logins of a database");
        let tag = hex::encode(&signed(&key, b"name")[..4]);
        Self { tag, key }
    }

    /// Returns the login role and its password for a part.
    pub fn of(&self, part: &str) -> Option<(String, Password)> {
        let (_, short) = Self::PARTS.into_iter().find(|(known, _)| *known == part)?;
        let password = hex::encode(signed(&self.key, short.as_bytes()));
        Some((format!("portico_{}_{short}", self.tag), Password::new(password)))
    }

    /// Returns the names as text, for a fingerprint.
    pub fn identity(&self) -> &str {
        &self.tag
    }
}

fn signed(key: &[u8], text: &[u8]) -> [u8; 32] {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(aws_lc_rs::hmac::sign(&key, text).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::Logins;

    #[test]
    fn logins_follow_from_the_secret() {
        let (one, other) = (Logins::new(b"one"), Logins::new(b"other"));
        assert_eq!(one.of("postgres"), Logins::new(b"one").of("postgres"));
        assert_ne!(one.of("postgres"), other.of("postgres"));
        assert_ne!(one.of("postgres").map(|login| login.1), one.of("authenticator").map(|login| login.1));
        assert_eq!(one.of("anon"), None);
        assert!(!format!("{one:?}").contains("key"));
    }
}
