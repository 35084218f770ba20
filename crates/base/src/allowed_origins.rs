//! The origins and host names that a development server accepts.
//!
//! Its keys are published and its port is open to every page in the developer's browser. Two
//! headers keep other websites out, since no page can forge either: `Origin` names the page that
//! sends the request, and `Host` the name under which the port was reached. A website that points
//! its own name at this machine (DNS rebinding) cannot turn that name into an allowed one. Programs
//! send no `Origin`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use url::{Host, Url};

/// The sites whose pages may use a development server, besides those of this machine. Clones share
/// them.
#[derive(Debug, Clone, Default)]
pub struct AllowedOrigins(Arc<[Url]>);

impl AllowedOrigins {
    /// Allows the sites at these addresses. Only scheme (http or https), host and port of an
    /// address count. Another address, such as `myapp://open`, allows nothing, and neither does a
    /// pattern for hosts.
    pub fn new<'a>(sites: impl IntoIterator<Item = &'a str>) -> Self {
        Self(sites.into_iter().filter_map(|site| Url::parse(site).ok()).filter(is_website).collect())
    }

    /// Returns true if an origin, as an `Origin` header names it, is of this machine or of one of
    /// the sites. `null`, which pages without an origin of their own send, is neither.
    pub fn allows(&self, origin: &str) -> bool {
        let Ok(origin) = Url::parse(origin) else { return false };
        is_website(&origin)
            && (origin.host_str().is_some_and(is_of_this_machine)
                || self.0.iter().any(|site| site.origin() == origin.origin()))
    }

    /// Returns true if a host (without port) is a name of this machine or of one of the sites.
    pub fn knows_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        is_of_this_machine(&host) || self.0.iter().any(|site| site.host_str() == Some(&host))
    }

    /// Like [`AllowedOrigins::knows_host`], and also true for hosts that no website can point at
    /// this machine: IP addresses, names without a dot (such as those of containers), and names
    /// below `internal` and `test`, which have no owners (RFC 6761; ICANN reserved `internal` for
    /// private use).
    pub fn is_private_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.knows_host(&host)
            || match Host::parse(&host) {
                Ok(Host::Ipv4(_) | Host::Ipv6(_)) => true,
                Ok(Host::Domain(name)) => {
                    !name.contains('.') || [".internal", ".test"].iter().any(|end| name.ends_with(end))
                }
                Err(_) => false,
            }
    }

    /// Returns true if a request comes from one of the pages or from a program, at a host that no
    /// other website can have. `origin` and `fetch_site` are the headers `Origin` and
    /// `Sec-Fetch-Site`, `host` is without a port.
    pub fn admits_request(&self, origin: Option<&str>, fetch_site: Option<&str>, host: Option<&str>) -> bool {
        let is_of_page = match origin {
            Some(origin) => self.allows(origin),
            // Scripts, images and links of other websites arrive without an origin, but with this
            // header
            None => fetch_site != Some("cross-site"),
        };
        is_of_page && host.is_none_or(|host| self.is_private_host(host))
    }
}

fn is_website(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Returns true for names that lead to this machine whatever the DNS server returns: the loopback
/// addresses and `localhost` (RFC 6761, 6.3).
fn is_of_this_machine(host: &str) -> bool {
    match Host::parse(host) {
        Ok(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Ok(Host::Ipv4(address)) => Ipv4Addr::is_loopback(&address),
        Ok(Host::Ipv6(address)) => Ipv6Addr::is_loopback(&address),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_known_and_others_are_not() {
        for own in ["localhost", "shop.localhost", "127.0.0.1", "127.8.0.1", "[::1]"] {
            assert!(is_of_this_machine(own), "{own}");
        }
        for other in
            ["", "example.com", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1", "0.0.0.0", "[::]"]
        {
            assert!(!is_of_this_machine(other), "{other}");
        }
    }

    #[test]
    fn a_site_is_allowed_at_exactly_its_origin() {
        let sites = ["https://app.example.com/start", "no address", "myapp://open", "https://*.example.org/**"];
        let origins = AllowedOrigins::new(sites);
        for allowed in ["https://app.example.com", "http://localhost:3000", "http://[::1]:5173", "https://127.0.0.1"] {
            assert!(origins.allows(allowed), "{allowed}");
        }
        for other in [
            "null",
            "",
            "https://example.com",
            "http://app.example.com",
            "https://app.example.com:8443",
            "https://app.example.com.evil.test",
            "https://a.example.org",
            "myapp://open",
            "chrome-extension://localhost",
        ] {
            assert!(!origins.allows(other), "{other}");
        }
        assert!(origins.knows_host("App.example.com") && !origins.knows_host("example.com"));
    }

    #[test]
    fn a_host_that_no_website_can_have_is_private() {
        let origins = AllowedOrigins::new(["https://app.example.com"]);
        for private in
            ["localhost", "app.example.com", "10.0.0.1", "[fd00::1]", "portico", "host.docker.internal", "shop.test"]
        {
            assert!(origins.is_private_host(private), "{private}");
        }
        for public in ["evil.example", "localhost.evil.example", "internal.evil.example", "evil.example.", "", "a b"] {
            assert!(!origins.is_private_host(public), "{public}");
        }
    }
}
