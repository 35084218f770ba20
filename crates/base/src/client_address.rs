//! The address that a request comes from. The gateway puts it into the extensions of every request,
//! so that services need not read headers that any client can write.

use std::net::{IpAddr, Ipv6Addr};

/// The address of a client: the other end of the connection, or the address that a trusted proxy
/// reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Returns the part of the address that limits are applied to: a whole IPv4 address, or the /64
    /// network of an IPv6 address, since a single client usually controls all of it.
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
    fn limits_apply_to_an_ipv4_address_or_an_ipv6_network() {
        let network = |address: &str| ClientAddress(address.parse().unwrap()).network().to_string();
        assert_eq!(network("192.0.2.1"), "192.0.2.1");
        assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }
}
