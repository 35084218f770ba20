//! The protection of an exhausted pool: after repeated timeouts, joins do not queue any more.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time within which timeouts are counted, from the first one on.
const WINDOW: Duration = Duration::from_secs(30);

/// Counts the probes that waited in vain for a connection. When there were as many of them as
/// connections within 30 seconds, the pool is overloaded until the end of these 30 seconds.
#[derive(Debug, Default)]
pub(super) struct Overload(Mutex<Option<OverloadWindow>>);

#[derive(Debug)]
struct OverloadWindow {
    began_at: Instant,
    timeouts: usize,
    is_overloaded: bool,
}

impl Overload {
    /// Counts a timeout of a pool with this number of connections.
    pub fn count_timeout(&self, connections: usize, now: Instant) {
        let mut window = self.window(now);
        let window = window.get_or_insert(OverloadWindow { began_at: now, timeouts: 0, is_overloaded: false });
        window.timeouts += 1;
        if window.timeouts >= connections.max(1) && !window.is_overloaded {
            window.is_overloaded = true;
            tracing::warn!(connections, "joins of private channels are rejected: their connections are exhausted");
        }
    }

    /// Returns true while probes are not to queue.
    pub fn is_overloaded(&self, now: Instant) -> bool {
        self.window(now).as_ref().is_some_and(|window| window.is_overloaded)
    }

    /// Returns the window, if it has not ended.
    fn window(&self, now: Instant) -> MutexGuard<'_, Option<OverloadWindow>> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.as_ref().is_some_and(|window| now.duration_since(window.began_at) >= WINDOW) {
            *window = None;
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_timeouts_as_connections_reject_joins_until_the_window_ends() {
        let (overload, start) = (Overload::default(), Instant::now());
        assert!(!overload.is_overloaded(start));
        overload.count_timeout(2, start);
        assert!(!overload.is_overloaded(start));
        overload.count_timeout(2, start + Duration::from_secs(29));
        assert!(overload.is_overloaded(start + Duration::from_secs(29)));
        assert!(!overload.is_overloaded(start + WINDOW));
        overload.count_timeout(2, start + WINDOW);
        assert!(!overload.is_overloaded(start + WINDOW), "a new window");
    }
}
