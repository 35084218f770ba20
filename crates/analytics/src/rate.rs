//! The limits of events: of one address, of all addresses, and in the table.

use std::net::IpAddr;
use std::time::Duration;

use portico_base::token_bucket::{Quota, TokenBuckets, whole_seconds};
use portico_base::{ClientAddress, Clock};

/// The number of addresses with a bucket.
const MAX_ADDRESSES: usize = 10_000;
/// The longest wait that a response asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The limits of the collector. The defaults keep the table below about 4 GiB, and allow 50 events
/// a second.
#[derive(Debug, Clone, Copy)]
pub struct AnalyticsLimits {
    /// Events of one address (of IPv6, one /64 network). Default: 300 at once, then one a second.
    pub per_address: Quota,
    /// Events of all addresses together. Default: 5,000 at once, then 50 a second.
    pub in_all: Quota,
    /// Events that the table keeps; the oldest are deleted for newer ones. Default: 5 million.
    pub kept: u32,
}

impl Default for AnalyticsLimits {
    fn default() -> Self {
        Self { per_address: Quota::new(300.0, 1.0), in_all: Quota::new(5_000.0, 50.0), kept: 5_000_000 }
    }
}

/// The budgets of events, which fill again over time.
pub(crate) struct RateLimit {
    addresses: TokenBuckets<IpAddr>,
    all: TokenBuckets<()>,
    limits: AnalyticsLimits,
}

impl RateLimit {
    pub(crate) fn new(clock: Clock, limits: AnalyticsLimits) -> Self {
        Self { addresses: TokenBuckets::new(clock.clone(), MAX_ADDRESSES), all: TokenBuckets::new(clock, 1), limits }
    }

    /// Charges an address with a request, which may carry one event, before its body is read.
    ///
    /// # Errors
    /// Returns the seconds to wait.
    pub(crate) fn take_request(&self, address: IpAddr) -> Result<(), u64> {
        self.addresses.take(ClientAddress(address).network(), self.limits.per_address, 1).map_err(seconds)
    }

    /// Charges the events of a request that [`RateLimit::take_request`] charged: all or none.
    ///
    /// # Errors
    /// Returns the seconds to wait.
    pub(crate) fn take_events(&self, address: IpAddr, count: usize) -> Result<(), u64> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let (network, more) = (ClientAddress(address).network(), count.saturating_sub(1));
        self.addresses.take(network, self.limits.per_address, more).map_err(seconds)?;
        self.all.take((), self.limits.in_all, count).map_err(|wait| {
            self.addresses.refund(&network, more);
            seconds(wait)
        })
    }
}

fn seconds(wait: Duration) -> u64 {
    whole_seconds(wait, LONGEST_WAIT).as_secs()
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    fn limit(clock: &Clock) -> RateLimit {
        let limits =
            AnalyticsLimits { per_address: Quota::new(60.0, 1.0), in_all: Quota::new(100.0, 2.0), kept: 1_000 };
        RateLimit::new(clock.clone(), limits)
    }

    /// Sends a request with this number of events.
    fn send(limit: &RateLimit, address: &str, count: usize) -> Result<(), u64> {
        let address = address.parse().unwrap();
        limit.take_request(address)?;
        limit.take_events(address, count)
    }

    #[test]
    fn the_limit_counts_events_and_not_requests() {
        let clock = Clock::movable(OffsetDateTime::UNIX_EPOCH);
        let limit = limit(&clock);
        assert_eq!(send(&limit, "192.0.2.1", 50), Ok(()));
        assert_eq!(send(&limit, "192.0.2.1", 50), Err(40));
        // The rejected request itself counted
        for _ in 0..9 {
            assert_eq!(send(&limit, "192.0.2.1", 1), Ok(()));
        }
        assert_eq!(send(&limit, "192.0.2.1", 1), Err(1));
        clock.advance(time::Duration::SECOND);
        assert_eq!(send(&limit, "192.0.2.1", 1), Ok(()));
        assert_eq!(send(&limit, "192.0.2.1", 1), Err(1));
    }

    #[test]
    fn all_addresses_together_have_a_budget() {
        let clock = Clock::movable(OffsetDateTime::UNIX_EPOCH);
        let limit = limit(&clock);
        assert_eq!(send(&limit, "192.0.2.1", 50), Ok(()));
        assert_eq!(send(&limit, "192.0.2.2", 50), Ok(()));
        assert_eq!(send(&limit, "192.0.2.3", 50), Err(25));
        // The rejected address is not charged
        clock.advance(time::Duration::seconds(25));
        assert_eq!(send(&limit, "192.0.2.3", 50), Ok(()));
    }

    #[test]
    fn addresses_of_one_network_share_a_budget() {
        let clock = Clock::movable(OffsetDateTime::UNIX_EPOCH);
        let limit = limit(&clock);
        assert_eq!(send(&limit, "2001:db8::1", 50), Ok(()));
        assert!(send(&limit, "2001:db8::ffff:1", 50).is_err());
        assert_eq!(send(&limit, "2001:db8:0:1::1", 50), Ok(()));
    }

    #[test]
    fn time_that_runs_backwards_fills_no_budget() {
        let clock = Clock::movable(OffsetDateTime::UNIX_EPOCH);
        let limit = limit(&clock);
        assert_eq!(send(&limit, "192.0.2.1", 60), Ok(()));
        for hours in [-1, 1, -5, 5] {
            clock.advance(time::Duration::hours(hours));
            assert_eq!(send(&limit, "192.0.2.1", 1), Err(1));
        }
    }
}
