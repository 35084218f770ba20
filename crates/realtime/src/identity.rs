//! The identity of a channel: the role and the claims of its token.

use std::future::Future;
use std::sync::Arc;

use http::{HeaderMap, header};
use portico_base::Clock;
use portico_tokens::{
    ApiRole, Claims, CurrentKeys, KEY_REFRESH_WAIT, KeyRefresh, TokenError, TokenHeader, TokenIssuer, bearer,
    check_request_role, looks_opaque,
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::error::TokenRejection;

/// The role and the claims that a channel acts with, from a verified token. Two identities are
/// equal if PostgreSQL cannot tell them apart.
#[derive(Debug, Clone)]
pub(crate) struct ChannelIdentity {
    claims: Arc<Claims>,
    expires_at: i64,
}

impl PartialEq for ChannelIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.claims.text() == other.claims.text()
    }
}

impl ChannelIdentity {
    /// Returns the database role.
    pub fn role(&self) -> &str {
        self.claims.role().unwrap_or(ApiRole::Anon.as_str())
    }

    /// Returns the claims as JSON text, as they were signed.
    pub fn claims(&self) -> &str {
        self.claims.text()
    }

    /// Returns the claim `sub`.
    pub fn subject(&self) -> Option<&str> {
        self.claims.subject()
    }

    /// Returns true if both are of one person: of the same subject of the same issuer. Without a
    /// subject only equal claims are those of the same person.
    pub fn is_same_person(&self, other: &Self) -> bool {
        self == other || self.person().is_some_and(|this| Some(this) == other.person())
    }

    /// Returns a text that only tokens of the same subject of the same issuer have in common.
    /// `None` without a subject.
    pub fn person(&self) -> Option<String> {
        let subject = self.subject().filter(|subject| !subject.is_empty())?;
        Some(json!([self.claims.is_third_party(), self.claims.issuer(), subject]).to_string())
    }

    /// Returns the time of expiry in seconds since 1970.
    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }
}

/// Verifies the tokens of sockets and channels.
#[derive(Clone)]
pub(crate) struct TokenVerifier {
    keys: CurrentKeys,
    clock: Clock,
    /// The role that the server logs in with.
    login: Arc<str>,
    refresh: Option<KeyRefresh>,
}

impl TokenVerifier {
    /// Returns a verifier for a server that logs in as `login`.
    pub fn new(keys: CurrentKeys, clock: Clock, login: &str, refresh: Option<KeyRefresh>) -> Self {
        Self { keys, clock, login: login.into(), refresh }
    }

    /// Returns the reading of keys that may verify a token whose key is not known; `None` if more
    /// keys would change nothing.
    pub fn refresh(&self, token: &str) -> Option<impl Future<Output = ()> + Send + use<>> {
        let refresh = self.refresh.clone()?;
        let keys = self.keys.now();
        TokenIssuer::ALL.into_iter().find(|issuer| keys.may_lack_key_of(*issuer, token))?;
        let (keys, token) = (self.keys.clone(), token.to_owned());
        Some(async move {
            let deadline = Instant::now() + KEY_REFRESH_WAIT;
            for issuer in TokenIssuer::ALL {
                let known = keys.now();
                if known.verify_signature(&token).is_err() && known.may_lack_key_of(issuer, &token) {
                    drop(known);
                    let _ = tokio::time::timeout_at(deadline, refresh(issuer)).await;
                }
            }
        })
    }

    /// Returns the time in seconds since 1970.
    pub fn now(&self) -> i64 {
        self.clock.now().unix_timestamp()
    }

    /// Returns the token that an API key stands for: an opaque key stands for the legacy token of
    /// its role, and any other key for itself.
    pub fn token_of_key(&self, key: &str) -> String {
        let keys = self.keys.now();
        match keys.api.role_of(key) {
            Some(role) if looks_opaque(key) => keys.api.jwt_of(role).to_owned(),
            _ => key.to_owned(),
        }
    }

    /// Verifies a token: signature, `role` and `exp`, and the time. `may_be_privileged` is false
    /// for a connection of a page that may not use secret keys.
    ///
    /// # Errors
    /// The reason for which the token is rejected.
    pub fn verify(&self, token: &str, may_be_privileged: bool) -> Result<ChannelIdentity, TokenRejection> {
        // Tokens in a query may be encoded, and contain white space
        let cleaned: String;
        let token = if token.bytes().any(|byte| byte == b'%' || byte.is_ascii_whitespace()) {
            let text: String = token.chars().filter(|character| !character.is_ascii_whitespace()).collect();
            cleaned = percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned();
            cleaned.as_str()
        } else {
            token
        };
        let claims = self.keys.now().verify_signature(token).map_err(|error| rejection(&error, token))?;
        let identity = Self::identity(claims)?;
        self.check_expiry(&identity)?;
        let role = identity.role();
        if check_request_role(role, &self.login).is_err() {
            return Err(TokenRejection::BadSignature);
        }
        if !may_be_privileged && !matches!(role, "anon" | "authenticated") {
            return Err(TokenRejection::OtherPage);
        }
        Ok(identity)
    }

    /// Returns the identity of a request over HTTP: that of the bearer token, else of the API key.
    /// `None`: there is none, or it is rejected.
    pub fn verify_request(&self, headers: &HeaderMap, may_be_privileged: bool) -> Option<ChannelIdentity> {
        let authorization = headers.get(header::AUTHORIZATION).filter(|value| !value.is_empty());
        let token = match authorization {
            Some(value) => bearer(value.as_bytes())?.to_owned(),
            None => headers.get("apikey")?.to_str().ok()?.to_owned(),
        };
        self.verify(&self.token_of_key(&token), may_be_privileged).ok()
    }

    /// Checks that an identity has not expired.
    ///
    /// # Errors
    /// [`TokenRejection::Expired`]
    pub fn check_expiry(&self, identity: &ChannelIdentity) -> Result<(), TokenRejection> {
        let seconds = self.now() - identity.expires_at;
        if seconds >= 0 { Err(TokenRejection::Expired { seconds }) } else { Ok(()) }
    }

    fn identity(claims: Arc<Claims>) -> Result<ChannelIdentity, TokenRejection> {
        let expiry = claims.get("exp").and_then(Value::as_f64);
        match (claims.role(), expiry) {
            (Some(_), Some(expiry)) => {
                let last = OffsetDateTime::new_utc(time::Date::MAX, time::Time::MIDNIGHT).unix_timestamp();
                // `as` saturates, which is right for a time that is far away
                let expires_at = (expiry.round() as i64).min(last);
                Ok(ChannelIdentity { claims, expires_at })
            }
            _ => Err(TokenRejection::MissingClaims),
        }
    }
}

fn rejection(error: &TokenError, token: &str) -> TokenRejection {
    match error {
        TokenError::BadSignature | TokenError::OtherAudience => TokenRejection::BadSignature,
        TokenError::UnknownKey { .. } => {
            TokenRejection::NoSigner { kid: TokenHeader::read(token).ok().and_then(|header| header.key_id) }
        }
        TokenError::NoKeyForAlgorithm(_) | TokenError::UnsupportedAlgorithm(_) => {
            TokenRejection::NoSigner { kid: None }
        }
        _ => TokenRejection::NotAJwt,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::fixture::identity;

    #[test]
    fn one_person_has_the_same_subject_of_the_same_issuer() {
        let of = |subject: &str, issuer: &str, session: u32| {
            identity(json!({ "role": "authenticated", "sub": subject, "iss": issuer, "session": session }))
        };
        assert!(of("ann", "a", 1).is_same_person(&of("ann", "a", 2)));
        assert!(!of("ann", "a", 1).is_same_person(&of("bob", "a", 1)));
        assert!(!of("ann", "a", 1).is_same_person(&of("ann", "b", 1)));
        let without_subject = |email: &str| identity(json!({ "role": "authenticated", "email": email }));
        assert!(!without_subject("ann").is_same_person(&without_subject("bob")));
        assert!(without_subject("ann").is_same_person(&without_subject("ann")));
        assert!(!of("", "a", 1).is_same_person(&of("", "a", 2)));
    }
}
