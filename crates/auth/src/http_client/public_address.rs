//! Addresses of the public internet, as opposed to those with a special purpose.
//!
//! The networks are those of the IANA registries of special-purpose addresses, for IPv4 and IPv6.
//! All of them are rejected, also the few that the registries call globally reachable (relays and
//! anycast services of the network itself): no identity provider is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Networks of version 4, by their first address and the length of the prefix.
const SPECIAL_V4: [(Ipv4Addr, u32); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this network (RFC 791)
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private use (RFC 1918)
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // shared by customers of a provider (RFC 6598)
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback (RFC 1122)
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link local, metadata of clouds (RFC 3927)
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private use (RFC 1918)
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocol assignments (RFC 6890)
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation (RFC 5737)
    (Ipv4Addr::new(192, 31, 196, 0), 24), // AS112 (RFC 7535)
    (Ipv4Addr::new(192, 52, 193, 0), 24), // multicast tunnels (RFC 7450)
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // 6to4 relays (RFC 7526)
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private use (RFC 1918)
    (Ipv4Addr::new(192, 175, 48, 0), 24), // AS112 (RFC 7534)
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarking (RFC 2544)
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation (RFC 5737)
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation (RFC 5737)
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast (RFC 1112)
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, and the broadcast address (RFC 1112)
];

/// The range of version 6 that is allocated to the public internet so far. Addresses outside it
/// have a special purpose or none: unspecified, loopback, IPv4-compatible and -translated, NAT64
/// (64:ff9b::/96 and 64:ff9b:1::/48), discard (100::/64), segment routing (5f00::/16), unique local
/// (fc00::/7), link local (fe80::/10), site local (fec0::/10), multicast (ff00::/8).
const GLOBAL_UNICAST: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Networks of version 6 within [`GLOBAL_UNICAST`].
const SPECIAL_V6: [(Ipv6Addr, u32); 5] = [
    // Protocol assignments (RFC 2928), with Teredo, benchmarking, ORCHID and drone identifiers
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation (RFC 3849)
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),     // 6to4, for any IPv4 address (RFC 3056)
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112 (RFC 7534)
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),     // documentation (RFC 9637)
];

/// Returns true if an address belongs to the public internet.
#[must_use]
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !SPECIAL_V4.iter().any(|network| is_in_v4(ip, *network)),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(inner) => is_public(inner.into()),
            None => is_in_v6(ip, GLOBAL_UNICAST) && !SPECIAL_V6.iter().any(|network| is_in_v6(ip, *network)),
        },
    }
}

fn is_in_v4(ip: Ipv4Addr, (network, prefix): (Ipv4Addr, u32)) -> bool {
    (ip.to_bits() ^ network.to_bits()) >> (Ipv4Addr::BITS - prefix) == 0
}

fn is_in_v6(ip: Ipv6Addr, (network, prefix): (Ipv6Addr, u32)) -> bool {
    (ip.to_bits() ^ network.to_bits()) >> (Ipv6Addr::BITS - prefix) == 0
}

/// Resolves names to public addresses only, so that a name cannot lead into a private network. The
/// client connects to the addresses that were checked, so that a second response cannot differ.
pub(crate) struct PublicAddressResolver {
    /// Names may also lead to this machine.
    pub(crate) allow_loopback: bool,
}

/// The name was not resolved: it leads into a private network.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the name leads into a private network")]
pub(crate) struct PrivateAddressError;

impl reqwest::dns::Resolve for PublicAddressResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let allow_loopback = self.allow_loopback;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One private address among public ones is an attack, not a mistake
            if found.iter().any(|address| !(is_public(address.ip()) || allow_loopback && address.ip().is_loopback())) {
                return Err(PrivateAddressError.into());
            }
            Ok(Box::new(found.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_in_a_private_network_is_not_resolved() {
        use reqwest::dns::Resolve as _;
        // A name that the machine resolves without a name server
        let resolve =
            async |allow_loopback| PublicAddressResolver { allow_loopback }.resolve("localhost".parse().unwrap()).await;
        assert!(resolve(false).await.is_err());
        assert!(resolve(true).await.is_ok());
    }

    #[test]
    fn special_networks_are_not_public_from_their_first_to_their_last_address() {
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.31.196.0", "192.31.196.255"),
            ("192.52.193.0", "192.52.193.255"),
            ("192.88.99.0", "192.88.99.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("192.175.48.0", "192.175.48.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
            // Unspecified, loopback, IPv4-compatible
            ("::", "::254.255.255.255"),
            // IPv4-mapped and -translated
            ("::ffff:10.0.0.0", "::ffff:10.255.255.255"),
            ("::ffff:169.254.169.254", "::ffff:192.88.99.1"),
            ("::ffff:0:0:0", "::ffff:0:8.8.8.8"),
            // NAT64, of all and of a network's own
            ("64:ff9b::", "64:ff9b::8.8.8.8"),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
            // Discard
            ("100::", "100::ffff:ffff:ffff:ffff"),
            ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff"),
            // Protocol assignments, and among them Teredo, benchmarking, AS112, ORCHID
            ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1"),
            ("2001:4:112::1", "2001:10::1"),
            ("2001:20::1", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("4000::", "5f00::1"),
            ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            for ip in [first, last] {
                assert!(!is_public(ip.parse().unwrap()), "{ip}");
            }
        }
    }

    #[test]
    fn their_neighbours_are_public() {
        for ip in [
            "1.0.0.0",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.88.98.255",
            "192.88.100.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2001:200::",
            "2001:db7:ffff::",
            "2001:db9::",
            "2003::",
            "2607:f8b0:4005::1",
            "2a00:1450:4001::200e",
            "3ffe:ffff::",
        ] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }
}
