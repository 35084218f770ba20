//! The binding of an implicit flow to the browser that started it.
//!
//! A flow with PKCE can be finished only by the app that holds the verifier. Any other flow is
//! known by its `state` alone: a victim who opens an attacker's URL at the provider would finish
//! the attacker's flow, and be signed in to the attacker's account, or link their identity to it.
//! So an implicit flow is bound to a browser: `/authorize` sets a cookie with a random key, the
//! flow stores a hash of it, and the callback checks the cookie.
//!
//! The cookie must reach the callback, so a browser that calls `/authorize` at another host name of
//! this server is first redirected to the callback's host. Two kinds of flow are bound to the
//! client's network instead: links that an app of another origin starts, since browsers ignore
//! cookies of such a call, and sign-ins at providers whose `redirect_uri` is not a URL of this
//! service.

use std::time::Duration;

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Uri};
use portico_base::{hash, random};
use subtle::ConstantTimeEq as _;
use url::Url;

use crate::http::extract::{RequestInfo, header};

/// The cookie over https, which other hosts of the domain cannot set.
const SECURE: &str = "__Host-portico-flow";
/// Like [`SECURE`], for providers that respond with a form: browsers send no `Lax` cookie with such
/// a request, which comes from another site.
const SECURE_FORM: &str = "__Host-portico-flow-form";
/// The cookie over http, in development.
const PLAIN: &str = "portico-flow";
/// Characters of a key: 256 bits.
const KEY_CHARACTERS: usize = 43;
/// Longest form that is repeated as a query.
const MAX_FORM_BYTES: usize = 8 * 1024;
/// Marks a request that was redirected here from another host name of this server.
pub(crate) const REDIRECTED_PARAMETER: &str = "portico_arrived";

/// The host at which a browser calls this server, and its keys.
#[derive(Debug)]
pub(crate) struct BrowserContext {
    /// Host and port, as the browser sent them.
    authority: Option<String>,
    /// Cookies of this module.
    cookies: Vec<(&'static str, String)>,
}

impl BrowserContext {
    /// Reads host and cookies of a request.
    pub(crate) fn from_request(headers: &HeaderMap, uri: &Uri) -> Self {
        let authority = header(headers, HOST.as_str()).or(uri.authority().map(http::uri::Authority::as_str));
        let cookies = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter_map(|(name, value)| {
                let name = [SECURE, SECURE_FORM, PLAIN].into_iter().find(|known| *known == name)?;
                is_key(value).then(|| (name, value.to_owned()))
            })
            .take(8)
            .collect();
        Self { authority: authority.map(str::to_lowercase), cookies }
    }

    /// Returns true if the browser sent no key.
    pub(crate) fn has_no_key(&self) -> bool {
        self.cookies.is_empty()
    }

    fn key(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find(|(known, _)| *known == name).map(|(_, key)| key.as_str())
    }
}

fn is_key(value: &str) -> bool {
    value.len() == KEY_CHARACTERS && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns the hash that a flow stores. It includes the name: a cookie that any host of the domain
/// could have set must not pass for one that only this host can set.
fn fingerprint(name: &str, key: &str) -> String {
    hash::sha256_hex(format!("{name}={key}").as_bytes())
}

/// The reach of a cookie: whether the browser will send it to the callback.
pub(crate) enum CookieReach {
    /// The callback has the host that the browser called.
    SameHost,
    /// The callback has another host of this service, at which `/authorize` has this URL.
    OtherHost(Url),
    /// The callback is not a URL of this service.
    None,
}

/// Compares the host that the browser called with that of the callback.
pub(crate) fn cookie_reach(external_url: &str, redirect_uri: &str, browser: &BrowserContext) -> CookieReach {
    let Ok(callback) = Url::parse(redirect_uri) else { return CookieReach::None };
    if browser.authority.as_deref().is_some_and(|authority| has_authority(&callback, authority)) {
        return CookieReach::SameHost;
    }
    let own = Url::parse(external_url).map(|url| url.path().trim_end_matches('/').to_owned());
    let own = own.unwrap_or_default();
    if callback.path() != format!("{own}/callback") {
        return CookieReach::None;
    }
    let mut authorize = callback;
    authorize.set_path(&format!("{own}/authorize"));
    CookieReach::OtherHost(authorize)
}

fn has_authority(url: &Url, authority: &str) -> bool {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => authority == format!("{host}:{port}"),
        // Browsers omit the default port, other clients may not
        None => {
            authority == host || url.port_or_known_default().is_some_and(|port| authority == format!("{host}:{port}"))
        }
    }
}

/// The binding of an implicit flow to a browser, a network, or both.
#[derive(Debug)]
pub(crate) struct BrowserBinding {
    /// The stored form.
    pub(crate) column: String,
    /// The cookie of the response.
    pub(crate) cookie: Option<HeaderValue>,
}

/// The cookie that binds a flow to a browser.
#[derive(Debug)]
pub(crate) struct CookieBinding<'a> {
    pub(crate) browser: &'a BrowserContext,
    pub(crate) redirect_uri: &'a str,
    /// The provider responds with a form.
    pub(crate) responds_with_form: bool,
    pub(crate) lifetime: Duration,
}

impl BrowserBinding {
    /// Binds a flow to a browser by a cookie, and to the network of a request.
    pub(crate) fn new(by_cookie: Option<CookieBinding<'_>>, by_network: Option<&RequestInfo>) -> Self {
        let mut parts = Vec::new();
        let mut cookie = None;
        if let Some(binding) = by_cookie {
            let (name, policy) = match (binding.redirect_uri.starts_with("https:"), binding.responds_with_form) {
                (true, true) => (SECURE_FORM, "SameSite=None; Secure"),
                (true, false) => (SECURE, "SameSite=Lax; Secure"),
                (false, _) => (PLAIN, "SameSite=Lax"),
            };
            // The same key for flows in several tabs
            let key = binding.browser.key(name).map_or_else(|| random::base64url(32), str::to_owned);
            let age = binding.lifetime.as_secs();
            parts.push(format!("browser:{}", fingerprint(name, &key)));
            cookie = HeaderValue::from_str(&format!("{name}={key}; Path=/; Max-Age={age}; HttpOnly; {policy}")).ok();
        }
        if let Some(request) = by_network {
            parts.push(format!("network:{}", network(request)));
        }
        Self { column: parts.join(" "), cookie }
    }
}

fn network(request: &RequestInfo) -> &str {
    request.network.as_deref().unwrap_or("unknown")
}

/// Returns true if a request comes from the browser or network that the flow is bound to. A flow
/// without a binding cannot be finished.
pub(crate) fn is_bound_to(column: Option<&str>, browser: &BrowserContext, request: &RequestInfo) -> bool {
    let mut parts = column.unwrap_or_default().split(' ').filter_map(|part| part.split_once(':'));
    parts.any(|(kind, value)| match kind {
        "browser" => browser
            .cookies
            .iter()
            .any(|(name, key)| bool::from(fingerprint(name, key).as_bytes().ct_eq(value.as_bytes()))),
        "network" => value == network(request),
        _ => false,
    })
}

/// Returns the query that repeats a provider's form as a navigation of this site, with which the
/// browser sends its cookies. `None`: the form is too long.
pub(crate) fn as_query(fields: &[(String, String)]) -> Option<String> {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    (query.len() <= MAX_FORM_BYTES).then(|| format!("?{query}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn browser(cookie: &str) -> BrowserContext {
        let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(cookie).unwrap())]);
        BrowserContext::from_request(&headers, &Uri::from_static("/"))
    }

    #[test]
    fn only_keys_of_this_module_are_read() {
        let key = random::base64url(32);
        assert_eq!(key.len(), KEY_CHARACTERS);
        let with = |name: &str| browser(&format!("a=b; {name}={key}; c"));
        assert_eq!(with(SECURE).key(SECURE), Some(key.as_str()));
        assert!(with("other").has_no_key());
        assert!(browser(&format!("{PLAIN}={}", &key[1..])).has_no_key());
        assert!(browser(&format!("{PLAIN}={}\"", &key[1..])).has_no_key());
    }

    #[test]
    fn the_name_of_a_cookie_is_part_of_its_proof() {
        let key = random::base64url(32);
        assert_ne!(fingerprint(SECURE, &key), fingerprint(PLAIN, &key));
    }

    #[test]
    fn authorities_are_compared_with_the_default_port() {
        let at = |url: &str, authority: &str| has_authority(&Url::parse(url).unwrap(), authority);
        assert!(at("https://api.example.com/auth/v1/callback", "api.example.com"));
        assert!(at("https://api.example.com/auth/v1/callback", "api.example.com:443"));
        assert!(!at("https://api.example.com/auth/v1/callback", "api.example.com:80"));
        assert!(at("http://127.0.0.1:54321/auth/v1/callback", "127.0.0.1:54321"));
        assert!(!at("http://127.0.0.1:54321/auth/v1/callback", "localhost:54321"));
    }
}
