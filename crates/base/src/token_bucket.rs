//! Token buckets: limits on how often an action is allowed.
//!
//! Promises: a bucket reads the clock itself, at the moment of a charge and while it holds the
//! lock. A caller cannot charge at a time that it read earlier, for example before a slow request
//! body arrived. The clock is [`Clock::monotonic`]: setting the wall clock neither fills a bucket
//! nor keeps it from filling. The memory of [`TokenBuckets`] is bounded.
//!
//! Must not know: which action is limited, and how a rejection is reported.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// Absorbs rounding errors of fractions of tokens.
const ROUNDING: f64 = 1e-9;

/// The size of a bucket and the rate at which it fills.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    burst: f64,
    per_second: f64,
}

impl Quota {
    /// Returns the quota of a bucket of `burst` tokens that gets `per_second` tokens a second. A
    /// burst of 0 rejects every charge; with 0 tokens a second the bucket never fills. Negative and
    /// non-finite numbers count as 0.
    pub const fn new(burst: f64, per_second: f64) -> Self {
        const fn valid(number: f64) -> f64 {
            if number.is_finite() && number > 0.0 { number } else { 0.0 }
        }
        Self { burst: valid(burst), per_second: valid(per_second) }
    }

    /// Returns the quota of a bucket of `burst` tokens that fills from empty to full within
    /// `period`.
    pub const fn full_after(burst: f64, period: Duration) -> Self {
        Self::new(burst, burst / period.as_secs_f64())
    }

    /// Returns the number of tokens in a full bucket.
    pub const fn burst(self) -> f64 {
        self.burst
    }
}

/// A bucket of tokens that is full at first and fills again over time.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    quota: Quota,
    tokens: f64,
    /// The monotonic time up to which the bucket has been filled.
    filled_at: Duration,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub fn full(quota: Quota, clock: &Clock) -> Self {
        Self { quota, tokens: quota.burst, filled_at: clock.monotonic() }
    }

    /// Takes `count` tokens, all or none.
    ///
    /// # Errors
    /// Returns the time until there will be enough tokens; [`Duration::MAX`] if there never will
    /// be, because `count` is above the burst or the bucket does not fill.
    pub fn take(&mut self, count: u32, clock: &Clock) -> Result<(), Duration> {
        self.fill(clock.monotonic());
        self.check_filled(count)?;
        self.tokens = (self.tokens - f64::from(count)).max(0.0);
        Ok(())
    }

    /// Returns what [`TokenBucket::take`] would return now, and takes nothing.
    ///
    /// # Errors
    /// Those of [`TokenBucket::take`].
    pub fn check(&self, count: u32, clock: &Clock) -> Result<(), Duration> {
        let mut filled = self.clone();
        filled.fill(clock.monotonic());
        filled.check_filled(count)
    }

    /// Puts back `count` tokens that were taken for an action that turned out not to count.
    pub fn refund(&mut self, count: u32) {
        self.tokens = (self.tokens + f64::from(count)).min(self.quota.burst);
    }

    /// Takes `tokens`, or as many as there are: for a charge that was made elsewhere, such as by
    /// another process.
    pub fn take_up_to(&mut self, tokens: f64, clock: &Clock) {
        self.fill(clock.monotonic());
        self.tokens = (self.tokens - tokens.max(0.0)).max(0.0);
    }

    /// Returns the fraction of the bucket that is filled at a monotonic time: 0 to 1.
    fn fullness(&self, now: Duration) -> f64 {
        if self.quota.burst > 0.0 { self.tokens_at(now) / self.quota.burst } else { 0.0 }
    }

    fn tokens_at(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        (self.tokens + passed * self.quota.per_second).min(self.quota.burst)
    }

    fn fill(&mut self, now: Duration) {
        self.tokens = self.tokens_at(now);
        self.filled_at = self.filled_at.max(now);
    }

    /// Changes the quota. Tokens in the bucket are kept, up to the new size.
    fn resize(&mut self, quota: Quota, now: Duration) {
        if self.quota != quota {
            self.fill(now);
            self.tokens = self.tokens.min(quota.burst);
            self.quota = quota;
        }
    }

    fn check_filled(&self, count: u32) -> Result<(), Duration> {
        let missing = f64::from(count) - self.tokens;
        if missing <= ROUNDING {
            return Ok(());
        }
        if f64::from(count) > self.quota.burst + ROUNDING || self.quota.per_second <= 0.0 {
            return Err(Duration::MAX);
        }
        Err(Duration::try_from_secs_f64(missing / self.quota.per_second).unwrap_or(Duration::MAX))
    }
}

/// Rounds the wait of a rejected charge up to whole seconds, at least 1 and at most `most`.
pub fn whole_seconds(wait: Duration, most: Duration) -> Duration {
    // A microsecond less, or a rounding error of fractions would become a second
    let wait = wait.min(most).saturating_sub(Duration::from_micros(1));
    Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(Duration::from_secs(1))
}

/// A bucket for each key, in bounded memory.
///
/// When `most` keys are known and another one arrives, the fuller half is removed: a key that has
/// used up its tokens stays limited however many other keys arrive. A removed key starts again with
/// a full bucket.
pub struct TokenBuckets<K> {
    clock: Clock,
    most: usize,
    buckets: Mutex<HashMap<K, TokenBucket>>,
}

impl<K: Eq + Hash> TokenBuckets<K> {
    /// Keeps the buckets of `most` keys (minimum 1).
    pub fn new(clock: Clock, most: usize) -> Self {
        Self { clock, most: most.max(1), buckets: Mutex::default() }
    }

    /// Takes `count` tokens of the bucket of `key`, all or none. A new key gets a full bucket; a
    /// known key keeps its tokens if `quota` has changed.
    ///
    /// # Errors
    /// Those of [`TokenBucket::take`].
    pub fn take(&self, key: K, quota: Quota, count: u32) -> Result<(), Duration> {
        self.with(key, quota, |bucket, clock| bucket.take(count, clock))
    }

    /// Returns what [`TokenBuckets::take`] would return now, and takes nothing.
    ///
    /// # Errors
    /// Those of [`TokenBucket::take`].
    pub fn check(&self, key: &K, quota: Quota, count: u32) -> Result<(), Duration> {
        let mut bucket = match self.lock().get(key) {
            Some(bucket) => bucket.clone(),
            None => TokenBucket::full(quota, &self.clock),
        };
        bucket.resize(quota, self.clock.monotonic());
        bucket.check(count, &self.clock)
    }

    /// Puts back `count` tokens that were taken of the bucket of `key`; see
    /// [`TokenBucket::refund`].
    pub fn refund(&self, key: &K, count: u32) {
        if let Some(bucket) = self.lock().get_mut(key) {
            bucket.refund(count);
        }
    }

    /// Takes `tokens` of the bucket of `key`, or as many as there are; see
    /// [`TokenBucket::take_up_to`].
    pub fn take_up_to(&self, key: K, quota: Quota, tokens: f64) {
        self.with(key, quota, |bucket, clock| bucket.take_up_to(tokens, clock));
    }

    /// Returns the number of known keys.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns true if no key is known.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn with<T>(&self, key: K, quota: Quota, charge: impl FnOnce(&mut TokenBucket, &Clock) -> T) -> T {
        let mut buckets = self.lock();
        // Read while the lock is held: waiting for the lock does not make the time stale
        let now = self.clock.monotonic();
        if buckets.len() >= self.most && !buckets.contains_key(&key) {
            remove_fuller_half(&mut buckets, now);
        }
        let bucket = buckets.entry(key).or_insert_with(|| TokenBucket::full(quota, &self.clock));
        bucket.resize(quota, now);
        charge(bucket, &self.clock)
    }

    // A panic in another thread leaves the map consistent: each bucket is changed by single
    // assignments
    fn lock(&self) -> MutexGuard<'_, HashMap<K, TokenBucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the fuller half of the buckets, rounded up.
fn remove_fuller_half<K>(buckets: &mut HashMap<K, TokenBucket>, now: Duration) {
    let mut fullness: Vec<f64> = buckets.values().map(|bucket| bucket.fullness(now)).collect();
    let middle = fullness.len() / 2;
    let (_, limit, _) = fullness.select_nth_unstable_by(middle, f64::total_cmp);
    let limit = *limit;
    let mut left = fullness.len() - middle;
    buckets.retain(|_, bucket| {
        let is_removed = left > 0 && bucket.fullness(now) >= limit;
        left -= usize::from(is_removed);
        !is_removed
    });
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn clock() -> Clock {
        Clock::movable(OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000))
    }

    #[test]
    fn a_bucket_refills_with_time_and_never_above_its_burst() {
        let clock = clock();
        let mut bucket = TokenBucket::full(Quota::new(30.0, 0.1), &clock);
        for _ in 0..30 {
            assert_eq!(bucket.take(1, &clock), Ok(()));
        }
        assert_eq!(bucket.take(1, &clock), Err(10 * SECOND));
        assert_eq!(bucket.take(5, &clock), Err(50 * SECOND));
        clock.advance(time::Duration::seconds(10));
        assert_eq!(bucket.check(1, &clock), Ok(()));
        assert_eq!(bucket.take(1, &clock), Ok(()));
        assert!(bucket.take(1, &clock).is_err());
        clock.advance(time::Duration::days(100));
        assert_eq!(bucket.take(30, &clock), Ok(()));
        assert!(bucket.take(1, &clock).is_err());
    }

    #[test]
    fn a_charge_takes_all_or_nothing() {
        let clock = clock();
        let mut bucket = TokenBucket::full(Quota::new(10.0, 1.0), &clock);
        assert_eq!(bucket.take(6, &clock), Ok(()));
        assert_eq!(bucket.take(6, &clock), Err(2 * SECOND));
        assert_eq!(bucket.take(4, &clock), Ok(()), "the rejected charge took nothing");
        bucket.refund(3);
        assert_eq!(bucket.take(3, &clock), Ok(()));
        bucket.refund(1000);
        assert_eq!(bucket.take(11, &clock), Err(Duration::MAX), "never more than the burst");
        assert_eq!(bucket.take(10, &clock), Ok(()));
    }

    #[test]
    fn time_that_goes_backwards_fills_no_bucket() {
        let clock = clock();
        let mut bucket = TokenBucket::full(Quota::new(30.0, 1.0), &clock);
        assert_eq!(bucket.take(30, &clock), Ok(()));
        // Back and forth again: the hour never passed, so it fills nothing either way
        for _ in 0..3 {
            clock.advance(-time::Duration::HOUR);
            assert_eq!(bucket.take(1, &clock), Err(SECOND));
            clock.advance(time::Duration::HOUR);
            assert_eq!(bucket.take(1, &clock), Err(SECOND));
        }
        clock.advance(time::Duration::SECOND);
        assert_eq!(bucket.take(1, &clock), Ok(()));
        assert!(bucket.take(1, &clock).is_err());
    }

    #[test]
    fn a_quota_without_burst_or_rate_rejects_charges() {
        let clock = clock();
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(TokenBucket::full(Quota::new(odd, 1.0), &clock).take(1, &clock), Err(Duration::MAX));
        }
        let mut bucket = TokenBucket::full(Quota::new(1.0, 0.0), &clock);
        assert_eq!(bucket.take(1, &clock), Ok(()));
        assert_eq!(bucket.take(1, &clock), Err(Duration::MAX));
        assert_eq!(TokenBucket::full(Quota::full_after(10.0, Duration::ZERO), &clock).take(10, &clock), Ok(()));
    }

    #[test]
    fn a_key_has_its_own_bucket_and_keeps_its_tokens_under_another_quota() {
        let clock = clock();
        let buckets = TokenBuckets::new(clock.clone(), 100);
        let quota = Quota::new(2.0, 1.0);
        assert_eq!(buckets.check(&"a", quota, 2), Ok(()));
        assert!(buckets.is_empty(), "a check remembers nothing");
        assert_eq!(buckets.take("a", quota, 2), Ok(()));
        assert_eq!(buckets.check(&"a", quota, 1), Err(SECOND));
        assert_eq!(buckets.take("b", quota, 1), Ok(()));
        assert!(buckets.take("a", Quota::new(30.0, 0.0), 1).is_err(), "a larger bucket is not a full one");
        clock.advance(time::Duration::DAY);
        assert!(buckets.take("a", quota, 1).is_err(), "the time before counts as it was");
        buckets.refund(&"a", 1);
        assert_eq!(buckets.take("a", quota, 1), Ok(()));
        buckets.take_up_to("c", quota, 1.5);
        assert_eq!(buckets.take("c", quota, 1), Err(Duration::from_millis(500)));
        buckets.take_up_to("c", quota, 1000.0);
        assert_eq!(buckets.take("c", quota, 1), Err(SECOND));
        assert_eq!(buckets.len(), 3);
    }

    #[test]
    fn many_new_keys_do_not_remove_an_empty_bucket_and_memory_is_bounded() {
        let buckets = TokenBuckets::new(clock(), 1000);
        let quota = Quota::new(30.0, 0.1);
        assert_eq!(buckets.take(0, quota, 30), Ok(()));
        for number in 1..5000 {
            assert_eq!(buckets.take(number, quota, 1), Ok(()));
            assert!(buckets.len() <= 1000);
        }
        assert!(buckets.take(0, quota, 1).is_err());
    }

    #[test]
    fn waits_are_rounded_up_to_seconds() {
        let hour = Duration::from_secs(3600);
        for (wait, seconds) in [(0, 1), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 1), (1_000_002, 2)] {
            assert_eq!(whole_seconds(Duration::from_micros(wait), hour), Duration::from_secs(seconds), "{wait}");
        }
        assert_eq!(whole_seconds(Duration::MAX, hour), hour);
    }
}
