//! Rates: how often something happened per second, on average over the last minute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time between two samples.
pub(crate) const SAMPLE_PERIOD: Duration = Duration::from_secs(5);
/// The number of samples of the average.
const SAMPLES: usize = 12;

/// Counts events, and knows their average rate. A limit is exceeded while the average is at least
/// the limit, so bursts pass for a moment.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    total: AtomicU64,
    /// Events per second, rounded down.
    average: AtomicU64,
}

impl Meter {
    /// Counts events.
    pub fn add(&self, count: u64) {
        self.total.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of events since the start.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns the average rate, in events per second.
    pub fn average(&self) -> u64 {
        self.average.load(Ordering::Relaxed)
    }

    /// Returns true if the average has reached a limit.
    pub fn exceeds(&self, limit: Option<u32>) -> bool {
        limit.is_some_and(|limit| self.average() >= u64::from(limit))
    }
}

/// The samples of one [`Meter`].
#[derive(Debug, Default)]
pub(crate) struct Samples {
    counts: [u64; SAMPLES],
    taken: usize,
    last_total: u64,
}

impl Samples {
    /// Takes a sample and updates the average. Call it every [`SAMPLE_PERIOD`].
    pub fn take(&mut self, meter: &Meter) {
        let total = meter.total();
        self.counts[self.taken % SAMPLES] = total - self.last_total;
        self.taken += 1;
        self.last_total = total;
        let seconds = self.taken.min(SAMPLES) as u64 * SAMPLE_PERIOD.as_secs();
        meter.average.store(self.counts.iter().sum::<u64>() / seconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_exceeded_while_the_average_is() {
        let (meter, mut samples) = (Meter::default(), Samples::default());
        meter.add(1_000);
        assert!(!meter.exceeds(Some(100)), "before the first sample");
        samples.take(&meter);
        assert_eq!(meter.average(), 200);
        assert!(meter.exceeds(Some(100)) && meter.exceeds(Some(200)) && !meter.exceeds(Some(201)));
        assert!(!meter.exceeds(None));
        (0..11).for_each(|_| samples.take(&meter));
        assert_eq!(meter.average(), 16, "over a minute");
        samples.take(&meter);
        assert_eq!(meter.average(), 0, "the burst has left the window");
    }
}
