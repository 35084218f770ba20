//! The buckets that were private when they were last read.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of buckets that are remembered.
const MAX: usize = 1000;

/// The buckets that were private when they were last read. It decides in which order a download
/// reads what it needs, and nothing else: whether a bucket is public is read each time.
#[derive(Debug, Default)]
pub(crate) struct PrivateBuckets(Mutex<HashSet<Box<str>>>);

impl PrivateBuckets {
    /// Returns true if the bucket was private when it was last read.
    pub fn contains(&self, bucket: &str) -> bool {
        self.names().contains(bucket)
    }

    /// Remembers whether a bucket that was read is private.
    pub fn record(&self, bucket: &str, is_private: bool) {
        let mut names = self.names();
        if !is_private {
            names.remove(bucket);
        } else if !names.contains(bucket) {
            if names.len() >= MAX {
                names.clear();
            }
            names.insert(bucket.into());
        }
    }

    fn names(&self) -> MutexGuard<'_, HashSet<Box<str>>> {
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
            assert!(buckets.contains(&number.to_string()) && buckets.names().len() <= MAX);
        }
    }
}
