//! The browser in which an implicit flow began.
//!
//! A flow with a proof key can be finished only by the app that holds the key. Any other flow is known
//! by its `state` alone: a person who is given the address at the provider would finish the flow of
//! the one who began it, and be signed in to that person's account, or give their identity away. So an
//! implicit flow belongs to a browser. `/authorize` gives it a random key in a cookie, the flow keeps
//! a hash, and the callback asks for the cookie.
//!
//! The cookie must reach the callback: a browser that calls `/authorize` under another name of this
//! server is sent to the callback's name first. Two flows are bound to the network that they began in
//! instead: links of an identity that an app of another origin begins, since browsers keep no cookie
//! of such a call, and sign-ins at providers whose `redirect_uri` is not an address of this service.

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Uri};
use portico_base::{hash, random};
use subtle::ConstantTimeEq as _;
use url::Url;

use crate::Auth;
use crate::http::extract::{RequestInfo, header};

/// The name over https, which other hosts of the domain cannot set.
const SECURE: &str = "__Host-portico-flow";
/// As [`SECURE`], for providers that answer with a form: a request of another site, with which a
/// browser sends no `Lax` cookie.
const SECURE_FORM: &str = "__Host-portico-flow-form";
/// The name over http, on machines of developers.
const PLAIN: &str = "portico-flow";
/// Characters of a key: 256 bits.
const KEY_CHARACTERS: usize = 43;
/// Longest answer of a provider that is asked for once more.
const MAX_ANSWER: usize = 8 * 1024;
/// Says that a browser was sent here from another name of this server.
pub(crate) const ARRIVED: &str = "portico_arrived";

/// Where the browser of a request calls this server, and which keys it has.
#[derive(Debug)]
pub(crate) struct Browser {
    /// Name and port, as the browser knows them.
    authority: Option<String>,
    /// Cookies of this room.
    cookies: Vec<(&'static str, String)>,
}

impl Browser {
    /// Reads the browser's side of a request.
    pub(crate) fn of(headers: &HeaderMap, uri: &Uri) -> Self {
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

    /// Returns whether the browser came without any key.
    pub(crate) fn is_unknown(&self) -> bool {
        self.cookies.is_empty()
    }

    fn key(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find(|(known, _)| *known == name).map(|(_, key)| key.as_str())
    }
}

fn is_key(value: &str) -> bool {
    value.len() == KEY_CHARACTERS && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// The hash that a flow keeps. The name counts: a cookie that any host of the domain could have set
/// does not stand for one that only this host can set.
fn fingerprint(name: &str, key: &str) -> String {
    hash::sha256_hex(format!("{name}={key}").as_bytes())
}

/// The way in which the browser can be known again at a callback.
pub(crate) enum Reach {
    /// By a cookie.
    Cookie,
    /// By a cookie, when it has called `/authorize` at this address.
    CookieAt(Url),
    /// Not at all: the callback is an address that this service does not know.
    Unknown,
}

/// Compares the address that the browser called with that of the callback.
pub(crate) fn reach(auth: &Auth, redirect_uri: &str, browser: &Browser) -> Reach {
    let Ok(callback) = Url::parse(redirect_uri) else { return Reach::Unknown };
    if browser.authority.as_deref().is_some_and(|authority| is_at(&callback, authority)) {
        return Reach::Cookie;
    }
    let own = Url::parse(&auth.settings().external_url).map(|url| url.path().trim_end_matches('/').to_owned());
    let own = own.unwrap_or_default();
    if callback.path() != format!("{own}/callback") {
        return Reach::Unknown;
    }
    let mut authorize = callback;
    authorize.set_path(&format!("{own}/authorize"));
    Reach::CookieAt(authorize)
}

fn is_at(url: &Url, authority: &str) -> bool {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => authority == format!("{host}:{port}"),
        // A browser leaves the usual port out, other clients need not
        None => {
            authority == host || url.port_or_known_default().is_some_and(|port| authority == format!("{host}:{port}"))
        }
    }
}

/// What an implicit flow keeps of the browser in which it began.
#[derive(Debug)]
pub(crate) struct Binding {
    /// For the column of the flow.
    pub(crate) column: String,
    /// For the answer.
    pub(crate) cookie: Option<HeaderValue>,
}

/// Binds a flow to the browser by a cookie, and to the network if `by_network`.
pub(crate) fn bind(
    auth: &Auth,
    redirect_uri: &str,
    browser: &Browser,
    answers_with_form: bool,
    by_cookie: bool,
    by_network: Option<&RequestInfo>,
) -> Binding {
    let mut parts = Vec::new();
    let mut cookie = None;
    if by_cookie {
        let (name, policy) = match (redirect_uri.starts_with("https:"), answers_with_form) {
            (true, true) => (SECURE_FORM, "SameSite=None; Secure"),
            (true, false) => (SECURE, "SameSite=Lax; Secure"),
            (false, _) => (PLAIN, "SameSite=Lax"),
        };
        // The same key for flows in several tabs
        let key = browser.key(name).map_or_else(|| random::base64url(32), str::to_owned);
        let age = auth.settings().flow_state_expiry.as_secs();
        parts.push(format!("browser:{}", fingerprint(name, &key)));
        cookie = HeaderValue::from_str(&format!("{name}={key}; Path=/; Max-Age={age}; HttpOnly; {policy}")).ok();
    }
    if let Some(request) = by_network {
        parts.push(format!("network:{}", network(request)));
    }
    Binding { column: parts.join(" "), cookie }
}

fn network(request: &RequestInfo) -> &str {
    request.network.as_deref().unwrap_or("unknown")
}

/// Returns whether a request comes from where the flow with this column began. A flow that is bound to
/// nothing cannot be finished.
pub(crate) fn is_same(column: Option<&str>, browser: &Browser, request: &RequestInfo) -> bool {
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

/// The address at which a browser repeats, as a navigation of its own, the form that a provider sent
/// it with: then it sends its cookies. `None`: the form is too long.
pub(crate) fn repeated(fields: &[(String, String)]) -> Option<String> {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    (query.len() <= MAX_ANSWER).then(|| format!("?{query}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn browser(cookie: &str) -> Browser {
        let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(cookie).unwrap())]);
        Browser::of(&headers, &Uri::from_static("/"))
    }

    #[test]
    fn only_keys_of_this_room_are_read() {
        let key = random::base64url(32);
        assert_eq!(key.len(), KEY_CHARACTERS);
        let with = |name: &str| browser(&format!("a=b; {name}={key}; c"));
        assert_eq!(with(SECURE).key(SECURE), Some(key.as_str()));
        assert!(with("other").is_unknown());
        assert!(browser(&format!("{PLAIN}={}", &key[1..])).is_unknown());
        assert!(browser(&format!("{PLAIN}={}\"", &key[1..])).is_unknown());
    }

    #[test]
    fn the_name_of_a_cookie_is_part_of_its_proof() {
        let key = random::base64url(32);
        assert_ne!(fingerprint(SECURE, &key), fingerprint(PLAIN, &key));
    }

    #[test]
    fn authorities_are_compared_with_the_usual_port() {
        let at = |url: &str, authority: &str| is_at(&Url::parse(url).unwrap(), authority);
        assert!(at("https://api.example.com/auth/v1/callback", "api.example.com"));
        assert!(at("https://api.example.com/auth/v1/callback", "api.example.com:443"));
        assert!(!at("https://api.example.com/auth/v1/callback", "api.example.com:80"));
        assert!(at("http://127.0.0.1:54321/auth/v1/callback", "127.0.0.1:54321"));
        assert!(!at("http://127.0.0.1:54321/auth/v1/callback", "localhost:54321"));
    }
}
