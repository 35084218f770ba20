//! The address that a request comes from. The gateway puts it into the extensions of every request, so
//! that services need not read headers that any client can write.

use std::net::{IpAddr, Ipv6Addr};

/// Where a request comes from: the connection's other end, or what a trusted proxy says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Returns the part of the address that limits go by: an IPv4 address whole, of an IPv6 address the /64 network, which
    /// one household has to itself.
    pub fn network(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
            address => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_go_by_an_ipv4_address_or_an_ipv6_network() {
        let network = |address: &str| ClientAddress(address.parse().unwrap()).network().to_string();
        assert_eq!(network("192.0.2.1"), "192.0.2.1");
        assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }
}
