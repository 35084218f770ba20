//! The one place that reads the wall clock.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration as Span, Instant};

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
    Movable(Arc<MovableHand>),
}

/// Times in nanoseconds since 1970.
struct MovableHand {
    start: i64,
    now: AtomicI64,
    /// The latest time that was ever shown.
    latest: AtomicI64,
}

/// The beginning of the machine's monotonic time.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Hand::System)
    }

    /// A clock that shows `start` until [`Clock::advance`] moves it. Years 1678 to 2261; others are cut to these.
    pub fn movable(start: OffsetDateTime) -> Self {
        let start = clamp(start.unix_timestamp_nanos());
        Self(Hand::Movable(Arc::new(MovableHand { start, now: start.into(), latest: start.into() })))
    }

    /// The time now, in UTC.
    pub fn now(&self) -> OffsetDateTime {
        match &self.0 {
            Hand::System => OffsetDateTime::now_utc(),
            Hand::Movable(hand) => {
                OffsetDateTime::from_unix_timestamp_nanos(i128::from(hand.now.load(Ordering::SeqCst)))
                    .unwrap_or(OffsetDateTime::UNIX_EPOCH)
            }
        }
    }

    /// The time that has passed since a fixed but arbitrary moment: only the difference between two readings of clones of
    /// one clock means something.
    ///
    /// Never runs backwards. Setting the machine's wall clock does not change it. A movable clock's stands still while its
    /// hand is behind the latest time that it has shown.
    pub fn monotonic(&self) -> Span {
        match &self.0 {
            Hand::System => {
                let start = *START;
                Instant::now().saturating_duration_since(start)
            }
            Hand::Movable(hand) => Span::from_nanos(hand.latest.load(Ordering::SeqCst).abs_diff(hand.start)),
        }
    }

    /// Moves the hand of a movable clock (backwards when `by` is negative). `false`: this is the machine's clock.
    pub fn advance(&self, by: Duration) -> bool {
        let Hand::Movable(hand) = &self.0 else {
            return false;
        };
        let by = clamp(by.whole_nanoseconds());
        // The closure always returns `Some`, so the update cannot fail
        let (Ok(before) | Err(before)) =
            hand.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(old.saturating_add(by)));
        hand.latest.fetch_max(before.saturating_add(by), Ordering::SeqCst);
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
    fn monotonic_time_never_runs_backwards() {
        let clock = Clock::movable(OffsetDateTime::UNIX_EPOCH);
        let hour = Span::from_secs(3600);
        let start = clock.monotonic();
        for (by, passed) in [(1, 1), (-5, 1), (3, 1), (1, 1), (2, 2)] {
            clock.advance(Duration::hours(by));
            assert_eq!(clock.clone().monotonic() - start, passed * hour, "{by}");
        }
        let first = Clock::system().monotonic();
        assert!(Clock::system().monotonic() >= first);
    }

    #[test]
    fn the_machine_s_clock_can_not_be_moved() {
        assert!(!Clock::system().advance(Duration::HOUR));
    }
}
