//! The buckets that were private a moment ago.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of buckets that are remembered.
const MAX: usize = 1000;
/// The time for which a bucket is remembered.
const RECENT: Duration = Duration::from_secs(5);

/// The buckets that were private a moment ago. Of such a bucket, a download first asks what the
/// policies allow the caller, and reads the bucket only if that is nothing. So an object of a
/// bucket that has become public may be kept from shared caches for [`RECENT`]; one of a bucket
/// that has become private is never served as a public one.
#[derive(Debug, Default)]
pub(crate) struct PrivateBuckets(Mutex<HashMap<Box<str>, Instant>>);

impl PrivateBuckets {
    /// Returns true if the bucket was private when it was last read, and that was a moment ago.
    pub fn contains(&self, bucket: &str) -> bool {
        self.known().get(bucket).is_some_and(|read| read.elapsed() < RECENT)
    }

    /// Remembers whether a bucket that was read is private.
    pub fn record(&self, bucket: &str, is_private: bool) {
        let mut known = self.known();
        if !is_private {
            known.remove(bucket);
        } else if let Some(read) = known.get_mut(bucket) {
            *read = Instant::now();
        } else {
            if known.len() >= MAX {
                known.clear();
            }
            known.insert(bucket.into(), Instant::now());
        }
    }

    /// Forgets a bucket that was changed.
    pub fn forget(&self, bucket: &str) {
        self.known().remove(bucket);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_read_counts_and_the_number_is_bounded() {
        let buckets = PrivateBuckets::default();
        buckets.record("a", true);
        assert!(buckets.contains("a") && !buckets.contains("b"));
        buckets.record("a", false);
        assert!(!buckets.contains("a"));
        for number in 0..3 * MAX {
            buckets.record(&number.to_string(), true);
            assert!(buckets.contains(&number.to_string()) && buckets.known().len() <= MAX);
        }
    }

    #[test]
    fn a_bucket_is_forgotten_after_a_while() {
        let buckets = PrivateBuckets::default();
        let read = Instant::now().checked_sub(RECENT).unwrap();
        buckets.known().insert("a".into(), read);
        assert!(!buckets.contains("a"));
        buckets.record("a", true);
        assert!(buckets.contains("a"));
    }
}
