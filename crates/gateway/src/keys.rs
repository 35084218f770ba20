//! Who calls: from the `apikey` and `Authorization` of a request to its [`Caller`].

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, Uri, header};
use portico_tokens::{ApiKeys, ApiRole, Caller, Clock, KeyRing, looks_opaque};

use crate::access::KeyPolicy;
use crate::refusal::Refusal;

/// What keys and tokens are checked with.
pub(crate) struct Keys {
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) api_keys: Arc<ApiKeys>,
    pub(crate) clock: Clock,
    pub(crate) policy: KeyPolicy,
}

impl Keys {
    /// The caller of a request; a refusal when the policy does not let it pass. `open`: the path needs no key.
    pub(crate) fn caller(&self, headers: &HeaderMap, uri: &Uri, open: bool) -> Result<Caller, Refusal> {
        let key = api_key(headers, uri);
        let role = key.as_deref().and_then(|key| self.role_of(key));
        if !open {
            self.admit(key.as_deref(), role, headers)?;
        }
        let mut caller = Caller { api_key: role, ..Caller::default() };
        match bearer(headers) {
            Some(token) if !looks_opaque(token) => caller.present(token, &self.ring, self.clock.now()),
            // Another scheme is the service's business, and hides the key as it does in the reference
            None if headers.get(header::AUTHORIZATION).is_some_and(|value| !value.is_empty()) => {}
            // No token: an opaque key stands for the legacy token of its role. A legacy key stays a key only,
            // since without the word `Bearer` no service takes it for a token.
            _ => {
                if let (Some(key), Some(role)) = (key.as_deref(), role)
                    && looks_opaque(key)
                {
                    caller.present(self.api_keys.jwt_of(role), &self.ring, self.clock.now());
                }
            }
        }
        Ok(caller)
    }

    fn admit(&self, key: Option<&str>, role: Option<ApiRole>, headers: &HeaderMap) -> Result<(), Refusal> {
        match (self.policy, key, role) {
            (KeyPolicy::Development, Some(key), None) if looks_opaque(key) => Err(Refusal::WrongKey),
            (KeyPolicy::Development, ..) => Ok(()),
            (KeyPolicy::Hosted, None, _) => Err(Refusal::NoKey),
            (KeyPolicy::Hosted, Some(_), None) => Err(Refusal::WrongKey),
            (KeyPolicy::Hosted, Some(key), Some(ApiRole::ServiceRole)) if looks_opaque(key) && is_browser(headers) => {
                Err(Refusal::SecretKeyInBrowser)
            }
            (KeyPolicy::Hosted, Some(_), Some(_)) => Ok(()),
        }
    }

    /// Our four keys; and every other legacy key that was signed for a key's role, so that keys that were given
    /// out earlier go on working as long as their secret does.
    fn role_of(&self, key: &str) -> Option<ApiRole> {
        if let Some(role) = self.api_keys.role_of(key) {
            return Some(role);
        }
        if looks_opaque(key) {
            return None;
        }
        let claims = self.ring.verify(key, self.clock.now()).ok()?;
        match claims.role()? {
            "anon" if claims.subject().is_none() => Some(ApiRole::Anon),
            "service_role" if claims.subject().is_none() => Some(ApiRole::ServiceRole),
            _ => None,
        }
    }
}

/// The `apikey` of the header, else of the query. An empty one counts as absent.
fn api_key<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<Cow<'a, str>> {
    if let Some(value) = headers.get("apikey").filter(|value| !value.is_empty()) {
        // What is not text is no key of ours, but it is one
        return Some(Cow::Borrowed(value.to_str().unwrap_or("?")));
    }
    form_urlencoded::parse(uri.query()?.as_bytes())
        .find(|(name, value)| name == "apikey" && !value.is_empty())
        .map(|(_, value)| value)
}

/// The token of an `Authorization: Bearer` header, the scheme in any case.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("bearer".len())?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || !rest.first().is_some_and(u8::is_ascii_whitespace) {
        return None;
    }
    // Bytes that are no text make a token that does not verify
    let token = std::str::from_utf8(rest).unwrap_or("?").trim();
    (!token.is_empty()).then_some(token)
}

fn is_browser(headers: &HeaderMap) -> bool {
    headers.get(header::USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

/// The query without `apikey` pairs, so that no service takes the key for a parameter of its own. `None`: there
/// is none in it.
pub(crate) fn query_without_key(query: &str) -> Option<String> {
    let is_key = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        name == "apikey" || (name.contains('%') && percent_encoding::percent_decode_str(name).eq("apikey".bytes()))
    };
    query.split('&').any(is_key).then(|| query.split('&').filter(|pair| !is_key(pair)).collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn authorization(value: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        headers
    }

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        for (value, token) in [
            ("Bearer x", Some("x")),
            ("bearer x", Some("x")),
            ("BEARER  x ", Some("x")),
            ("Bearer\tx", Some("x")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearerx", None),
            ("Basic x", None),
            ("", None),
        ] {
            assert_eq!(bearer(&authorization(value.as_bytes())), token, "{value:?}");
        }
        assert_eq!(bearer(&authorization(b"Bearer \xff\xfe")), Some("?"));
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn the_header_s_key_beats_the_query_s() {
        let uri: Uri = "/x?a=b&apikey=q%2Fk".parse().unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(api_key(&headers, &uri).as_deref(), Some("q/k"));
        headers.insert("apikey", HeaderValue::from_static("h"));
        assert_eq!(api_key(&headers, &uri).as_deref(), Some("h"));
        headers.insert("apikey", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(api_key(&headers, &uri).as_deref(), Some("?"));
    }

    proptest! {
        #[test]
        fn any_header_is_a_token_or_none(value in prop::collection::vec(32_u8..=255, 0..40)) {
            prop_assume!(!value.contains(&127));
            let _ = bearer(&authorization(&value));
        }
    }
}
