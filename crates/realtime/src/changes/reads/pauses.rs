//! Work that is left out for a while, because it took too long.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The length of a first pause.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);
/// The number of times that a pause is doubled at most.
const MAX_DOUBLINGS: u32 = 4;
/// The time after its end for which a pause is known, so that the next one is longer.
const MEMORY: Duration = Duration::from_secs(15 * 60);
/// The largest number of known pauses: more than the connections of a server by default. The one
/// that ends first makes room for a further one.
const MAX_PAUSES: usize = 20_000;

/// The keys of the work that is paused. Each pause of the same work is twice as long as the one
/// before, up to 16 times the first one.
#[derive(Debug)]
pub(crate) struct Pauses<K> {
    first: Duration,
    known: HashMap<K, KnownPause>,
}

/// The last pause of some work.
#[derive(Debug, Clone, Copy)]
struct KnownPause {
    end: Instant,
    doublings: u32,
}

impl KnownPause {
    fn is_known(&self, now: Instant) -> bool {
        now.duration_since(self.end) < MEMORY
    }
}

impl<K: Hash + Eq + Clone> Pauses<K> {
    /// Returns no pauses. The first one of some work will have this length.
    pub fn new(first: Duration) -> Self {
        Self { first, known: HashMap::new() }
    }

    /// Begins a pause. Returns its end.
    pub fn begin(&mut self, key: K) -> Instant {
        self.begin_at(key, Instant::now())
    }

    fn begin_at(&mut self, key: K, now: Instant) -> Instant {
        let is_known = |pause: &KnownPause| pause.is_known(now);
        let before = self.known.remove(&key).filter(is_known);
        if self.known.len() >= MAX_PAUSES {
            self.known.retain(|_, pause| is_known(pause));
        }
        if self.known.len() >= MAX_PAUSES
            && let Some(first) = self.known.iter().min_by_key(|(_, pause)| pause.end).map(|(key, _)| key.clone())
        {
            self.known.remove(&first);
        }
        let doublings = before.map_or(0, |before| (before.doublings + 1).min(MAX_DOUBLINGS));
        let end = now + self.first * 2_u32.pow(doublings);
        self.known.insert(key, KnownPause { end, doublings });
        end
    }

    /// Returns true during a pause.
    pub fn contain(&self, key: &K) -> bool {
        self.contain_at(key, Instant::now())
    }

    fn contain_at(&self, key: &K, now: Instant) -> bool {
        self.known.get(key).is_some_and(|pause| now < pause.end)
    }

    /// Returns true if no pause is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Removes the pauses of work that has succeeded.
    pub fn remove(&mut self, key: &K) {
        self.known.remove(key);
    }

    /// Returns the work that `is_meant` accepts and that has paused and not succeeded since.
    pub fn known(&self, is_meant: impl Fn(&K) -> bool) -> Vec<K> {
        let now = Instant::now();
        let known = self.known.iter().filter(|(key, pause)| pause.is_known(now) && is_meant(key));
        known.map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn a_pause_is_twice_as_long_as_the_one_before() {
        let (mut pauses, mut now) = (Pauses::new(PAUSE), Instant::now());
        for minutes in [1, 2, 4, 8, 16, 16] {
            assert_eq!(pauses.begin_at("a", now), now + PAUSE * minutes);
            now += PAUSE * minutes;
            assert!(pauses.contain_at(&"a", now - TICK) && !pauses.contain_at(&"a", now), "{minutes}");
        }
        pauses.remove(&"a");
        assert_eq!(pauses.begin_at("a", now), now + PAUSE);
        now += PAUSE + MEMORY - TICK;
        assert_eq!(pauses.begin_at("a", now), now + 2 * PAUSE);
        now += 2 * PAUSE + MEMORY;
        assert_eq!(pauses.begin_at("a", now), now + PAUSE, "a pause is forgotten");
    }

    #[test]
    fn the_number_of_pauses_is_bounded() {
        let (mut pauses, mut now) = (Pauses::new(PAUSE), Instant::now());
        for key in 0..=MAX_PAUSES {
            pauses.begin_at(key, now);
            now += TICK;
        }
        assert_eq!(pauses.known.len(), MAX_PAUSES);
        assert!(!pauses.contain_at(&0, now) && pauses.contain_at(&1, now) && pauses.contain_at(&MAX_PAUSES, now));
    }
}
