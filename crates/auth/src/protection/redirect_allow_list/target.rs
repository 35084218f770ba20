//! Redirect targets: URLs that every parser reads alike.

use std::net::IpAddr;

use url::Url;

/// Longest target that is parsed.
const MAX_TARGET_BYTES: usize = 8 * 1024;

/// A URL that browsers and this server read alike.
#[derive(Debug, Clone)]
pub(super) struct RedirectTarget {
    scheme: String,
    host: String,
    /// The port as written. A default port differs from a missing one.
    port: Option<String>,
}

impl RedirectTarget {
    /// Parses a URL. `None`: parsers could read it differently, or no browser may be sent to it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_suspicious = |c: char| c == '\\' || c.is_control() || c.is_whitespace();
        if text.is_empty() || text.len() > MAX_TARGET_BYTES || text.contains(is_suspicious) {
            return None;
        }
        let url = Url::parse(text).ok()?;
        let scheme = url.scheme().to_owned();
        // These run code or read files; no pattern may allow them by accident
        if ["javascript", "data", "vbscript", "file", "blob", "about", "view-source"].contains(&scheme.as_str()) {
            return None;
        }
        let rest = &text[scheme.len() + 1..];
        let Some(after) = rest.strip_prefix("//") else {
            // A web URL must have an authority; browsers find one where other parsers see none
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
        // The host must be the one that a browser reads
        let browser_host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let agrees = match (target.host.parse::<IpAddr>(), browser_host.parse::<IpAddr>()) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            _ => target.host == browser_host,
        };
        agrees.then_some(target)
    }

    /// Returns the host in lower case, without brackets; empty for URLs without an authority.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn is_web(&self) -> bool {
        self.scheme == "http" || self.scheme == "https"
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    pub(super) fn is_local(&self) -> bool {
        self.host == "localhost"
            || self.host.ends_with(".localhost")
            || self.host == "127.0.0.1"
            || self.address().is_some_and(|address| address.is_unspecified())
            || self.host.parse() == Ok(std::net::Ipv6Addr::LOCALHOST)
    }

    /// Returns true for every name and address of this machine.
    pub(super) fn is_this_machine(&self) -> bool {
        self.is_local() || self.address().is_some_and(|address| address.is_loopback())
    }

    pub(super) fn port(&self) -> Option<u16> {
        match &self.port {
            Some(port) if !port.is_empty() => port.parse().ok(),
            _ => Some(if self.scheme == "https" { 443 } else { 80 }),
        }
    }

    /// Returns true for 80 and 443: http is usually redirected to https.
    pub(super) fn has_web_port(&self) -> bool {
        matches!(self.port(), Some(80 | 443))
    }

    pub(super) fn is_same_origin(&self, site: &Self) -> bool {
        !self.host.is_empty()
            && self.scheme == site.scheme
            && self.host == site.host
            && (self.port == site.port || self.is_local())
    }
}

/// Returns true if a host matches `^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`.
pub(super) fn is_plain_host(host: &str) -> bool {
    let bytes = host.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(byte))
}
