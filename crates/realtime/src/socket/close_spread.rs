//! The spread of the closes of many sockets over time.
//!
//! The official client connects again after fixed delays, without jitter. Clients whose sockets are
//! closed in one instant would return in one instant, so the server closes them one after another.

use std::time::Duration;

/// The sockets that are closed per second, as long as they end within [`MAX_WINDOW`].
const CLOSES_PER_SECOND: u32 = 1_000;
/// The time from the first close to the last one, at most.
const MAX_WINDOW: Duration = Duration::from_secs(5);

/// The times at which a number of sockets are closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CloseSpread {
    sockets: u32,
    window: Duration,
}

impl CloseSpread {
    /// Returns the times for a number of sockets. The last one is before the end of `within`.
    pub fn new(sockets: usize, within: Duration) -> Self {
        let sockets = u32::try_from(sockets).unwrap_or(u32::MAX).max(1);
        let window = (Duration::from_secs(1) * sockets.min(CLOSES_PER_SECOND * 60) / CLOSES_PER_SECOND).min(MAX_WINDOW);
        Self { sockets, window: window.min(within) }
    }

    /// Returns the time in which all are closed.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Returns the time after which a socket is closed, by its position among them.
    pub fn delay(&self, position: usize) -> Duration {
        let position = u32::try_from(position).unwrap_or(u32::MAX).min(self.sockets - 1);
        self.window.mul_f64(f64::from(position) / f64::from(self.sockets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closes_follow_each_other_at_the_same_distance() {
        let spread = CloseSpread::new(2_000, Duration::from_secs(60));
        assert_eq!([0, 1, 1_000, 1_999].map(|at| spread.delay(at).as_micros()), [0, 1_000, 1_000_000, 1_999_000]);
        assert_eq!(CloseSpread::new(3, Duration::from_secs(60)).window(), Duration::from_millis(3));
    }

    #[test]
    fn the_last_close_is_within_the_window_however_many_there_are() {
        for (sockets, within, window) in [
            (10_000, Duration::from_secs(60), MAX_WINDOW),
            (usize::MAX, Duration::from_secs(60), MAX_WINDOW),
            (10_000, Duration::from_secs(2), Duration::from_secs(2)),
            (10_000, Duration::ZERO, Duration::ZERO),
            (0, Duration::from_secs(60), Duration::from_millis(1)),
        ] {
            let spread = CloseSpread::new(sockets, within);
            assert_eq!(spread.window(), window);
            assert!(spread.delay(sockets) <= window && spread.delay(usize::MAX) <= window);
        }
    }
}
