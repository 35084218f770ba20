//! The database role of a request.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};
use portico_database::sqlstate::{INSUFFICIENT_PRIVILEGE, INVALID_PARAMETER_VALUE};
use portico_tokens::{Caller, Claims, RejectedRole, TokenError, bearer, check_request_role, looks_opaque};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::jwt_leeway::JWT_LEEWAY;
use crate::config::RestConfig;
use crate::error::{PostgresErrorResponse, RestError};

/// The role of a request, and the claims that SQL sees.
#[derive(Debug, Clone)]
pub struct RequestRole {
    /// The database role.
    pub name: String,
    /// The value of `request.jwt.claims`.
    pub claims: String,
    /// The role is that of callers without a token: errors for missing privileges are 401.
    pub is_anonymous: bool,
}

impl RequestRole {
    /// Determines the role. The gateway has verified the caller's token; its times are checked
    /// again with the leeway of this service, and its audience. Where the database defines keys of
    /// its own, the token is verified with those. `login` is the role that the server logs in with,
    /// which no request may assume.
    ///
    /// # Errors
    /// PGRST300 to PGRST303; 42501 and 22023 for roles that no token may have.
    pub fn of(
        caller: &Caller,
        headers: &HeaderMap,
        config: &RestConfig,
        login: &str,
        now: OffsetDateTime,
    ) -> Result<Self, RestError> {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let caller = match (&config.keys, token) {
            // API keys stay valid: the gateway has already resolved an opaque one
            (Some(own), Some(token)) if !looks_opaque(token) => {
                let mut anew = Caller::anonymous();
                anew.present(token, own, now);
                anew.within(now, JWT_LEEWAY)
            }
            _ => caller.within(now, JWT_LEEWAY),
        };
        let caller = caller.map_err(rest_error)?;
        // A legacy key is itself a token, used where the request has no other
        if let Some(claims) = caller.token.as_ref().or(caller.key_claims.as_ref()) {
            check_audience(claims, config.audience.as_deref())?;
            return Self::of_claims(claims, config, login);
        }
        if headers.get(header::AUTHORIZATION).is_some_and(is_empty_bearer) {
            return Err(RestError::TokenInvalid {
                message: "Empty JWT is sent in Authorization header".into(),
                details: None,
            });
        }
        // Another scheme in `Authorization` hides the key, as in PostgREST
        let keyed = caller.api_key.filter(|_| !headers.contains_key(header::AUTHORIZATION));
        match keyed {
            Some(key) => Ok(Self::without_token(key.as_str(), config)),
            None => config
                .anon_role
                .as_deref()
                .map(|role| Self::without_token(role, config))
                .ok_or(RestError::AnonymousDisabled),
        }
    }

    fn without_token(role: &str, config: &RestConfig) -> Self {
        let claims = Value::Object(Map::from_iter([("role".to_owned(), Value::from(role))]));
        Self {
            name: role.to_owned(),
            claims: claims.to_string(),
            is_anonymous: config.anon_role.as_deref() == Some(role),
        }
    }

    fn of_claims(claims: &Claims, config: &RestConfig, login: &str) -> Result<Self, RestError> {
        let role = match config.role_claim.find(claims.values()) {
            Some(Cow::Borrowed(Value::String(role))) => Cow::Borrowed(role.as_str()),
            Some(Cow::Owned(Value::String(role))) => Cow::Owned(role),
            Some(found) if !found.is_null() => Cow::Owned(found.to_string()),
            _ => Cow::Borrowed(config.anon_role.as_deref().ok_or(RestError::AnonymousDisabled)?),
        };
        check_request_role(&role, login).map_err(|rejected| match rejected {
            RejectedRole::NoRole => role_error(
                INVALID_PARAMETER_VALUE.code(),
                format!("role \"{role}\" does not exist"),
                StatusCode::UNAUTHORIZED,
            ),
            RejectedRole::Login => role_error(
                INSUFFICIENT_PRIVILEGE.code(),
                format!("permission denied to set role \"{role}\""),
                StatusCode::FORBIDDEN,
            ),
        })?;
        // The signed claims are passed on byte for byte, unless their role is not the one that was
        // determined
        let claims = if claims.role() == Some(&*role) {
            claims.text().to_owned()
        } else {
            let mut values = claims.values().clone();
            values.insert("role".into(), Value::from(&*role));
            Value::Object(values).to_string()
        };
        Ok(Self { is_anonymous: config.anon_role.as_deref() == Some(&*role), name: role.into_owned(), claims })
    }
}

/// Returns the error of PostgreSQL for a role that cannot be assumed.
fn role_error(code: &str, message: String, status: StatusCode) -> RestError {
    RestError::Postgres(Box::new(PostgresErrorResponse {
        code: code.into(),
        message,
        details: None,
        hint: None,
        context: None,
        status,
        reason: None,
        headers: Vec::new(),
    }))
}

fn is_empty_bearer(value: &http::HeaderValue) -> bool {
    value.to_str().is_ok_and(|value| value.trim().eq_ignore_ascii_case("bearer"))
}

fn check_audience(claims: &Claims, wanted: Option<&str>) -> Result<(), RestError> {
    let wrong_type = || RestError::TokenClaims("The JWT 'aud' claim must be a string or an array of strings".into());
    let is_meant = match claims.get("aud") {
        None | Some(Value::Null) => true,
        Some(Value::String(audience)) => wanted.is_none_or(|wanted| wanted == audience),
        Some(Value::Array(audiences)) => {
            if !audiences.iter().all(Value::is_string) {
                return Err(wrong_type());
            }
            audiences.is_empty() || wanted.is_none_or(|wanted| audiences.iter().any(|audience| audience == wanted))
        }
        Some(_) => return Err(wrong_type()),
    };
    if is_meant { Ok(()) } else { Err(RestError::TokenClaims("JWT not in audience".into())) }
}

/// Returns the error of the data API for a token that is not valid.
fn rest_error(error: TokenError) -> RestError {
    let invalid = |message: &str, details: Option<&str>| RestError::TokenInvalid {
        message: message.to_owned(),
        details: details.map(str::to_owned),
    };
    let no_key = || invalid("No suitable key or wrong key type", Some("None of the keys was able to decode the JWT"));
    match error {
        TokenError::Segments(parts) => {
            RestError::TokenInvalid { message: format!("Expected 3 parts in JWT; got {parts}"), details: None }
        }
        TokenError::Expired => RestError::TokenClaims("JWT expired".into()),
        TokenError::NotYetValid => RestError::TokenClaims("JWT not yet valid".into()),
        TokenError::IssuedInFuture => RestError::TokenClaims("JWT issued at future".into()),
        TokenError::NotANumber(claim) => RestError::TokenClaims(format!("The JWT '{claim}' claim must be a number")),
        TokenError::UnreadableClaims(_) => RestError::TokenClaims("Parsing claims failed".into()),
        TokenError::UnsupportedAlgorithm(_) if error.is_unsecured() => invalid(
            "Wrong or unsupported encoding algorithm",
            Some("JWT is unsecured but expected 'alg' was not 'none'"),
        ),
        TokenError::UnsupportedAlgorithm(_) => invalid("Wrong or unsupported encoding algorithm", None),
        TokenError::OtherAudience => RestError::TokenClaims("JWT not in audience".into()),
        TokenError::BadSignature
        | TokenError::UnreadableSignature
        | TokenError::UnknownKey { .. }
        | TokenError::NoKeyForAlgorithm(_) => no_key(),
        TokenError::Malformed(_) | TokenError::Unsigned(_) => invalid("JWT cryptographic operation failed", None),
    }
}
