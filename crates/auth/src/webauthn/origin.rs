//! The origins whose pages and apps may use the credentials of a relying party.

use url::{Origin, Url};

/// An origin that a relying party accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RelyingPartyOrigin {
    /// A page, by scheme, host and port.
    Page(Origin),
    /// Pages of `http://localhost` at any port. Only for development: browsers let no other machine
    /// use that name.
    AnyPortOfLocalhost,
    /// An app, by its text: `android:apk-key-hash:…`.
    App(String),
}

impl RelyingPartyOrigin {
    /// Reads an origin as the configuration has it. A slash at the end does not matter.
    pub fn parse(text: &str) -> Self {
        match page_origin(text) {
            Some(origin) => Self::Page(origin),
            None => Self::App(text.to_owned()),
        }
    }

    /// Returns true if this is the origin that a browser reports.
    pub fn matches(&self, reported: &str) -> bool {
        match self {
            Self::Page(origin) => page_origin(reported).is_some_and(|reported| reported == *origin),
            Self::AnyPortOfLocalhost => {
                matches!(page_origin(reported), Some(Origin::Tuple(scheme, url::Host::Domain(name), _))
                    if scheme == "http" && name == "localhost")
            }
            Self::App(text) => page_origin(reported).is_none() && text == reported,
        }
    }
}

/// Returns the origin of a page. `None` for a text that is not a bare `http` or `https` origin.
fn page_origin(text: &str) -> Option<Origin> {
    let url = Url::parse(text).ok()?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    (is_bare && matches!(url.scheme(), "http" | "https")).then(|| url.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_by_scheme_host_and_port() {
        let matches = |allowed: &str, reported: &str| RelyingPartyOrigin::parse(allowed).matches(reported);
        assert!(matches("https://app.example", "https://APP.example"));
        assert!(matches("https://app.example/", "https://app.example:443"));
        assert!(matches("android:apk-key-hash:abc", "android:apk-key-hash:abc"));
        for (allowed, reported) in [
            ("https://app.example", "http://app.example"),
            ("https://app.example", "https://app.example:8443"),
            ("https://app.example", "https://app.example.evil.example"),
            ("https://app.example", "https://evil@app.example"),
            ("https://app.example", "https://app.example/path"),
            ("https://app.example", ""),
            ("android:apk-key-hash:abc", "android:apk-key-hash:ABC"),
        ] {
            assert!(!matches(allowed, reported), "{allowed} {reported}");
        }
    }

    #[test]
    fn any_port_of_localhost_is_that_name_only() {
        let localhost = RelyingPartyOrigin::AnyPortOfLocalhost;
        for reported in ["http://localhost", "http://localhost:5173", "http://LOCALHOST:54321"] {
            assert!(localhost.matches(reported), "{reported}");
        }
        for reported in [
            "https://localhost",
            "http://127.0.0.1:5173",
            "http://app.localhost",
            "http://localhost.evil.example",
            "http://user@localhost",
            "localhost",
        ] {
            assert!(!localhost.matches(reported), "{reported}");
        }
    }
}
