//! The redirect allow list: the URLs that a browser may be sent to after a sign-in.
//!
//! A target is allowed when it belongs to the site, is a loopback address, or matches a pattern of
//! the list. Every other target is ignored silently, so that `redirect_to` is never an open
//! redirect. A text that two parsers could read differently (backslashes, control characters, user
//! names, percent-encoded hosts) is never allowed. Neither is a path of the server's own API, even
//! if a pattern matches: codes and tokens would be sent to a service that did not request them, and
//! one sign-in could start the next.

mod api_paths;
mod pattern;
mod target;

use api_paths::ApiPaths;
use pattern::RedirectPattern;
use target::{RedirectTarget, is_plain_host};

use crate::settings::SettingsError;

/// The site, and the patterns of further targets.
#[derive(Debug, Clone)]
pub struct RedirectAllowList {
    site_url: String,
    site: RedirectTarget,
    patterns: Vec<RedirectPattern>,
    api: Option<ApiPaths>,
}

impl RedirectAllowList {
    /// Parses the patterns.
    ///
    /// # Errors
    /// [`SettingsError`] for a site URL that is no URL and for a malformed pattern.
    pub fn new(site_url: &str, patterns: &[String]) -> Result<Self, SettingsError> {
        let site = RedirectTarget::parse(site_url).ok_or_else(|| SettingsError::Url {
            name: "site_url",
            value: site_url.to_owned(),
            reason: "it must be an absolute URL with a plain host name".to_owned(),
        })?;
        let patterns = patterns
            .iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
            .map(|text| {
                RedirectPattern::parse(text).map_err(|reason| SettingsError::RedirectPattern {
                    pattern: text.to_owned(),
                    reason: reason.to_owned(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { site_url: site_url.to_owned(), site, patterns, api: None })
    }

    /// Excludes the paths of the API whose account service has the URL `external_url`
    /// (`https://app.example.com/auth/v1`).
    #[must_use]
    pub fn excluding_api(self, external_url: &str) -> Self {
        Self { api: ApiPaths::new(external_url), ..self }
    }

    /// Returns the site: the target of requests that have no other one.
    pub fn site_url(&self) -> &str {
        &self.site_url
    }

    /// Returns true if a browser may be sent to `url`.
    pub fn allows(&self, url: &str) -> bool {
        let Some(target) = RedirectTarget::parse(url) else {
            return false;
        };
        if self.api.as_ref().is_some_and(|api| api.contains(&target, url)) {
            return false;
        }
        if target.is_same_origin(&self.site) {
            return true;
        }
        if target.host().bytes().all(|byte| byte.is_ascii_digit()) && !target.host().is_empty() {
            return false;
        }
        if let Some(address) = target.address() {
            return address.is_loopback();
        }
        if target.is_web() && !is_plain_host(target.host()) {
            return false;
        }
        let without_fragment: Vec<char> = url.split('#').next().unwrap_or_default().chars().collect();
        self.patterns.iter().any(|pattern| pattern.matches(&without_fragment))
    }

    /// Returns the target of a request: the requested one if allowed, else the referring page if
    /// allowed, else the site.
    pub fn resolve(&self, requested: Option<&str>, referer: Option<&str>) -> String {
        if let Some(rejected) = requested.filter(|url| !self.allows(url)) {
            // The client sees no error, so that the log must show the developer why. Without the
            // query, which may contain secrets
            let shown: String = rejected
                .split(['?', '#'])
                .next()
                .unwrap_or_default()
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect();
            tracing::info!(redirect_to = shown, "a redirect target is not in the redirect allow list and is ignored");
        }
        [requested, referer].into_iter().flatten().find(|url| self.allows(url)).unwrap_or(&self.site_url).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::net::IpAddr;

    use url::Url;

    use super::*;

    fn list(site: &str, patterns: &[&str]) -> RedirectAllowList {
        RedirectAllowList::new(site, &patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn patterns_match_the_documented_examples() {
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
            if let Ok(pattern) = RedirectPattern::parse(&pattern) {
                pattern.matches(&text.chars().collect::<Vec<_>>());
            }
            list("https://a.example", &["**"]).allows(&text);
        }

        #[test]
        fn an_allowed_target_leads_a_browser_to_an_allowed_host(url in "https?:/{1,3}[a-z.@:\\\\/%0-9-]{0,20}(example\\.com)?[a-z.@:\\\\/]{0,10}") {
            let list = list("https://example.com", &["https://example.com/**", "http://*.example.com/**"]);
            if list.allows(&url) {
                let host = Url::parse(&url).unwrap().host_str().unwrap().to_owned();
                let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
                prop_assert!(loopback || host == "example.com" || host.ends_with(".example.com"), "{} {}", url, host);
            }
        }
    }
}
