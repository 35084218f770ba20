//! The keys that applications carry: two legacy JWTs and two opaque ones.

use serde_json::json;
use subtle::{Choice, ConstantTimeEq};
use time::OffsetDateTime;

use crate::ring::KeyRing;
use crate::token::TokenError;
use portico_base::hash;
use portico_base::random;

/// The opaque keys' beginnings.
const PUBLISHABLE: &str = "sb_publishable_";
const SECRET: &str = "sb_secret_";

/// What an API key lets its holder be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiRole {
    /// Everybody who opens the application.
    Anon,
    /// A trusted server: row-level security does not hold it back.
    ServiceRole,
}

impl ApiRole {
    /// The database role: `anon` or `service_role`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::ServiceRole => "service_role",
        }
    }
}

/// Why a set of API keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    /// An opaque key without its form.
    #[error("{0} must look like {1}<22 characters>_<8 characters>, out of A-Z a-z 0-9 - _")]
    Form(&'static str, &'static str),
    /// A legacy key could not be signed.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// The four API keys of a server.
#[derive(Clone)]
pub struct ApiKeys {
    anon_jwt: String,
    service_role_jwt: String,
    publishable: String,
    secret: String,
}

impl ApiKeys {
    /// Keys as given: the two legacy JWTs, the publishable and the secret key. An empty string: that key does
    /// not exist.
    pub fn new(
        anon_jwt: impl Into<String>,
        service_role_jwt: impl Into<String>,
        publishable: impl Into<String>,
        secret: impl Into<String>,
    ) -> Result<Self, ApiKeyError> {
        let (publishable, secret) = (publishable.into(), secret.into());
        if !publishable.is_empty() && !has_form(&publishable, PUBLISHABLE) {
            return Err(ApiKeyError::Form("the publishable key", PUBLISHABLE));
        }
        if !secret.is_empty() && !has_form(&secret, SECRET) {
            return Err(ApiKeyError::Form("the secret key", SECRET));
        }
        Ok(Self { anon_jwt: anon_jwt.into(), service_role_jwt: service_role_jwt.into(), publishable, secret })
    }

    /// The published development keys.
    pub fn development() -> Self {
        use crate::development as dev;
        Self {
            anon_jwt: dev::ANON_KEY.to_owned(),
            service_role_jwt: dev::SERVICE_ROLE_KEY.to_owned(),
            publishable: dev::PUBLISHABLE_KEY.to_owned(),
            secret: dev::SECRET_KEY.to_owned(),
        }
    }

    /// Signs the two legacy keys (HS256 with the ring's secret, else its current key) in the name of `issuer`,
    /// valid until `expires_at`, and takes the opaque ones as given.
    pub fn mint(
        keys: &KeyRing,
        issuer: &str,
        expires_at: OffsetDateTime,
        publishable: impl Into<String>,
        secret: impl Into<String>,
    ) -> Result<Self, ApiKeyError> {
        let sign = |role: ApiRole| {
            keys.sign_with_secret(&json!({ "iss": issuer, "role": role.as_str(), "exp": expires_at.unix_timestamp() }))
        };
        Self::new(sign(ApiRole::Anon)?, sign(ApiRole::ServiceRole)?, publishable, secret)
    }

    /// A new random publishable key.
    pub fn generate_publishable() -> String {
        generate(PUBLISHABLE)
    }

    /// A new random secret key.
    pub fn generate_secret() -> String {
        generate(SECRET)
    }

    /// Whose key this is; `None` for a wrong one. Takes as long for every key of the same length.
    pub fn role_of(&self, key: &str) -> Option<ApiRole> {
        let is = |ours: &str| ours.as_bytes().ct_eq(key.as_bytes()) & Choice::from(u8::from(!ours.is_empty()));
        let anon = is(&self.anon_jwt) | is(&self.publishable);
        let service = is(&self.service_role_jwt) | is(&self.secret);
        if service.into() {
            Some(ApiRole::ServiceRole)
        } else if anon.into() {
            Some(ApiRole::Anon)
        } else {
            None
        }
    }

    /// The legacy JWT of a role.
    pub fn jwt_of(&self, role: ApiRole) -> &str {
        match role {
            ApiRole::Anon => &self.anon_jwt,
            ApiRole::ServiceRole => &self.service_role_jwt,
        }
    }

    /// The legacy anon JWT.
    pub fn anon_jwt(&self) -> &str {
        &self.anon_jwt
    }

    /// The legacy service_role JWT. Never show it to a browser.
    pub fn service_role_jwt(&self) -> &str {
        &self.service_role_jwt
    }

    /// The publishable key.
    pub fn publishable(&self) -> &str {
        &self.publishable
    }

    /// The secret key. Never show it to a browser.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Whether one of the keys is a published development key.
    pub fn contains_development_key(&self) -> bool {
        use crate::development as dev;
        [dev::ANON_KEY, dev::SERVICE_ROLE_KEY, dev::PUBLISHABLE_KEY, dev::SECRET_KEY]
            .into_iter()
            .any(|key| self.role_of(key).is_some())
    }
}

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKeys(***)")
    }
}

/// Whether a key is of the opaque kind (`sb_...`) and not a JWT.
pub fn looks_opaque(key: &str) -> bool {
    key.starts_with("sb_")
}

/// `<prefix><22 characters>_<8 characters>`.
fn has_form(key: &str, prefix: &str) -> bool {
    let Some(rest) = key.strip_prefix(prefix) else {
        return false;
    };
    rest.len() == 31
        && rest.as_bytes()[22] == b'_'
        && rest.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
}

/// The last part is a checksum, by which scanners tell a real key from a look-alike. Keys made elsewhere have
/// other ones, so it is never checked.
fn generate(prefix: &str) -> String {
    let body = format!("{prefix}{}", random::base64url(16));
    let sum = hash::sha256_hex(format!("portico|{body}").as_bytes());
    format!("{body}_{}", &sum[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::development as dev;
    use portico_base::Secret;

    #[test]
    fn the_development_keys_are_known_by_their_role() {
        let keys = ApiKeys::development();
        assert_eq!(keys.role_of(dev::ANON_KEY), Some(ApiRole::Anon));
        assert_eq!(keys.role_of(dev::PUBLISHABLE_KEY), Some(ApiRole::Anon));
        assert_eq!(keys.role_of(dev::SERVICE_ROLE_KEY), Some(ApiRole::ServiceRole));
        assert_eq!(keys.role_of(dev::SECRET_KEY), Some(ApiRole::ServiceRole));
        assert_eq!(keys.role_of(""), None);
        assert_eq!(keys.role_of("sb_secret_x"), None);
        assert!(keys.contains_development_key());
        assert_eq!(format!("{keys:?}"), "ApiKeys(***)");
    }

    #[test]
    fn minted_legacy_keys_are_byte_for_byte_the_published_ones() {
        let ring = KeyRing::hs256(&Secret::new(dev::JWT_SECRET));
        let until = OffsetDateTime::from_unix_timestamp(dev::KEYS_EXPIRE_AT).unwrap();
        let keys = ApiKeys::mint(&ring, dev::KEY_ISSUER, until, dev::PUBLISHABLE_KEY, dev::SECRET_KEY).unwrap();
        assert_eq!(keys.anon_jwt(), dev::ANON_KEY);
        assert_eq!(keys.service_role_jwt(), dev::SERVICE_ROLE_KEY);
    }

    #[test]
    fn opaque_keys_must_have_their_form() {
        assert!(has_form(&ApiKeys::generate_publishable(), PUBLISHABLE));
        assert!(has_form(&ApiKeys::generate_secret(), SECRET));
        assert_ne!(ApiKeys::generate_secret(), ApiKeys::generate_secret());
        assert!(ApiKeys::new("", "", dev::SECRET_KEY, dev::SECRET_KEY).is_err());
        assert!(ApiKeys::new("", "", dev::PUBLISHABLE_KEY, "secret").is_err());
        let none = ApiKeys::new("", "", "", "").unwrap();
        assert_eq!(none.role_of(""), None);
        assert!(!none.contains_development_key());
    }
}
