//! The one place that reads the wall clock.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration as Span, Instant};

use time::{Duration, OffsetDateTime};

/// A clock that is handed to everything that depends on the time, so that tests control it.
///
/// [`Clock::system`] is the machine's clock. [`Clock::movable`] stands still until it is advanced;
/// its clones move together.
#[derive(Clone)]
pub struct Clock(TimeSource);

#[derive(Clone)]
enum TimeSource {
    System,
    Movable(Arc<MovableTime>),
}

/// Times in nanoseconds since 1970.
struct MovableTime {
    start: i64,
    now: AtomicI64,
    /// The latest time that the clock has shown.
    latest: AtomicI64,
}

/// The start of the machine's monotonic time.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// Returns the machine's clock.
    pub fn system() -> Self {
        Self(TimeSource::System)
    }

    /// Returns a clock that shows `start` until [`Clock::advance`] moves it. Times outside the
    /// years 1678 to 2261 are clamped.
    pub fn movable(start: OffsetDateTime) -> Self {
        let start = clamp(start.unix_timestamp_nanos());
        Self(TimeSource::Movable(Arc::new(MovableTime { start, now: start.into(), latest: start.into() })))
    }

    /// Returns the time now, in UTC.
    #[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
    pub fn now(&self) -> OffsetDateTime {
        match &self.0 {
            TimeSource::System => OffsetDateTime::now_utc(),
            TimeSource::Movable(time) => {
                OffsetDateTime::from_unix_timestamp_nanos(i128::from(time.now.load(Ordering::SeqCst)))
                    .unwrap_or(OffsetDateTime::UNIX_EPOCH)
            }
        }
    }

    /// Returns the time now in whole microseconds, as PostgreSQL stores it: a written time is read
    /// again unchanged.
    pub fn now_in_microseconds(&self) -> OffsetDateTime {
        let now = self.now();
        now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now)
    }

    /// Returns the time since a fixed but arbitrary moment. Only the difference between two
    /// readings of clones of one clock is meaningful.
    ///
    /// It never decreases, and setting the machine's wall clock does not change it. That of a
    /// movable clock stands still while the clock is behind the latest time that it has shown.
    pub fn monotonic(&self) -> Span {
        match &self.0 {
            TimeSource::System => {
                let start = *START;
                Instant::now().saturating_duration_since(start)
            }
            TimeSource::Movable(time) => Span::from_nanos(time.latest.load(Ordering::SeqCst).abs_diff(time.start)),
        }
    }

    /// Moves a movable clock, backwards if `by` is negative. Returns false for the machine's clock,
    /// which cannot be moved.
    pub fn advance(&self, by: Duration) -> bool {
        let TimeSource::Movable(time) = &self.0 else {
            return false;
        };
        let by = clamp(by.whole_nanoseconds());
        // The closure always returns `Some`, so the update cannot fail
        let (Ok(before) | Err(before)) =
            time.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(old.saturating_add(by)));
        time.latest.fetch_max(before.saturating_add(by), Ordering::SeqCst);
        true
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TimeSource::System => f.write_str("Clock::system"),
            TimeSource::Movable(_) => write!(f, "Clock::movable({})", self.now()),
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
    fn a_movable_clock_stands_still_until_it_is_advanced_and_clones_move_together() {
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
    fn the_machine_s_clock_cannot_be_moved() {
        assert!(!Clock::system().advance(Duration::HOUR));
    }
}
