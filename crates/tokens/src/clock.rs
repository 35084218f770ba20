//! The one place that reads the wall clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use time::{Duration, OffsetDateTime};

/// Tells the time to everything that must be testable.
///
/// [`Clock::system`] is the machine's; [`Clock::movable`] stands still until it is advanced. Clones of a
/// movable clock share its hand.
#[derive(Clone)]
pub struct Clock(Hand);

#[derive(Clone)]
enum Hand {
    System,
    /// Nanoseconds since 1970.
    Movable(Arc<AtomicI64>),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Hand::System)
    }

    /// A clock that shows `start` until [`Clock::advance`] moves it. Years 1678 to 2261; others are cut to these.
    pub fn movable(start: OffsetDateTime) -> Self {
        Self(Hand::Movable(Arc::new(AtomicI64::new(clamp(start.unix_timestamp_nanos())))))
    }

    /// The time now, in UTC.
    pub fn now(&self) -> OffsetDateTime {
        match &self.0 {
            Hand::System => OffsetDateTime::now_utc(),
            Hand::Movable(nanos) => OffsetDateTime::from_unix_timestamp_nanos(i128::from(nanos.load(Ordering::SeqCst)))
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
        }
    }

    /// Moves the hand of a movable clock (backwards when `by` is negative). `false`: this is the machine's clock.
    pub fn advance(&self, by: Duration) -> bool {
        let Hand::Movable(nanos) = &self.0 else {
            return false;
        };
        let by = clamp(by.whole_nanoseconds());
        // The closure always returns `Some`, so the update can not fail
        let _ = nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(old.saturating_add(by)));
        true
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Hand::System => f.write_str("Clock::system"),
            Hand::Movable(_) => write!(f, "Clock::movable({})", self.now()),
        }
    }
}

fn clamp(nanos: i128) -> i64 {
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_movable_clock_stands_still_until_it_is_advanced_and_clones_share_the_hand() {
        let start = OffsetDateTime::UNIX_EPOCH + Duration::days(20_000);
        let clock = Clock::movable(start);
        let other = clock.clone();

        assert_eq!(clock.now(), start);
        assert!(other.advance(Duration::seconds(5)));
        assert_eq!(clock.now(), start + Duration::seconds(5));
        assert!(clock.advance(Duration::MAX));
        assert!(clock.now() > start);
    }

    #[test]
    fn the_machine_s_clock_can_not_be_moved() {
        assert!(!Clock::system().advance(Duration::HOUR));
    }
}
