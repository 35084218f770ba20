//! Who makes a request.

use std::borrow::Cow;
use std::sync::Arc;

use crate::api_key::ApiRole;
use crate::claims::Claims;
use crate::token::TokenError;

/// Who makes a request, as the front door found out. In the extensions of every request of a service.
///
/// - `token`: the claims of the verified bearer token. An opaque API key stands for the legacy token of its
///   role, so it has claims too (with a role but without `sub`).
/// - `refused`: there is a bearer token, but it does not verify. Such a request must not be served as
///   `anon`; the service says so in its own words. Never together with `token`.
/// - `api_key`: the role of the API key that came with the request, if it came.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The role of the API key in the `apikey` header or query parameter.
    pub api_key: Option<ApiRole>,
    /// The verified bearer token.
    pub token: Option<Arc<Claims>>,
    /// Why the bearer token was refused.
    pub refused: Option<TokenError>,
}

impl Caller {
    /// Nobody in particular: no key, no token.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// The database role to act as: the token's, else the API key's, else `anon`.
    pub fn role(&self) -> &str {
        match (&self.token, self.api_key) {
            (Some(token), _) => token.role().unwrap_or(ApiRole::Anon.as_str()),
            (None, Some(role)) => role.as_str(),
            (None, None) => ApiRole::Anon.as_str(),
        }
    }

    /// The claims as JSON text, as the database gets them in `request.jwt.claims`.
    pub fn claims_text(&self) -> Cow<'_, str> {
        match &self.token {
            Some(token) => Cow::Borrowed(token.text()),
            // The role is one of ours here, so it needs no escaping
            None => Cow::Owned(format!("{{\"role\":\"{}\"}}", self.role())),
        }
    }

    /// Whether the caller holds the service's own rights.
    pub fn is_service_role(&self) -> bool {
        self.refused.is_none() && self.role() == ApiRole::ServiceRole.as_str()
    }

    /// The signed-in user's id, as the token says it.
    pub fn subject(&self) -> Option<&str> {
        self.token.as_ref().and_then(|token| token.subject())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_decides_then_the_key_then_anon() {
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
    fn a_refused_token_never_has_the_service_s_rights() {
        let caller =
            Caller { api_key: Some(ApiRole::ServiceRole), refused: Some(TokenError::Expired), ..Caller::default() };
        assert!(!caller.is_service_role());
    }
}
