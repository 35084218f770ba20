//! The usual duration of statements.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of statements that are remembered.
const SLOTS: usize = 1024;
/// The slots that a statement can have. Of more statements with the same ones, later ones replace
/// earlier ones.
const WAYS: usize = 4;
/// The half of a key that a slot holds.
const KEY_MASK: u64 = !(u32::MAX as u64);

/// The usual duration of the statements of a pool, by their keys.
///
/// Every read looks it up, so there is neither a lock nor a list: a slot holds one half of the key
/// and the duration in microseconds. Two concurrent updates can lose no more than one measurement.
#[derive(Debug)]
pub(super) struct StatementTimes(Box<[AtomicU64]>);

impl StatementTimes {
    /// Returns an empty table.
    pub fn new() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns true if a statement is known to usually take no longer than `limit`.
    pub fn is_quick(&self, key: u64, limit: Duration) -> bool {
        self.usual(key).is_some_and(|usual| usual <= micros(limit))
    }

    /// Records the duration of a statement. The usual duration follows slowly.
    pub fn record(&self, key: u64, duration: Duration) {
        let duration = micros(duration);
        let usual = self.usual(key).map_or(duration, |usual| usual - usual / 4 + duration / 4);
        let slots = self.slots(key);
        let own = slots.iter().position(|slot| usual_of(slot, key).is_some());
        let empty = || slots.iter().position(|slot| slot.load(Ordering::Relaxed) as u32 == 0);
        let replaced = (key >> u32::BITS) as usize % WAYS;
        if let Some(slot) = slots.get(own.or_else(empty).unwrap_or(replaced)) {
            slot.store((key & KEY_MASK) | u64::from(usual.max(1)), Ordering::Relaxed);
        }
    }

    fn usual(&self, key: u64) -> Option<u32> {
        self.slots(key).iter().find_map(|slot| usual_of(slot, key))
    }

    fn slots(&self, key: u64) -> &[AtomicU64] {
        self.0.as_chunks::<WAYS>().0.get(key as usize % (SLOTS / WAYS)).map_or(&[], |slots| slots)
    }
}

/// Returns the duration in a slot, if it is that of this key.
fn usual_of(slot: &AtomicU64, key: u64) -> Option<u32> {
    let stored = slot.load(Ordering::Relaxed);
    // A duration of zero marks an empty slot
    (stored & KEY_MASK == key & KEY_MASK).then_some(stored as u32).filter(|usual| *usual > 0)
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_duration_follows_slowly_and_belongs_to_one_statement() {
        let times = StatementTimes::new();
        let (key, ms) = (0x1234_5678_9abc_def0, Duration::from_millis);
        let is_quick = |key: u64| times.is_quick(key, ms(4));
        assert!(!is_quick(key), "nothing is known");
        times.record(key, ms(1));
        assert!(is_quick(key));
        assert!(!is_quick(key ^ (1 << 40)), "the same slots, and another key");
        times.record(key, ms(100));
        assert!(!is_quick(key));
        for _ in 0..20 {
            times.record(key, ms(1));
        }
        assert!(is_quick(key));
        times.record(key ^ (1 << 40), Duration::ZERO);
        assert!(is_quick(key ^ (1 << 40)) && is_quick(key));
        times.record(key, Duration::from_secs(1_000_000));
        assert!(!is_quick(key));
    }

    #[test]
    fn statements_with_the_same_slots_replace_each_other() {
        let times = StatementTimes::new();
        let key = |number: u64| (number << u32::BITS) | 7;
        for number in 1..=20 {
            times.record(key(number), Duration::from_millis(1));
            assert!(times.is_quick(key(number), Duration::from_millis(4)));
            let known = (1..=20).filter(|number| times.usual(key(*number)).is_some()).count();
            assert_eq!(known, (number as usize).min(WAYS));
        }
    }
}
