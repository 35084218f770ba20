//! The pauses between attempts to connect.

use std::time::Duration;

use portico_base::random;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// The pauses between attempts: doubled each time up to five seconds, with jitter, so that several
/// servers do not return to a database at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// Returns the next pause: between half of the current one and all of it.
    pub fn pause(&mut self) -> Duration {
        let [byte] = random::bytes();
        let pause = self.next.mul_f64(0.5 + f64::from(byte) / 510.0);
        self.next = (self.next * 2).min(LONGEST);
        pause.max(FIRST)
    }

    /// Begins with the shortest pause again, after an attempt that has succeeded.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_a_tenth_of_a_second_to_five_seconds() {
        let mut backoff = Backoff::default();
        let mut full = FIRST;
        for _ in 0..20 {
            let pause = backoff.pause();
            assert!(pause <= full && pause >= (full / 2).max(FIRST), "{pause:?} of {full:?}");
            full = (full * 2).min(LONGEST);
        }
        assert_eq!(full, LONGEST);
        backoff.reset();
        assert_eq!(backoff.pause(), FIRST);
    }
}
