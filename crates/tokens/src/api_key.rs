//! The API keys of a server: two legacy JWTs and two opaque keys.

use serde_json::json;
use subtle::{Choice, ConstantTimeEq};
use time::OffsetDateTime;

use crate::ring::KeyRing;
use crate::token::TokenError;
use portico_base::{Secret, hash, random};

/// The prefixes of the opaque keys.
const PUBLISHABLE: &str = "sb_publishable_";
const SECRET: &str = "sb_secret_";

/// The role that an API key gives its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiRole {
    /// The role of all users of an application.
    Anon,
    /// The role of a trusted server, to which row-level security does not apply.
    ServiceRole,
}

impl ApiRole {
    /// Returns the database role: `anon` or `service_role`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::ServiceRole => "service_role",
        }
    }
}

/// The reasons for which a set of API keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    /// An opaque key has the wrong form.
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
    /// The `Authorization` that the opaque keys stand for. Computed once, since every request has a
    /// key.
    anon_authorization: Secret,
    service_role_authorization: Secret,
}

impl ApiKeys {
    /// Wraps existing keys: the two legacy JWTs, the publishable and the secret key. An empty
    /// string means that the key does not exist.
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
        Ok(Self::assemble(anon_jwt.into(), service_role_jwt.into(), publishable, secret))
    }

    fn assemble(anon_jwt: String, service_role_jwt: String, publishable: String, secret: String) -> Self {
        let bearer = |jwt: &str| Secret::new(format!("Bearer {jwt}"));
        let (anon_authorization, service_role_authorization) = (bearer(&anon_jwt), bearer(&service_role_jwt));
        Self { anon_jwt, service_role_jwt, publishable, secret, anon_authorization, service_role_authorization }
    }

    /// Returns the published development keys.
    pub fn development() -> Self {
        use crate::development as dev;
        let [anon, service_role, publishable, secret] =
            [dev::ANON_KEY, dev::SERVICE_ROLE_KEY, dev::PUBLISHABLE_KEY, dev::SECRET_KEY].map(str::to_owned);
        Self::assemble(anon, service_role, publishable, secret)
    }

    /// Signs the two legacy keys (HS256 with the ring's secret, else its current key) in the name
    /// of `issuer`, valid until `expires_at`, and wraps the opaque ones.
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

    /// Returns a new random publishable key.
    pub fn generate_publishable() -> String {
        generate(PUBLISHABLE)
    }

    /// Returns a new random secret key.
    pub fn generate_secret() -> String {
        generate(SECRET)
    }

    /// Returns the role of a key; `None` for an unknown one. Takes the same time for every key of
    /// the same length.
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

    /// Returns the legacy JWT of a role.
    pub fn jwt_of(&self, role: ApiRole) -> &str {
        match role {
            ApiRole::Anon => &self.anon_jwt,
            ApiRole::ServiceRole => &self.service_role_jwt,
        }
    }

    /// Returns the `Authorization` header that the opaque key of a role stands for.
    pub fn authorization_of(&self, role: ApiRole) -> &Secret {
        match role {
            ApiRole::Anon => &self.anon_authorization,
            ApiRole::ServiceRole => &self.service_role_authorization,
        }
    }

    /// Returns the legacy anon JWT.
    pub fn anon_jwt(&self) -> &str {
        &self.anon_jwt
    }

    /// Returns the legacy service_role JWT. Never show it to a browser.
    pub fn service_role_jwt(&self) -> &str {
        &self.service_role_jwt
    }

    /// Returns the publishable key.
    pub fn publishable(&self) -> &str {
        &self.publishable
    }

    /// Returns the secret key. Never show it to a browser.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns true if one of the keys is a published development key.
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

/// Returns true for an opaque key (`sb_...`), false for a JWT.
pub fn looks_opaque(key: &str) -> bool {
    key.starts_with("sb_")
}

/// Returns `<prefix><22 characters>_<8 characters>`.
fn has_form(key: &str, prefix: &str) -> bool {
    let Some(rest) = key.strip_prefix(prefix) else {
        return false;
    };
    rest.len() == 31
        && rest.as_bytes()[22] == b'_'
        && rest.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
}

/// Returns the last part, a checksum by which scanners distinguish a real key from a look-alike.
/// Keys that were made elsewhere have other checksums, so it is never checked.
fn generate(prefix: &str) -> String {
    let body = format!("{prefix}{}", random::base64url(16));
    let sum = hash::sha256_hex(format!("portico|{body}").as_bytes());
    format!("{body}_{}", &sum[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::development as dev;

    #[test]
    fn a_development_key_has_its_role() {
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
    fn minted_legacy_keys_equal_the_published_ones() {
        let ring = KeyRing::hs256(&Secret::new(dev::JWT_SECRET));
        let until = OffsetDateTime::from_unix_timestamp(dev::KEYS_EXPIRE_AT).unwrap();
        let keys = ApiKeys::mint(&ring, dev::KEY_ISSUER, until, dev::PUBLISHABLE_KEY, dev::SECRET_KEY).unwrap();
        assert_eq!(keys.anon_jwt(), dev::ANON_KEY);
        assert_eq!(keys.service_role_jwt(), dev::SERVICE_ROLE_KEY);
    }

    #[test]
    fn an_opaque_key_of_another_form_is_rejected() {
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
