//! The client of a request, and the trust in `X-Forwarded-*` headers.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The headers by which proxies report the original request. From other clients they may be forged.
const PROXY_HEADERS: [HeaderName; 9] = [
    FORWARDED_FOR,
    REAL_IP,
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-path"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("sb-forwarded-for"),
    header::FORWARDED,
];

/// The client of a request, as far as it can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestClient {
    /// Its address.
    pub address: IpAddr,
    /// True if a trusted proxy reported the address; else it is the other end of the connection.
    is_reported: bool,
    /// True if the other end of the connection is a trusted proxy.
    pub by_proxy: bool,
}

impl RequestClient {
    /// Determines the client of a request that came from `peer`, and removes proxy headers that no
    /// trusted proxy wrote.
    pub fn of(headers: &mut HeaderMap, peer: SocketAddr, trusted: &[IpNet]) -> Self {
        let peer = peer.ip().to_canonical();
        let by_proxy = is_trusted(peer, trusted);
        let reported = if by_proxy {
            client_of(headers, trusted)
        } else {
            // Most requests have none of them
            if headers.keys().any(|name| PROXY_HEADERS.contains(name)) {
                for name in &PROXY_HEADERS {
                    headers.remove(name);
                }
            }
            None
        };
        Self { address: reported.unwrap_or(peer), is_reported: reported.is_some(), by_proxy }
    }

    /// Sets `X-Forwarded-For` and `X-Real-IP` to the address.
    ///
    /// `X-Real-IP` of a trusted proxy is kept if the proxy reports nothing else of the client:
    /// services may use it.
    pub fn write_to(self, headers: &mut HeaderMap) {
        let Ok(value) = HeaderValue::try_from(self.address.to_string()) else { return };
        if self.is_reported || !headers.contains_key(&REAL_IP) {
            headers.insert(REAL_IP, value.clone());
        }
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Returns the last address of the chain that is not a trusted proxy. Its owner can forge the
/// entries before it.
fn client_of(headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let mut outermost = None;
    for value in headers.get_all(FORWARDED_FOR).iter().rev() {
        for entry in value.to_str().ok()?.rsplit(',') {
            let Some(address) = parse(entry.trim()) else {
                return outermost;
            };
            outermost = Some(address);
            if !is_trusted(address, trusted) {
                return outermost;
            }
        }
    }
    outermost
}

/// Parses an address with or without a port.
fn parse(entry: &str) -> Option<IpAddr> {
    let address = entry.parse::<IpAddr>().or_else(|_| entry.parse::<SocketAddr>().map(|socket| socket.ip())).ok()?;
    Some(address.to_canonical())
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(forwarded: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        headers.insert("x-forwarded-host", HeaderValue::from_static("evil.example"));
        headers
    }

    fn of(headers: &mut HeaderMap, peer: &str, trusted: &[&str]) -> RequestClient {
        let trusted: Vec<_> = trusted.iter().map(|network| network.parse().unwrap()).collect();
        RequestClient::of(headers, SocketAddr::new(peer.parse().unwrap(), 1), &trusted)
    }

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let mut headers = headers(forwarded);
        let client = of(&mut headers, peer, &["10.0.0.0/8", "::1/128"]);
        client.write_to(&mut headers);
        assert_eq!(headers[FORWARDED_FOR], client.address.to_string());
        assert_eq!(headers.get_all(FORWARDED_FOR).iter().count(), 1);
        client.address.to_string()
    }

    #[test]
    fn only_a_trusted_proxy_can_report_the_client() {
        assert_eq!(client("192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("::ffff:10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn entries_before_the_client_in_the_chain_are_ignored() {
        assert_eq!(client("10.0.0.1", &["1.1.1.1, 198.51.100.7, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "198.51.100.7:5000"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, nonsense, 10.2.3.4"]), "10.2.3.4");
        assert_eq!(client("::1", &["[2001:db8::1]:443"]), "2001:db8::1");
    }

    #[test]
    fn proxy_headers_of_untrusted_peers_are_removed() {
        let mut all = headers(&["198.51.100.7"]);
        for name in &PROXY_HEADERS {
            all.append(name, HeaderValue::from_static("a lie"));
        }
        assert!(!of(&mut all, "192.0.2.1", &[]).by_proxy);
        assert!(all.is_empty());
        let mut all = headers(&[]);
        assert!(of(&mut all, "10.0.0.1", &["10.0.0.0/8"]).by_proxy);
        assert!(all.contains_key("x-forwarded-host"));
    }

    #[test]
    fn the_real_address_is_that_of_the_chain_else_of_the_proxy_s_header_else_the_peer() {
        let real = |peer: &str, forwarded: &[&str], said: &[&'static str]| {
            let mut headers = headers(forwarded);
            for value in said {
                headers.append(REAL_IP, HeaderValue::from_static(value));
            }
            of(&mut headers, peer, &["10.0.0.0/8"]).write_to(&mut headers);
            let values: Vec<_> = headers.get_all(REAL_IP).iter().map(|value| value.to_str().unwrap()).collect();
            values.join(" ")
        };
        assert_eq!(real("192.0.2.1", &[], &[]), "192.0.2.1");
        assert_eq!(real("192.0.2.1", &["198.51.100.7"], &["198.51.100.7"]), "192.0.2.1", "not a trusted proxy");
        assert_eq!(real("10.0.0.1", &["198.51.100.7"], &[]), "198.51.100.7");
        assert_eq!(real("10.0.0.1", &["198.51.100.7"], &["203.0.113.9"]), "198.51.100.7", "passed through by a proxy");
        assert_eq!(real("10.0.0.1", &[], &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(real("10.0.0.1", &[], &[]), "10.0.0.1");
    }

    proptest! {
        #[test]
        fn any_chain_gives_an_address(chain in "[ -~]{0,60}") {
            let address = client("10.0.0.1", &[&chain]);
            prop_assert!(address.parse::<IpAddr>().is_ok());
        }
    }
}
