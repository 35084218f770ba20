//! How often one address may send.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use time::{Duration, OffsetDateTime};

/// Requests that may come at once.
const BURST: f64 = 60.0;
/// Requests per second after that.
const PER_SECOND: f64 = 1.0;
/// Addresses that are remembered.
const MAX_ADDRESSES: usize = 10_000;

/// A bucket of requests for each address, which fills again with time.
#[derive(Default)]
pub(crate) struct RateLimit {
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

struct Bucket {
    left: f64,
    at: OffsetDateTime,
}

impl Bucket {
    fn left_at(&self, now: OffsetDateTime) -> f64 {
        // A clock that went backwards fills nothing
        let seconds = (now - self.at).max(Duration::ZERO).as_seconds_f64();
        (self.left + seconds * PER_SECOND).min(BURST)
    }
}

impl RateLimit {
    /// Takes one request of the address's bucket; an error with the seconds to wait when it is empty.
    pub(crate) fn take(&self, address: IpAddr, now: OffsetDateTime) -> Result<(), u64> {
        let key = network_of(address);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_ADDRESSES && !buckets.contains_key(&key) {
            // Full buckets say nothing
            buckets.retain(|_, bucket| bucket.left_at(now) < BURST);
            if buckets.len() >= MAX_ADDRESSES {
                // As many senders at once are an attack or a success; forgetting is the kinder mistake
                buckets.clear();
            }
        }
        let bucket = buckets.entry(key).or_insert(Bucket { left: BURST, at: now });
        let left = bucket.left_at(now);
        *bucket = Bucket { left, at: now };
        if left < 1.0 {
            // Positive and at most 1 / PER_SECOND
            return Err(((1.0 - left) / PER_SECOND).ceil() as u64);
        }
        bucket.left = left - 1.0;
        Ok(())
    }
}

/// One household has a whole /64 of IPv6.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_then_one_a_second() {
        let limit = RateLimit::default();
        let (ours, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let mut now = OffsetDateTime::UNIX_EPOCH;
        for _ in 0..60 {
            assert_eq!(limit.take(ours, now), Ok(()));
        }
        assert_eq!(limit.take(ours, now), Err(1));
        assert_eq!(limit.take(other, now), Ok(()));
        now += Duration::SECOND;
        assert_eq!(limit.take(ours, now), Ok(()));
        assert_eq!(limit.take(ours, now), Err(1));
        assert_eq!(limit.take(ours, now - Duration::HOUR), Err(1));
    }

    #[test]
    fn addresses_of_one_network_share_a_bucket() {
        let limit = RateLimit::default();
        let now = OffsetDateTime::UNIX_EPOCH;
        for n in 0..60 {
            assert_eq!(limit.take(format!("2001:db8::{n:x}").parse().unwrap(), now), Ok(()));
        }
        assert!(limit.take("2001:db8::ffff:1".parse().unwrap(), now).is_err());
        assert!(limit.take("2001:db8:0:1::1".parse().unwrap(), now).is_ok());
    }

    #[test]
    fn the_memory_is_bounded() {
        let limit = RateLimit::default();
        let mut now = OffsetDateTime::UNIX_EPOCH;
        for n in 0..25_000_u32 {
            now += Duration::MILLISECOND;
            let _ = limit.take(IpAddr::V4(n.into()), now);
            assert!(limit.buckets.lock().unwrap().len() <= MAX_ADDRESSES);
        }
    }
}
