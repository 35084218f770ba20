//! The caller of a request: its role and its claims.

use std::sync::Arc;

use http::{HeaderMap, header};
use portico_base::Secret;
use portico_tokens::{ApiRole, Caller, Claims, CurrentKeys, TokenError, bearer, check_request_role, looks_opaque};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::{Result, StorageError};

/// The role that bypasses row-level security.
pub(crate) const SERVICE_ROLE: &str = "service_role";

/// The text for a token that is not one, as clients know it.
const MALFORMED_TOKEN: &str = "Invalid Compact JWS";

/// The role and the claims that a request acts with.
#[derive(Debug, Clone)]
pub(crate) struct CallerIdentity {
    /// The database role.
    pub role: String,
    /// The claims, as JSON text.
    pub claims: String,
    /// The claim `sub`.
    pub subject: Option<String>,
    /// The token itself, as SQL can read it.
    pub token: Secret,
}

impl CallerIdentity {
    /// Determines the identity of a request with a valid token. `login` is the role that the server
    /// logs in with, which no request may assume.
    ///
    /// # Errors
    /// Without a token, and with one that is not valid or whose role cannot be assumed.
    pub fn of(
        caller: &Caller,
        headers: &HeaderMap,
        keys: &CurrentKeys,
        login: &str,
        now: OffsetDateTime,
    ) -> Result<Self> {
        let authorization = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let own = authorization.and_then(bearer).filter(|token| !looks_opaque(token));
        if let Some(error) = &caller.rejected {
            return Err(denied(error));
        }
        if let Some(claims) = caller.token.as_ref().or(caller.key_claims.as_ref()) {
            // An API key stands for the token of its role
            let replaced = caller.authorization.as_ref().map(|value| value.expose());
            let token = own.or(replaced).unwrap_or_default();
            let token = bearer(token.as_bytes()).unwrap_or(token);
            return Self::of_claims(claims, token, login);
        }
        // The word `Bearer` is optional here, and an unknown API key counts as a token
        let raw = authorization.filter(|value| !value.is_empty() && bearer(value).is_none());
        let raw = raw.map(String::from_utf8_lossy);
        let raw = raw.as_deref().or(caller.authorization.as_ref().map(|value| value.expose()));
        let Some(token) = raw.map(str::trim).filter(|token| !token.is_empty()) else {
            return Err(match authorization.and_then(bearer) {
                // An opaque key, which is a key and no token
                Some(_) => StorageError::AccessDenied(MALFORMED_TOKEN.into()),
                None => StorageError::Schema("headers must have required property 'authorization'".into()),
            });
        };
        Self::of_token(token, keys, login, now)
    }

    /// Determines the identity of a token.
    ///
    /// # Errors
    /// With a token that is not valid or whose role cannot be assumed.
    pub fn of_token(token: &str, keys: &CurrentKeys, login: &str, now: OffsetDateTime) -> Result<Self> {
        let claims = keys.now().verify_signature(token).map_err(|error| denied(&error))?;
        claims.check_times(now).map_err(|error| denied(&error))?;
        Self::of_claims(&claims, token, login)
    }

    fn of_claims(claims: &Arc<Claims>, token: &str, login: &str) -> Result<Self> {
        let role = claims.role().unwrap_or(ApiRole::Anon.as_str());
        if check_request_role(role, login).is_err() {
            return Err(StorageError::AccessDenied(format!("permission denied to set role \"{role}\"")));
        }
        Ok(Self {
            role: role.to_owned(),
            claims: claims.text().to_owned(),
            subject: claims.subject().map(str::to_owned),
            token: Secret::new(token),
        })
    }

    /// Returns the identity of the service itself, with the claims of its key. SQL does not see the
    /// key.
    pub fn service(keys: &CurrentKeys) -> Self {
        let keys = keys.now();
        let claims = keys.ring.verify_signature(keys.api.jwt_of(ApiRole::ServiceRole)).ok();
        let claims = claims.filter(|claims| claims.role() == Some(SERVICE_ROLE) && claims.subject().is_none());
        Self {
            role: SERVICE_ROLE.into(),
            claims: claims.map_or_else(|| r#"{"role":"service_role"}"#.into(), |claims| claims.text().to_owned()),
            subject: None,
            token: Secret::new(""),
        }
    }

    /// Returns true if the caller has the rights of the service.
    pub fn is_service_role(&self) -> bool {
        self.role == SERVICE_ROLE
    }

    /// Returns the owner of what the caller writes.
    pub fn owner(&self) -> Owner {
        Owner { id: self.subject.clone() }
    }
}

/// The owner of a bucket or an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// `owner_id`: the claim `sub`.
    pub id: Option<String>,
}

impl Owner {
    /// Returns the value of the older column `owner`, which can only hold a UUID.
    pub fn uuid(&self) -> Option<&str> {
        self.id.as_deref().filter(|id| Uuid::try_parse(id).is_ok())
    }
}

fn denied(error: &TokenError) -> StorageError {
    StorageError::AccessDenied(token_message(error).into())
}

/// Returns the text for a token that is not valid, as clients know it.
pub(crate) fn token_message(error: &TokenError) -> &'static str {
    match error {
        TokenError::Expired => r#""exp" claim timestamp check failed"#,
        TokenError::NotYetValid => r#""nbf" claim timestamp check failed"#,
        TokenError::NotANumber("nbf") => r#""nbf" claim must be a number"#,
        TokenError::NotANumber("iat") => r#""iat" claim must be a number"#,
        TokenError::NotANumber(_) => r#""exp" claim must be a number"#,
        TokenError::BadSignature | TokenError::UnknownKey { .. } | TokenError::NoKeyForAlgorithm(_) => {
            "signature verification failed"
        }
        TokenError::UnreadableClaims(_) => "JWT Claims Set must be a top-level JSON object",
        _ => MALFORMED_TOKEN,
    }
}
