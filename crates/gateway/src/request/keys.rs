//! Determines the [`Caller`] from the `apikey` and `Authorization` of a request.

use std::borrow::Cow;
use std::sync::Arc;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};
use portico_base::{AllowedOrigins, Clock, Secret};
use portico_tokens::{
    ApiRole, Caller, Claims, CurrentKeys, KEY_REFRESH_WAIT, KeyRefresh, KeySet, TokenError, TokenHeader, TokenIssuer,
    bearer, looks_opaque,
};
use tokio::time::Instant;

use crate::request::access::KeyPolicy;
use crate::request::rejection::Rejection;

/// The keys that requests are checked with.
pub(crate) struct Keys {
    current: CurrentKeys,
    pub(crate) clock: Clock,
    pub(crate) policy: KeyPolicy,
    /// The only pages from which secret keys are accepted; `None`: every page.
    pub(crate) pages: Option<AllowedOrigins>,
    /// Reads keys again that a token names and that are not known.
    pub(crate) refresh: Option<KeyRefresh>,
}

/// The properties of the requested path that decide about keys and tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathRules {
    /// The path needs no key.
    pub(crate) open: bool,
    /// Tokens of the third party are accepted.
    pub(crate) third_party: bool,
}

impl Keys {
    pub(crate) fn new(current: CurrentKeys, clock: Clock) -> Self {
        Self { current, clock, policy: KeyPolicy::Hosted, pages: None, refresh: None }
    }

    /// Returns the caller of a request, or a rejection if the key policy does not admit it.
    ///
    /// A token whose key is not known yet, as another node or the third party may have signed it a
    /// moment ago, waits until the keys have been read again, which delays this request only.
    pub(crate) async fn caller(&self, headers: &HeaderMap, uri: &Uri, rules: PathRules) -> Result<Caller, Rejection> {
        let mut keys = self.current.now();
        let mut outcome = self.caller_by(&keys, headers, uri, rules);
        let Some(refresh) = &self.refresh else { return outcome };
        let deadline = Instant::now() + KEY_REFRESH_WAIT;
        for issuer in TokenIssuer::ALL {
            if may_lack_key(&keys, issuer, &outcome, headers, uri, rules) {
                drop((keys, outcome));
                // In a box, so that waiting connections do not reserve memory for it. Whatever
                // comes of it, the keys that are known then decide
                let refreshed = Box::pin(tokio::time::timeout_at(deadline, refresh(issuer)));
                let _ = refreshed.await;
                keys = self.current.now();
                outcome = self.caller_by(&keys, headers, uri, rules);
            }
        }
        outcome
    }

    fn caller_by(&self, keys: &KeySet, headers: &HeaderMap, uri: &Uri, rules: PathRules) -> Result<Caller, Rejection> {
        let key = api_key(headers, uri);
        let role = key.as_deref().and_then(|key| self.role_of(keys, key));
        if !rules.open {
            self.admit(key.as_deref(), role, headers)?;
        }
        let caller = self.present(keys, key, role, headers, rules);
        match &self.pages {
            Some(pages) if is_privileged(&caller) && !may_be_privileged(pages, headers) => {
                Err(Rejection::SecretKeyOfOtherPage)
            }
            _ => Ok(caller),
        }
    }

    /// Returns true if a request may use secret keys.
    pub(crate) fn may_be_privileged(&self, headers: &HeaderMap) -> bool {
        self.pages.as_ref().is_none_or(|pages| may_be_privileged(pages, headers))
    }

    fn present(
        &self,
        keys: &KeySet,
        key: Option<Cow<'_, str>>,
        role: Option<ApiRole>,
        headers: &HeaderMap,
        rules: PathRules,
    ) -> Caller {
        let now = self.clock.now();
        let mut caller = Caller { api_key: role, ..Caller::default() };
        let authorization = headers.get(header::AUTHORIZATION);
        match authorization.and_then(|value| bearer(value.as_bytes())) {
            Some(token) if !looks_opaque(token) => caller.accept(verify(keys, token, rules), now),
            // Another scheme is left to the service, and hides the key as it does at Supabase
            None if authorization.is_some_and(|value| !value.is_empty()) => {}
            // No token: an opaque key stands for the legacy token of its role. A legacy key remains
            // a key, since not every service accepts it as a token without the word `Bearer`
            _ => match (key, role) {
                (Some(key), Some(role)) if looks_opaque(&key) => {
                    caller.present(keys.api.jwt_of(role), &keys.ring, now);
                    caller.authorization = Some(keys.api.authorization_of(role).clone());
                }
                (Some(key), role) => {
                    caller.key_claims = role.and_then(|_| keys.ring.verify(&key, now).ok());
                    caller.authorization = Some(Secret::new(key));
                }
                (None, _) => caller.authorization = authorization.map(|_| Secret::new("")),
            },
        }
        caller
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
    fn role_of(&self, keys: &KeySet, key: &str) -> Option<ApiRole> {
        if let Some(role) = keys.api.role_of(key) {
            return Some(role);
        }
        if looks_opaque(key) {
            return None;
        }
        let claims = keys.ring.verify(key, self.clock.now()).ok()?;
        match claims.role()? {
            "anon" if claims.subject().is_none() => Some(ApiRole::Anon),
            "service_role" if claims.subject().is_none() => Some(ApiRole::ServiceRole),
            _ => None,
        }
    }
}

/// Verifies the signature of a token. Where the third party is not accepted, its tokens are those
/// of an unknown key.
fn verify(keys: &KeySet, token: &str, rules: PathRules) -> Result<Arc<Claims>, TokenError> {
    let claims = keys.verify_signature(token)?;
    if claims.is_third_party() && !rules.third_party {
        return Err(TokenHeader::read(token)?.unknown_key());
    }
    Ok(claims)
}

/// Returns true if a request was rejected because a key of the issuer may be missing.
fn may_lack_key(
    keys: &KeySet,
    issuer: TokenIssuer,
    outcome: &Result<Caller, Rejection>,
    headers: &HeaderMap,
    uri: &Uri,
    rules: PathRules,
) -> bool {
    if issuer == TokenIssuer::ThirdParty && !rules.third_party {
        return false;
    }
    let rejected = match outcome {
        Err(Rejection::WrongKey) => api_key(headers, uri),
        Ok(Caller { rejected: Some(error), .. }) if !error.is_untimely() => {
            let authorization = headers.get(header::AUTHORIZATION);
            authorization.and_then(|value| bearer(value.as_bytes())).map(Cow::Borrowed)
        }
        _ => None,
    };
    rejected.is_some_and(|token| !looks_opaque(&token) && keys.may_lack_key_of(issuer, &token))
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
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
    let fetch_site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    pages.admits_request(origin, fetch_site, host.as_ref().map(Authority::host))
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
