//! What the front door knows about a request besides who makes it. Address and id are in the extensions of every request,
//! so that services need not read headers that anybody could have written.

use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use uuid::Uuid;

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

/// The request's id, as it is logged and answered: short, printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// A new random one.
    pub fn generate() -> Self {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        Self(Arc::from(&*next_uuid().hyphenated().encode_lower(&mut text)))
    }

    /// One that came with the request; `None` unless it is 8 to 128 letters, digits, `-`, `_` or `.`, so that
    /// it can go into logs and headers as it is.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        ((8..=128).contains(&text.len()) && text.bytes().all(fits)).then(|| Self(text.into()))
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The token of an `Authorization` header's value, if its scheme is `Bearer`, in any case.
pub fn bearer(authorization: &[u8]) -> Option<&str> {
    let (scheme, rest) = authorization.split_at_checked("bearer".len())?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || !rest.first().is_some_and(u8::is_ascii_whitespace) {
        return None;
    }
    // Bytes that are no text make a token that does not verify
    let token = std::str::from_utf8(rest).unwrap_or("?").trim();
    (!token.is_empty()).then_some(token)
}

/// Each thread gets random numbers for so many ids at once: a call of the generator takes longer than all the rest of an id.
const STOCK: usize = 64;

thread_local! {
    static UUIDS: RefCell<Vec<Uuid>> = const { RefCell::new(Vec::new()) };
}

/// A random id that need not be secret before it is used.
fn next_uuid() -> Uuid {
    UUIDS.with_borrow_mut(|stock| {
        if stock.is_empty() {
            let bytes: [u8; 16 * STOCK] = crate::random::bytes();
            let (sixteens, _) = bytes.as_chunks::<16>();
            stock.extend(sixteens.iter().map(|bytes| uuid::Builder::from_random_bytes(*bytes).into_uuid()));
        }
        stock.pop().unwrap_or_else(crate::random::uuid)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        for (value, token) in [
            ("Bearer x", Some("x")),
            ("bearer x", Some("x")),
            ("BEARER  x ", Some("x")),
            ("Bearer\tx", Some("x")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearerx", None),
            ("Basic x", None),
            ("", None),
        ] {
            assert_eq!(bearer(value.as_bytes()), token, "{value:?}");
        }
        assert_eq!(bearer(b"Bearer \xff\xfe"), Some("?"));
    }

    proptest! {
        #[test]
        fn any_header_is_a_token_or_none(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = bearer(&value);
        }
    }

    #[test]
    fn limits_go_by_an_ipv4_address_or_an_ipv6_network() {
        let network = |address: &str| ClientAddress(address.parse().unwrap()).network().to_string();
        assert_eq!(network("192.0.2.1"), "192.0.2.1");
        assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }

    #[test]
    fn ids_of_others_are_taken_only_when_harmless() {
        assert_eq!(RequestId::parse("abc-123_X.y").unwrap().as_str(), "abc-123_X.y");
        for bad in ["", "short", "has space in it", "line\nbreak-in-it", &"x".repeat(129), "quote\"quote\""] {
            assert!(RequestId::parse(bad).is_none(), "{bad:?}");
        }
        assert_eq!(RequestId::generate().as_str().len(), 36);
        assert_ne!(RequestId::generate(), RequestId::generate());
    }
}
