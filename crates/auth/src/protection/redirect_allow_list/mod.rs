//! Where people may be sent back to: the redirect allow-list (auth-core 17).
//!
//! A target is accepted when it belongs to the site, is a loopback address, or matches a pattern of the list. Everything
//! else is ignored silently, so that `redirect_to` is never an open redirect. A text that two parsers could read
//! differently (backslashes, control characters, user names, percent-encoded hosts) is never accepted; neither is a path of
//! the server's own API, whatever the list says: codes and tokens would go to a service that did not ask for them, and a
//! sign-in could lead on into the next one.

use std::net::IpAddr;

use url::Url;

use crate::settings::SettingsError;

/// Longer targets are not looked at.
const MAX_TARGET_BYTES: usize = 8 * 1024;
/// More characters in one pattern are a mistake.
const MAX_PATTERN_CHARS: usize = 2048;

/// The site and the patterns of further targets.
#[derive(Debug, Clone)]
pub struct RedirectAllowList {
    site_url: String,
    site: Target,
    patterns: Vec<Pattern>,
    api: Option<Api>,
}

impl RedirectAllowList {
    /// Reads the patterns.
    ///
    /// # Errors
    /// [`SettingsError`] for a site URL that is no URL and for a malformed pattern.
    pub fn new(site_url: &str, patterns: &[String]) -> Result<Self, SettingsError> {
        let site = Target::parse(site_url).ok_or_else(|| SettingsError::Url {
            name: "site_url",
            value: site_url.to_owned(),
            reason: "it must be an absolute URL with a plain host name".to_owned(),
        })?;
        let patterns = patterns
            .iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
            .map(|text| {
                Pattern::parse(text).map_err(|reason| SettingsError::RedirectPattern {
                    pattern: text.to_owned(),
                    reason: reason.to_owned(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { site_url: site_url.to_owned(), site, patterns, api: None })
    }

    /// Closes the paths of the API in which the account service is at `external_url` (`https://app.example.com/auth/v1`).
    #[must_use]
    pub fn excluding_api(self, external_url: &str) -> Self {
        Self { api: Api::around(external_url), ..self }
    }

    /// The site: where people go when nothing better was asked for.
    pub fn site_url(&self) -> &str {
        &self.site_url
    }

    /// Whether people may be sent to `url`.
    pub fn allows(&self, url: &str) -> bool {
        let Some(target) = Target::parse(url) else {
            return false;
        };
        if self.api.as_ref().is_some_and(|api| api.holds(&target, url)) {
            return false;
        }
        if target.is_same_place(&self.site) {
            return true;
        }
        if target.host.bytes().all(|byte| byte.is_ascii_digit()) && !target.host.is_empty() {
            return false;
        }
        if let Some(address) = target.address() {
            return address.is_loopback();
        }
        if target.is_web() && !is_plain_host(&target.host) {
            return false;
        }
        let without_fragment: Vec<char> = url.split('#').next().unwrap_or_default().chars().collect();
        self.patterns.iter().any(|pattern| pattern.matches(&without_fragment))
    }

    /// The target of a request: what it asks for if allowed, else the page it came from if allowed, else the site.
    pub fn resolve(&self, requested: Option<&str>, referer: Option<&str>) -> String {
        if let Some(refused) = requested.filter(|url| !self.allows(url)) {
            // Wire contract: the person is not told. Whoever sets an application up must be; without the query, which may
            // hold anything
            let shown: String = refused
                .split(['?', '#'])
                .next()
                .unwrap_or_default()
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect();
            tracing::info!(redirect_to = shown, "A redirect target is not in the allow list and is ignored");
        }
        [requested, referer].into_iter().flatten().find(|url| self.allows(url)).unwrap_or(&self.site_url).to_owned()
    }
}

/// A URL as every parser reads it, or nothing.
#[derive(Debug, Clone)]
struct Target {
    scheme: String,
    /// Lower-case, without brackets; empty for URLs without an authority.
    host: String,
    /// As written; the default port of a scheme is not the same as none.
    port: Option<String>,
}

impl Target {
    fn parse(text: &str) -> Option<Self> {
        let suspicious = |c: char| c == '\\' || c.is_control() || c.is_whitespace();
        if text.is_empty() || text.len() > MAX_TARGET_BYTES || text.contains(suspicious) {
            return None;
        }
        let url = Url::parse(text).ok()?;
        let scheme = url.scheme().to_owned();
        // These run code or read files instead of leading somewhere; no pattern may allow them by accident
        if ["javascript", "data", "vbscript", "file", "blob", "about", "view-source"].contains(&scheme.as_str()) {
            return None;
        }
        let rest = &text[scheme.len() + 1..];
        let Some(after) = rest.strip_prefix("//") else {
            // A web address has an authority; browsers would find one where others see none
            let is_web = scheme == "http" || scheme == "https";
            return (!is_web).then_some(Self { scheme, host: String::new(), port: None });
        };
        let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return None;
        }
        let (host, port) = if authority.starts_with('[') {
            let end = authority.find(']')?;
            let port = &authority[end + 1..];
            (&authority[1..end], if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        } else {
            match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            }
        };
        let port_is_number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
        if port.is_some_and(|port| !port_is_number(port)) {
            return None;
        }
        let host = host.to_ascii_lowercase();
        let target = Self { scheme, host, port: port.map(str::to_owned) };
        // The browser's reading of the host must be ours
        let browser_host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let agrees = match (target.host.parse::<IpAddr>(), browser_host.parse::<IpAddr>()) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            _ => target.host == browser_host,
        };
        agrees.then_some(target)
    }

    fn is_web(&self) -> bool {
        self.scheme == "http" || self.scheme == "https"
    }

    fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    fn is_local(&self) -> bool {
        self.host == "localhost"
            || self.host.ends_with(".localhost")
            || self.host == "127.0.0.1"
            || self.address().is_some_and(|address| address.is_unspecified())
            || self.host.parse() == Ok(std::net::Ipv6Addr::LOCALHOST)
    }

    /// Every name of this machine, also those that people may be sent to under any name.
    fn is_this_machine(&self) -> bool {
        self.is_local() || self.address().is_some_and(|address| address.is_loopback())
    }

    fn port(&self) -> Option<u16> {
        match &self.port {
            Some(port) if !port.is_empty() => port.parse().ok(),
            _ => Some(if self.scheme == "https" { 443 } else { 80 }),
        }
    }

    /// A port that browsers need not be given: http is usually led on to https.
    fn has_usual_port(&self) -> bool {
        matches!(self.port(), Some(80 | 443))
    }

    fn is_same_place(&self, site: &Self) -> bool {
        !self.host.is_empty()
            && self.scheme == site.scheme
            && self.host == site.host
            && (self.port == site.port || self.is_local())
    }
}

/// The place of the server's own services.
#[derive(Debug, Clone)]
struct Api {
    place: Target,
    /// The part of a path before the services' paths, with `/` at its end.
    base: String,
}

impl Api {
    fn around(external_url: &str) -> Option<Self> {
        let place = Target::parse(external_url).filter(Target::is_web)?;
        let path = Url::parse(external_url).ok()?.path().trim_end_matches('/').to_owned();
        Some(Self { place, base: format!("{}/", path.strip_suffix("/auth/v1").unwrap_or_default()) })
    }

    /// Returns true if the target is a path of the API, or may be taken for one.
    fn holds(&self, target: &Target, url: &str) -> bool {
        let is_here = target.is_web()
            && (target.host == self.place.host || (target.is_this_machine() && self.place.is_this_machine()))
            && (target.port() == self.place.port() || (target.has_usual_port() && self.place.has_usual_port()));
        // As browsers send it: without dot segments
        let Some(path) = Url::parse(url).ok().filter(|_| is_here).map(|url| url.path().to_owned()) else {
            return false;
        };
        let path = percent_encoding::percent_decode_str(&path).decode_utf8_lossy().to_lowercase();
        let below_base = path.strip_prefix(&self.base.to_lowercase());
        below_base.into_iter().chain([&*path]).any(is_service_path)
    }
}

/// `auth/v1/…`, `/rest-admin/v1`, `portico/google/…`: a segment and a version, or a name that is a service's for itself.
fn is_service_path(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let (first, second) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    let is_version = second
        .strip_prefix('v')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    is_version || matches!(first, "portico" | "pg" | "mcp" | ".well-known")
}

/// `^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`
fn is_plain_host(host: &str) -> bool {
    let bytes = host.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(byte))
}

/// One pattern of the list, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// `*`: a run of non-separators
    Run,
    /// `**`: a run of anything
    AnyRun,
    /// `?`: one non-separator
    One,
    /// `[...]`
    Class {
        negated: bool,
        members: Vec<(char, char)>,
    },
    /// `{...}`
    Either(Vec<Vec<Token>>),
}

fn is_separator(c: char) -> bool {
    c == '.' || c == '/'
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let chars: Vec<char> = text.chars().collect();
        if chars.len() > MAX_PATTERN_CHARS {
            return Err("the pattern is too long");
        }
        let mut at = 0;
        let tokens = parse_tokens(&chars, &mut at, 0)?;
        if at < chars.len() {
            return Err("there is a } without {");
        }
        Ok(Self(tokens))
    }

    fn matches(&self, text: &[char]) -> bool {
        let mut positions = vec![false; text.len() + 1];
        positions[0] = true;
        advance(&self.0, text, positions)[text.len()]
    }
}

/// Reads tokens to the end, or to the `,` or `}` that ends an alternative.
fn parse_tokens(chars: &[char], at: &mut usize, depth: usize) -> Result<Vec<Token>, &'static str> {
    if depth > 8 {
        return Err("alternatives are nested too deeply");
    }
    let mut tokens = Vec::new();
    while let Some(&c) = chars.get(*at) {
        match c {
            '}' if depth > 0 => break,
            ',' if depth > 0 => break,
            '}' => break,
            '\\' => {
                let literal = chars.get(*at + 1).ok_or("there is nothing after the last \\")?;
                tokens.push(Token::Literal(*literal));
                *at += 2;
            }
            '*' => {
                let mut stars = 0;
                while chars.get(*at) == Some(&'*') {
                    stars += 1;
                    *at += 1;
                }
                tokens.push(if stars > 1 { Token::AnyRun } else { Token::Run });
            }
            '?' => {
                tokens.push(Token::One);
                *at += 1;
            }
            '[' => {
                *at += 1;
                tokens.push(parse_class(chars, at)?);
            }
            '{' => {
                let mut alternatives = Vec::new();
                loop {
                    *at += 1;
                    alternatives.push(parse_tokens(chars, at, depth + 1)?);
                    match chars.get(*at) {
                        Some(',') => {}
                        Some('}') => break,
                        _ => return Err("there is a { without }"),
                    }
                }
                *at += 1;
                tokens.push(Token::Either(alternatives));
            }
            other => {
                tokens.push(Token::Literal(other));
                *at += 1;
            }
        }
    }
    Ok(tokens)
}

fn parse_class(chars: &[char], at: &mut usize) -> Result<Token, &'static str> {
    let negated = chars.get(*at) == Some(&'!');
    *at += usize::from(negated);
    let mut members = Vec::new();
    loop {
        let mut c = *chars.get(*at).ok_or("there is a [ without ]")?;
        *at += 1;
        if c == ']' {
            break;
        }
        if c == '\\' {
            c = *chars.get(*at).ok_or("there is nothing after the last \\")?;
            *at += 1;
        }
        if chars.get(*at) == Some(&'-') && chars.get(*at + 1).is_some_and(|next| *next != ']') {
            let end = chars[*at + 1];
            if end < c {
                return Err("a range in [ ] runs backwards");
            }
            members.push((c, end));
            *at += 2;
        } else {
            members.push((c, c));
        }
    }
    if members.is_empty() {
        return Err("[ ] is empty");
    }
    Ok(Token::Class { negated, members })
}

/// From every position in the set, where the tokens can end. Work is the product of the two lengths, never more.
fn advance(tokens: &[Token], text: &[char], mut positions: Vec<bool>) -> Vec<bool> {
    for token in tokens {
        let step = |accepts: &dyn Fn(char) -> bool| {
            let mut next = vec![false; text.len() + 1];
            for (at, c) in text.iter().enumerate() {
                next[at + 1] = positions[at] && accepts(*c);
            }
            next
        };
        positions = match token {
            Token::Literal(literal) => step(&|c| c == *literal),
            Token::One => step(&|c| !is_separator(c)),
            Token::Class { negated, members } => {
                step(&|c| members.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated)
            }
            Token::Run | Token::AnyRun => {
                let crosses = *token == Token::AnyRun;
                for (at, c) in text.iter().enumerate() {
                    positions[at + 1] |= positions[at] && (crosses || !is_separator(*c));
                }
                positions
            }
            Token::Either(alternatives) => {
                let mut union = vec![false; text.len() + 1];
                for alternative in alternatives {
                    for (at, reached) in advance(alternative, text, positions.clone()).into_iter().enumerate() {
                        union[at] |= reached;
                    }
                }
                union
            }
        };
        if !positions.contains(&true) {
            break;
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(site: &str, patterns: &[&str]) -> RedirectAllowList {
        RedirectAllowList::new(site, &patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn examples_of_the_contract() {
        for (pattern, url, expected) in [
            ("https://*.example.com/**", "https://a.example.com/x/y?z=1", true),
            ("https://*.example.com/**", "https://a.b.example.com/", false),
            ("http://localhost:3000/**", "http://localhost:3000/", true),
            ("http://localhost:3000/**", "http://localhost:3001/", false),
            ("com.example.app://**", "com.example.app://callback", true),
            ("com.example.app://**", "com.example.apps://callback", false),
            ("https://app.example.com/cb", "https://app.example.com/cb", true),
            ("https://app.example.com/cb", "https://app.example.com/cb?x=1", false),
            ("https://app.example.com/cb", "https://app.example.com/cb/", false),
            ("https://app.example.com/cb", "https://app.example.com/cb#fragment", true),
            ("https://app.example.com/cb**", "https://app.example.com/cb?x=1", true),
            ("https://app.example.com/cb\\?x=1", "https://app.example.com/cb?x=1", true),
            ("https://app.example.com/cb?x=1", "https://app.example.com/cb?x=1", true),
            ("https://{a,b*}.example.com/", "https://a.example.com/", true),
            ("https://{a,b*}.example.com/", "https://beta.example.com/", true),
            ("https://{a,b*}.example.com/", "https://c.example.com/", false),
            ("https://x[0-9].example.com/", "https://x5.example.com/", true),
            ("https://x[!0-9].example.com/", "https://x5.example.com/", false),
            ("https://x[abc].example.com/", "https://xb.example.com/", true),
            ("https://EXAMPLE.com/", "https://example.com/", false),
        ] {
            assert_eq!(list("https://site.example.org", &[pattern]).allows(url), expected, "{pattern} {url}");
        }
    }

    #[test]
    fn the_site_is_allowed_with_any_path() {
        let site = list("https://app.example.com", &[]);
        for (url, expected) in [
            ("https://app.example.com", true),
            ("https://app.example.com/any/path?x#y", true),
            ("HTTPS://APP.example.com/", true),
            ("http://app.example.com/", false),
            ("https://app.example.com:443/", false),
            ("https://app.example.com:8443/", false),
            ("https://app.example.com.evil.example/", false),
            ("https://app.example.com@evil.example/", false),
            ("https://evil.example\\@app.example.com/", false),
            ("https:app.example.com", false),
            ("https:///app.example.com", false),
            ("//app.example.com/", false),
            ("/path", false),
            ("", false),
            ("https://app.example.com/\r\nSet-Cookie: a=b", false),
            ("https://app.example.com/\t", false),
            ("https://app%2eexample.com/", false),
        ] {
            assert_eq!(site.allows(url), expected, "{url:?}");
        }
        let local = list("http://localhost:3000", &[]);
        assert!(local.allows("http://localhost:5173/x"));
        assert!(local.allows("http://127.0.0.1:5173/x"));
        assert!(local.allows("http://[::1]:5173/x"));
        assert!(!local.allows("https://localhost/"));
    }

    #[test]
    fn numeric_hosts_and_scripts_are_never_allowed_by_a_pattern() {
        let all = list("https://app.example.com", &["**"]);
        assert!(all.allows("https://anything.example/x"));
        for url in [
            "http://2130706433/",
            "http://0x7f000001/",
            "http://127.1/",
            "http://192.168.1.5/",
            "exp://192.168.1.5:8081",
            "javascript:alert(1)",
            "data:text/html,x",
            "https://exa_mple.com/",
            "https://-a.example/",
        ] {
            assert!(!all.allows(url), "{url}");
        }
        assert!(all.allows("http://127.0.0.1:9/x"));
    }

    #[test]
    fn a_target_falls_back_to_the_referer_and_then_to_the_site() {
        let list = list("https://app.example.com", &["https://b.example.com/**"]);
        let good = "https://b.example.com/x";
        assert_eq!(list.resolve(Some(good), None), good);
        assert_eq!(list.resolve(Some("https://evil.example/"), Some(good)), good);
        assert_eq!(
            list.resolve(Some("https://evil.example/"), Some("https://evil.example/")),
            "https://app.example.com"
        );
        assert_eq!(list.resolve(None, None), "https://app.example.com");
    }

    #[test]
    fn no_target_lies_within_the_server_s_own_api() {
        let patterns = ["https://app.example.com/**", "http://localhost:3000/**", "**"];
        for (external_url, origins) in [
            ("https://app.example.com/auth/v1", &["https://app.example.com", "http://APP.example.com:80"][..]),
            (
                "https://app.example.com/backend/auth/v1",
                &["https://app.example.com/backend", "https://app.example.com"],
            ),
            (
                "http://127.0.0.1:54321/auth/v1",
                &["http://127.0.0.1:54321", "http://localhost:54321", "http://[::1]:54321", "http://127.0.0.2:54321"],
            ),
        ] {
            for site in ["https://app.example.com", "http://localhost:3000"] {
                let list = list(site, &patterns).excluding_api(external_url);
                for origin in origins {
                    for path in [
                        "/auth/v1",
                        "/auth/v1/authorize?provider=google",
                        "/rest/v1/rpc/f",
                        "/storage/v1/x",
                        "/functions/v1/f",
                        "/AUTH/V1/x",
                        "/%61uth/v1/x",
                        "/x/../auth/v1/x",
                        "/x/%2e%2e/auth/v1/x",
                        "//auth//v1/x",
                        "/portico/google/authorize",
                        "/.well-known/x",
                    ] {
                        assert!(!list.allows(&format!("{origin}{path}")), "{external_url} {origin}{path}");
                    }
                    assert!(list.allows(&format!("{origin}/app")) || !list.allows(origin), "{origin}");
                }
                // Pages, and other servers' services
                for good in [
                    "https://app.example.com/app/v1x",
                    "https://app.example.com/",
                    "https://other.example/auth/v1/x",
                    "http://localhost:3000/auth/v1/x",
                    "myapp://auth/v1",
                ] {
                    assert!(list.allows(good), "{external_url} {good}");
                }
            }
        }
        let list = list("https://app.example.com", &[]).excluding_api("https://app.example.com/auth/v1");
        let inner = "https://app.example.com/auth/v1/authorize";
        assert_eq!(list.resolve(Some(inner), Some(inner)), "https://app.example.com");
    }

    #[test]
    fn malformed_patterns_are_refused_at_the_start() {
        for pattern in ["[", "[]", "{a", "a}", "x\\", "[z-a]", "{{{{{{{{{{a}}}}}}}}}}"] {
            assert!(RedirectAllowList::new("https://a.example", &[pattern.to_owned()]).is_err(), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn matching_never_panics(pattern in "[a*?.\\[\\]{},!\\\\/-]{0,30}", text in "\\PC{0,60}") {
            if let Ok(pattern) = Pattern::parse(&pattern) {
                pattern.matches(&text.chars().collect::<Vec<_>>());
            }
            list("https://a.example", &["**"]).allows(&text);
        }

        #[test]
        fn an_escaped_text_matches_only_itself(text in "[ -~]{1,30}", other in "[ -~]{1,30}") {
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            let pattern = Pattern::parse(&escaped).unwrap();
            prop_assert!(pattern.matches(&text.chars().collect::<Vec<_>>()));
            prop_assert_eq!(pattern.matches(&other.chars().collect::<Vec<_>>()), text == other);
        }

        #[test]
        fn a_star_never_crosses_a_separator(before in "[a-z./]{0,10}", after in "[a-z./]{0,10}") {
            let text: Vec<char> = format!("{before}{after}").chars().collect();
            let expected = !text.iter().any(|c| is_separator(*c));
            prop_assert_eq!(Pattern::parse("*").unwrap().matches(&text), expected);
            prop_assert!(Pattern::parse("**").unwrap().matches(&text));
        }

        #[test]
        fn what_is_allowed_leads_a_browser_to_an_allowed_host(url in "https?:/{1,3}[a-z.@:\\\\/%0-9-]{0,20}(example\\.com)?[a-z.@:\\\\/]{0,10}") {
            let list = list("https://example.com", &["https://example.com/**", "http://*.example.com/**"]);
            if list.allows(&url) {
                let host = Url::parse(&url).unwrap().host_str().unwrap().to_owned();
                let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
                prop_assert!(loopback || host == "example.com" || host.ends_with(".example.com"), "{} {}", url, host);
            }
        }
    }
}
