//! How long statements usually take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Statements that are kept in mind. Of two that fall on one place the later stays.
const PLACES: usize = 1024;

/// What the statements of a pool usually take, by their keys ([`StatementTexts::key`](crate::wire::session::prepared_statements::StatementTexts::key)).
///
/// Every read looks here, so there is neither a lock nor a list: a place holds half of the key and the time in microseconds. What gets lost
/// between two who write at once is no more than one measurement.
#[derive(Debug)]
pub(crate) struct Times(Box<[AtomicU64]>);

impl Times {
    /// Nothing is known.
    pub fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether a statement is known to take no longer than this, mostly.
    pub fn is_quick(&self, key: u64, most: Duration) -> bool {
        self.usual(key).is_some_and(|usual| usual <= micros(most))
    }

    /// A statement took so long. What it usually takes follows slowly.
    pub fn add(&self, key: u64, took: Duration) {
        let took = micros(took);
        let usual = self.usual(key).map_or(took, |usual| usual - usual / 4 + took / 4);
        if let Some(place) = self.place(key) {
            place.store((key & HALF) | u64::from(usual.max(1)), Ordering::Relaxed);
        }
    }

    fn usual(&self, key: u64) -> Option<u32> {
        let held = self.place(key)?.load(Ordering::Relaxed);
        // Nothing takes no time at all
        (held & HALF == key & HALF).then_some(held as u32).filter(|usual| *usual > 0)
    }

    fn place(&self, key: u64) -> Option<&AtomicU64> {
        self.0.get(key as usize % PLACES)
    }
}

/// The half of a key that a place holds.
const HALF: u64 = !(u32::MAX as u64);

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_follows_slowly_and_is_not_taken_for_another_s() {
        let times = Times::new();
        let (key, ms) = (0x1234_5678_9abc_def0, Duration::from_millis);
        let is_quick = |key: u64| times.is_quick(key, ms(4));
        assert!(!is_quick(key), "nothing is known");
        times.add(key, ms(1));
        assert!(is_quick(key));
        assert!(!is_quick(key ^ (1 << 40)), "the same place, and another key");
        times.add(key, ms(100));
        assert!(!is_quick(key));
        for _ in 0..20 {
            times.add(key, ms(1));
        }
        assert!(is_quick(key));
        times.add(key ^ (1 << 40), Duration::ZERO);
        assert!(is_quick(key ^ (1 << 40)) && !is_quick(key));
        times.add(key, Duration::from_secs(1_000_000));
        assert!(!is_quick(key));
    }
}
