//! The address of the data API, as the document shows it.

use http::Uri;

/// The three parts of an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// `host:port`
    pub host: String,
    /// The base path, without a trailing slash unless it is the root.
    pub path: String,
}

impl ServerAddress {
    /// Parses an address. A text that is no address becomes the host, so that the document shows
    /// the configured value.
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        let Some((uri, host)) = text.parse::<Uri>().ok().and_then(|uri| Some((uri.clone(), uri.host()?.to_owned())))
        else {
            return Self { scheme: "http", host: text.to_owned(), path: "/".into() };
        };
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let path = uri.path().trim_end_matches('/');
        Self {
            scheme: if is_secure { "https" } else { "http" },
            host: format!("{host}:{port}"),
            path: if path.is_empty() { "/".into() } else { path.to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_three_parts() {
        for (text, scheme, host, path) in [
            ("http://127.0.0.1:54321/rest/v1", "http", "127.0.0.1:54321", "/rest/v1"),
            ("https://example.com/api/", "https", "example.com:443", "/api"),
            ("http://example.com", "http", "example.com:80", "/"),
            ("http://[::1]:3000/", "http", "[::1]:3000", "/"),
            ("no address", "http", "no address", "/"),
        ] {
            let expected = ServerAddress { scheme, host: host.into(), path: path.into() };
            assert_eq!(ServerAddress::of(text), expected, "{text}");
        }
    }
}
