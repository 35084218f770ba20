//! Determines the [`Caller`] from the `apikey` and `Authorization` of a request.

use std::borrow::Cow;
use std::sync::Arc;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};
use portico_base::{AllowedOrigins, Clock, Secret};
use portico_tokens::{ApiKeys, ApiRole, Caller, Claims, KeyRing, bearer, looks_opaque};

use crate::request::access::KeyPolicy;
use crate::request::rejection::Rejection;

/// The keys that requests are checked with.
pub(crate) struct Keys {
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) api_keys: Arc<ApiKeys>,
    pub(crate) clock: Clock,
    pub(crate) policy: KeyPolicy,
    /// The only pages from which secret keys are accepted; `None`: every page.
    pub(crate) pages: Option<AllowedOrigins>,
    /// The `Authorization` that opaque keys stand for. Computed once, since every request has a
    /// key.
    anon: Secret,
    service_role: Secret,
}

impl Keys {
    pub(crate) fn new(ring: Arc<KeyRing>, api_keys: Arc<ApiKeys>, clock: Clock) -> Self {
        let authorization = |role| Secret::new(format!("Bearer {}", api_keys.jwt_of(role)));
        let (anon, service_role) = (authorization(ApiRole::Anon), authorization(ApiRole::ServiceRole));
        Self { ring, api_keys, clock, policy: KeyPolicy::Hosted, pages: None, anon, service_role }
    }

    /// Returns the caller of a request, or a rejection if the key policy does not admit it. `open`:
    /// the path needs no key.
    pub(crate) fn caller(&self, headers: &HeaderMap, uri: &Uri, open: bool) -> Result<Caller, Rejection> {
        let key = api_key(headers, uri);
        let role = key.as_deref().and_then(|key| self.role_of(key));
        if !open {
            self.admit(key.as_deref(), role, headers)?;
        }
        let caller = self.present(key, role, headers);
        match &self.pages {
            Some(pages) if is_privileged(&caller) && !may_be_privileged(pages, headers) => {
                Err(Rejection::SecretKeyOfOtherPage)
            }
            _ => Ok(caller),
        }
    }

    fn present(&self, key: Option<Cow<'_, str>>, role: Option<ApiRole>, headers: &HeaderMap) -> Caller {
        let mut caller = Caller { api_key: role, ..Caller::default() };
        let authorization = headers.get(header::AUTHORIZATION);
        match authorization.and_then(|value| bearer(value.as_bytes())) {
            Some(token) if !looks_opaque(token) => caller.present(token, &self.ring, self.clock.now()),
            // Another scheme is left to the service, and hides the key as it does at Supabase
            None if authorization.is_some_and(|value| !value.is_empty()) => {}
            // No token: an opaque key stands for the legacy token of its role. A legacy key remains
            // a key, since not every service accepts it as a token without the word `Bearer`
            _ => match (key, role) {
                (Some(key), Some(role)) if looks_opaque(&key) => {
                    caller.present(self.api_keys.jwt_of(role), &self.ring, self.clock.now());
                    caller.authorization = Some(self.authorization_of(role).clone());
                }
                (Some(key), role) => {
                    caller.key_claims = role.and_then(|_| self.ring.verify(&key, self.clock.now()).ok());
                    caller.authorization = Some(Secret::new(key));
                }
                (None, _) => caller.authorization = authorization.map(|_| Secret::new("")),
            },
        }
        caller
    }

    fn authorization_of(&self, role: ApiRole) -> &Secret {
        match role {
            ApiRole::Anon => &self.anon,
            ApiRole::ServiceRole => &self.service_role,
        }
    }

    fn admit(&self, key: Option<&str>, role: Option<ApiRole>, headers: &HeaderMap) -> Result<(), Rejection> {
        match (self.policy, key, role) {
            (KeyPolicy::Development, Some(key), None) if looks_opaque(key) => Err(Rejection::WrongKey),
            (KeyPolicy::Development, ..) => Ok(()),
            (KeyPolicy::Hosted, None, _) => Err(Rejection::NoKey),
            (KeyPolicy::Hosted, Some(_), None) => Err(Rejection::WrongKey),
            (KeyPolicy::Hosted, Some(key), Some(ApiRole::ServiceRole)) if looks_opaque(key) && is_browser(headers) => {
                Err(Rejection::SecretKeyInBrowser)
            }
            (KeyPolicy::Hosted, Some(_), Some(_)) => Ok(()),
        }
    }

    /// Returns the role of one of the four keys, or of any other legacy key that was signed for a
    /// key's role: keys that were issued earlier stay valid as long as their secret does.
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

/// Returns the `apikey` of the header, else of the query. An empty one counts as absent.
fn api_key<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<Cow<'a, str>> {
    if let Some(value) = headers.get("apikey").filter(|value| !value.is_empty()) {
        // A value that is not text is an unknown key, not an absent one
        return Some(Cow::Borrowed(value.to_str().unwrap_or("?")));
    }
    form_urlencoded::parse(uri.query()?.as_bytes())
        .find(|(name, value)| name == "apikey" && !value.is_empty())
        .map(|(_, value)| value)
}

/// Returns true if a caller has, or may have within a service's leeway of time, more rights than a
/// visitor or a user: those of the service, or of a role that only the holder of the signing secret
/// can name.
fn is_privileged(caller: &Caller) -> bool {
    let is_more = |claims: &Arc<Claims>| !matches!(claims.role(), None | Some("" | "anon" | "authenticated"));
    caller.api_key == Some(ApiRole::ServiceRole)
        || [&caller.token, &caller.untimely, &caller.key_claims].into_iter().flatten().any(is_more)
}

/// Returns true if a request comes from one of the pages or from a program, at a host that no other
/// website can have.
fn may_be_privileged(pages: &AllowedOrigins, headers: &HeaderMap) -> bool {
    let is_of_page = match headers.get(header::ORIGIN) {
        Some(origin) => origin.to_str().is_ok_and(|origin| pages.allows(origin)),
        // Scripts, images and links of other websites arrive without an origin, but with this
        // header
        None => headers.get("sec-fetch-site").is_none_or(|site| site != "cross-site"),
    };
    let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    is_of_page && host.is_none_or(|host| pages.is_private_host(host.host()))
}

fn is_browser(headers: &HeaderMap) -> bool {
    headers.get(header::USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

/// Returns the query without `apikey` pairs, so that no service takes the key for its own
/// parameter. `None`: there is none.
pub(crate) fn query_without_key(query: &str) -> Option<String> {
    let is_key = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        name == "apikey" || (name.contains('%') && percent_encoding::percent_decode_str(name).eq("apikey".bytes()))
    };
    query.split('&').any(is_key).then(|| query.split('&').filter(|pair| !is_key(pair)).collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_key_of_the_header_precedes_that_of_the_query() {
        let uri: Uri = "/x?a=b&apikey=q%2Fk".parse().unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(api_key(&headers, &uri).as_deref(), Some("q/k"));
        headers.insert("apikey", HeaderValue::from_static("h"));
        assert_eq!(api_key(&headers, &uri).as_deref(), Some("h"));
        headers.insert("apikey", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(api_key(&headers, &uri).as_deref(), Some("?"));
    }
}
