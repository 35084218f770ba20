//! Where a request comes from, and which `X-Forwarded-*` headers are believed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::ConnectInfo;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;
use portico_tokens::ClientAddress;

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

/// Finds the client's address, puts it into the extensions and, as the only entry, into `X-Forwarded-For` and `X-Real-IP`;
/// removes proxy headers that no trusted proxy wrote. `true`: a trusted proxy sent this.
///
/// `X-Real-IP` of a trusted proxy stays when the proxy says nothing else of the client: services may go by it.
pub(crate) fn settle(request: &mut Parts, trusted: &[IpNet]) -> bool {
    let peer = request
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip().to_canonical());
    let by_proxy = is_trusted(peer, trusted);
    let told = if by_proxy {
        client_of(&request.headers, trusted)
    } else {
        for name in &PROXY_HEADERS {
            request.headers.remove(name);
        }
        None
    };
    let client = told.unwrap_or(peer);
    request.extensions.insert(ClientAddress(client));
    if let Ok(value) = HeaderValue::try_from(client.to_string()) {
        if told.is_some() || !request.headers.contains_key(&REAL_IP) {
            request.headers.insert(REAL_IP, value.clone());
        }
        request.headers.insert(FORWARDED_FOR, value);
    }
    by_proxy
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

    fn request(peer: &str, forwarded: &[&str]) -> Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        for value in forwarded {
            parts.headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        parts.headers.insert("x-forwarded-host", HeaderValue::from_static("evil.example"));
        parts
    }

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        let mut parts = request(peer, forwarded);
        settle(&mut parts, &trusted);
        let client = parts.extensions.get::<ClientAddress>().unwrap().0.to_string();
        assert_eq!(parts.headers[FORWARDED_FOR], client);
        assert_eq!(parts.headers.get_all(FORWARDED_FOR).iter().count(), 1);
        client
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
        let mut parts = request("192.0.2.1", &[]);
        assert!(!settle(&mut parts, &[]));
        assert!(!parts.headers.contains_key("x-forwarded-host"));
        let mut parts = request("10.0.0.1", &[]);
        assert!(settle(&mut parts, &["10.0.0.0/8".parse().unwrap()]));
        assert!(parts.headers.contains_key("x-forwarded-host"));
    }

    #[test]
    fn the_real_address_is_the_chain_s_and_without_one_the_proxy_s_word_or_the_peer() {
        let real = |peer: &str, forwarded: &[&str], said: &[&'static str]| {
            let mut parts = request(peer, forwarded);
            for value in said {
                parts.headers.append(REAL_IP, HeaderValue::from_static(value));
            }
            settle(&mut parts, &["10.0.0.0/8".parse().unwrap()]);
            let values: Vec<_> = parts.headers.get_all(REAL_IP).iter().map(|value| value.to_str().unwrap()).collect();
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
