//! Where a request comes from, and which `X-Forwarded-*` headers are believed.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Headers by which proxies say what they know. From anybody else they are lies.
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

/// Who the client is, as far as can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    /// Where it is.
    pub address: IpAddr,
    /// A trusted proxy said so; else it is who we talk to.
    is_told: bool,
    /// Whom we talk to is a trusted proxy.
    pub by_proxy: bool,
}

impl Client {
    /// Finds the client of a request that came from `peer`, and removes proxy headers that no trusted proxy wrote.
    pub fn of(headers: &mut HeaderMap, peer: SocketAddr, trusted: &[IpNet]) -> Self {
        let peer = peer.ip().to_canonical();
        let by_proxy = is_trusted(peer, trusted);
        let told = if by_proxy {
            client_of(headers, trusted)
        } else {
            // Most have none of them
            if headers.keys().any(|name| PROXY_HEADERS.contains(name)) {
                for name in &PROXY_HEADERS {
                    headers.remove(name);
                }
            }
            None
        };
        Self { address: told.unwrap_or(peer), is_told: told.is_some(), by_proxy }
    }

    /// Puts the address, as the only entry, into `X-Forwarded-For` and `X-Real-IP`.
    ///
    /// `X-Real-IP` of a trusted proxy stays when the proxy says nothing else of the client: services may go by it.
    pub fn write_to(self, headers: &mut HeaderMap) {
        let Ok(value) = HeaderValue::try_from(self.address.to_string()) else { return };
        if self.is_told || !headers.contains_key(&REAL_IP) {
            headers.insert(REAL_IP, value.clone());
        }
        headers.insert(FORWARDED_FOR, value);
    }
}

/// The last address of the chain that is not one of our proxies: what stands before it, its owner may have made up.
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

/// An address, perhaps with a port.
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

    fn of(headers: &mut HeaderMap, peer: &str, trusted: &[&str]) -> Client {
        let trusted: Vec<_> = trusted.iter().map(|network| network.parse().unwrap()).collect();
        Client::of(headers, SocketAddr::new(peer.parse().unwrap(), 1), &trusted)
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
    fn only_a_trusted_proxy_is_believed() {
        assert_eq!(client("192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("::ffff:10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn what_stands_before_the_client_in_the_chain_is_made_up() {
        assert_eq!(client("10.0.0.1", &["1.1.1.1, 198.51.100.7, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "198.51.100.7:5000"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, nonsense, 10.2.3.4"]), "10.2.3.4");
        assert_eq!(client("::1", &["[2001:db8::1]:443"]), "2001:db8::1");
    }

    #[test]
    fn headers_of_strangers_are_removed() {
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
    fn the_real_address_is_the_chain_s_and_without_one_the_proxy_s_word_or_the_peer() {
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
        assert_eq!(real("192.0.2.1", &["198.51.100.7"], &["198.51.100.7"]), "192.0.2.1", "a stranger's word");
        assert_eq!(real("10.0.0.1", &["198.51.100.7"], &[]), "198.51.100.7");
        assert_eq!(real("10.0.0.1", &["198.51.100.7"], &["203.0.113.9"]), "198.51.100.7", "passed through by a proxy");
        assert_eq!(real("10.0.0.1", &[], &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(real("10.0.0.1", &[], &[]), "10.0.0.1");
    }

    proptest! {
        #[test]
        fn whatever_a_chain_says_the_client_is_an_address(chain in "[ -~]{0,60}") {
            let address = client("10.0.0.1", &[&chain]);
            prop_assert!(address.parse::<IpAddr>().is_ok());
        }
    }
}
