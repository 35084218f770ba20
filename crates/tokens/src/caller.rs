//! The caller of a request.

use std::borrow::Cow;
use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use crate::api_key::ApiRole;
use crate::claims::Claims;
use crate::ring::KeyRing;
use crate::token::TokenError;
use portico_base::Secret;

/// The caller of a request, as the gateway determined it. In the extensions of every request to a
/// service.
///
/// - `token`: the claims of the verified bearer token. An opaque API key stands for the legacy
///   token of its role, so it has claims too (with a role but without `sub`).
/// - `rejected`: there is a bearer token, but it does not verify. Such a request must not be served
///   as `anon`; the service rejects it with its own error. Never together with `token`.
/// - `untimely`: the claims of a token with a valid signature that was rejected for its times
///   alone. Only beside `rejected`. A service that allows clocks to differ uses [`Caller::within`].
/// - `api_key`: the role of the API key that came with the request, if any.
/// - `key_claims`: the claims of a legacy API key that came without a token. Such a key is not a
///   token: only a service that accepts keys as tokens reads them.
/// - `authorization`: the `Authorization` that services at Supabase receive where its gateway
///   replaces the client's. The header itself is unchanged here: only a service that shows headers
///   to SQL reads this field.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The role of the API key in the `apikey` header or query parameter.
    pub api_key: Option<ApiRole>,
    /// The claims of the legacy API key, if there is no `Authorization`.
    pub key_claims: Option<Arc<Claims>>,
    /// The verified bearer token.
    pub token: Option<Arc<Claims>>,
    /// The reason for which the bearer token was rejected.
    pub rejected: Option<TokenError>,
    /// The claims of a token that was rejected for its times alone. Never act on them unchecked.
    pub untimely: Option<Arc<Claims>>,
    /// The replacement of the client's `Authorization`; empty if nothing is left of it.
    pub authorization: Option<Secret>,
}

impl Caller {
    /// Returns a caller without key and token.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Verifies a bearer token at `now`, and stores its claims or the reason of its rejection.
    pub fn present(&mut self, token: &str, keys: &KeyRing, now: OffsetDateTime) {
        self.accept(keys.verify_signature(token), now);
    }

    /// Compares the times of a token with `now`, and stores its claims or the reason of its
    /// rejection.
    pub fn accept(&mut self, verified: Result<Arc<Claims>, TokenError>, now: OffsetDateTime) {
        (self.token, self.rejected, self.untimely) = (None, None, None);
        match verified {
            Err(error) => self.rejected = Some(error),
            Ok(claims) => match claims.check_times(now) {
                Ok(()) => self.token = Some(claims),
                Err(error) => (self.rejected, self.untimely) = (Some(error), Some(claims)),
            },
        }
    }

    /// Returns the caller as seen by a service whose clock may differ from the issuer's by
    /// `leeway`: the token's times are compared again, by the rules of
    /// [`Claims::check_times_within`].
    ///
    /// # Errors
    /// When the token is rejected, for its times or for any other reason.
    pub fn within(&self, now: OffsetDateTime, leeway: Duration) -> Result<Self, TokenError> {
        match (self.token.as_ref().or(self.untimely.as_ref()), &self.rejected) {
            (Some(claims), _) => {
                claims.check_times_within(now, leeway)?;
                Ok(Self { api_key: self.api_key, token: Some(Arc::clone(claims)), ..Self::default() })
            }
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(self.clone()),
        }
    }

    /// Returns the database role to act as: the token's, else the API key's, else `anon`.
    pub fn role(&self) -> &str {
        match (&self.token, self.api_key) {
            (Some(token), _) => token.role().unwrap_or(ApiRole::Anon.as_str()),
            (None, Some(role)) => role.as_str(),
            (None, None) => ApiRole::Anon.as_str(),
        }
    }

    /// Returns the claims as JSON text, as the database receives them in `request.jwt.claims`.
    pub fn claims_text(&self) -> Cow<'_, str> {
        match &self.token {
            Some(token) => Cow::Borrowed(token.text()),
            // The role is one of the API roles here, so it needs no escaping
            None => Cow::Owned(format!("{{\"role\":\"{}\"}}", self.role())),
        }
    }

    /// Returns true if the caller has the rights of the service.
    pub fn is_service_role(&self) -> bool {
        self.rejected.is_none() && self.role() == ApiRole::ServiceRole.as_str()
    }

    /// Returns the id of the signed-in user, from the token.
    pub fn subject(&self) -> Option<&str> {
        self.token.as_ref().and_then(|token| token.subject())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_precedes_the_key_and_the_key_precedes_anon() {
        let mut caller = Caller::anonymous();
        assert_eq!(caller.role(), "anon");
        assert_eq!(caller.claims_text(), r#"{"role":"anon"}"#);

        caller.api_key = Some(ApiRole::ServiceRole);
        assert_eq!(caller.role(), "service_role");
        assert!(caller.is_service_role());

        caller.token = Some(Arc::new(Claims::parse(br#"{"sub":"u","role":"authenticated"}"#.to_vec()).unwrap()));
        assert_eq!(caller.role(), "authenticated");
        assert_eq!(caller.subject(), Some("u"));
        assert_eq!(caller.claims_text(), r#"{"sub":"u","role":"authenticated"}"#);
        assert!(!caller.is_service_role());
    }

    #[test]
    fn a_rejected_token_never_has_the_service_s_rights() {
        let caller =
            Caller { api_key: Some(ApiRole::ServiceRole), rejected: Some(TokenError::Expired), ..Caller::default() };
        assert!(!caller.is_service_role());
    }

    #[test]
    fn a_leeway_admits_a_token_that_just_expired_and_no_other() {
        let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        let leeway = Duration::seconds(30);
        let keys = KeyRing::hs256(&Secret::new(crate::development::JWT_SECRET));
        let token = keys.sign(&serde_json::json!({ "sub": "u", "role": "authenticated", "exp": 100 })).unwrap();

        let mut caller = Caller { api_key: Some(ApiRole::Anon), ..Caller::default() };
        caller.present(&token, &keys, at(110));
        assert_eq!((caller.rejected.clone(), caller.subject()), (Some(TokenError::Expired), None));
        let seen = caller.within(at(110), leeway).unwrap();
        assert_eq!((seen.rejected.clone(), seen.role(), seen.subject()), (None, "authenticated", Some("u")));
        assert_eq!(caller.within(at(131), leeway).unwrap_err(), TokenError::Expired);

        // A token that is valid without leeway may still come from the future
        caller.present(&keys.sign(&serde_json::json!({ "iat": 500 })).unwrap(), &keys, at(110));
        assert_eq!((caller.rejected.clone(), caller.token.is_some()), (None, true));
        assert_eq!(caller.within(at(110), leeway).unwrap_err(), TokenError::IssuedInFuture);

        // A wrong signature is independent of times, and an anonymous caller stays anonymous
        caller.present(&format!("{token}A"), &keys, at(50));
        assert!(caller.token.is_none() && caller.untimely.is_none());
        assert!(!caller.within(at(50), leeway).unwrap_err().is_untimely());
        assert!(Caller::anonymous().within(at(50), leeway).unwrap().token.is_none());
    }
}
