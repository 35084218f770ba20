//! The limit of presence calls of one channel.

use tokio::time::Instant;

use crate::settings::RealtimeLimits;

/// Counts the presence calls of a channel in windows that begin with a call.
#[derive(Debug, Default)]
pub(crate) struct CallLimit {
    began_at: Option<Instant>,
    calls: u32,
}

impl CallLimit {
    /// Counts a call. Returns false if it is one too many within its window.
    pub fn allows(&mut self, limits: &RealtimeLimits, now: Instant) -> bool {
        if self.began_at.is_none_or(|began_at| now.duration_since(began_at) >= limits.presence_window) {
            *self = Self { began_at: Some(now), calls: 0 };
        }
        self.calls = self.calls.saturating_add(1);
        self.calls <= limits.max_presence_calls
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn five_calls_pass_in_thirty_seconds_from_the_first_one() {
        let (limits, start) = (RealtimeLimits::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut limit = CallLimit::default();
        assert!([0, 1, 2, 3, 29].into_iter().all(|seconds| limit.allows(&limits, at(seconds))));
        assert!(!limit.allows(&limits, at(29)));
        assert!([30, 31, 40, 50, 59].into_iter().all(|seconds| limit.allows(&limits, at(seconds))));
        assert!(!limit.allows(&limits, at(59)));
        assert!(limit.allows(&limits, at(300)));
    }
}
