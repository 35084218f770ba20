//! The time that the database may spend on the filters of a subscriber.
//!
//! All changes wait for the conditions of the ones before them. So the filters of a subscriber have
//! a share of the time, whatever their number, and are paused when they exceed it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The time that the filters of a subscriber may take at once.
const BURST: Duration = Duration::from_secs(2);
/// The share of the time that they may take in the long run: one in this number.
const SHARE: u32 = 20;
/// The largest number of subscribers whose time is known. The one that has spent least makes room
/// for a further one.
const MAX_SUBSCRIBERS: usize = 10_000;

/// The one whose filters are evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum FilterOwner {
    /// A person, with any of its tokens.
    Person(Arc<str>),
    /// A group of subscriptions of a reader without a subject: visitors have the same claims, and
    /// must not be paused for each other.
    Group(u64),
}

/// The time that the filters of subscribers have taken.
#[derive(Debug, Default)]
pub(crate) struct ConditionBudgets(HashMap<FilterOwner, SpentTime>);

/// The time that was spent until a moment. It decreases by [`SHARE`].
#[derive(Debug, Clone, Copy)]
struct SpentTime {
    time: Duration,
    at: Instant,
}

impl SpentTime {
    fn left(&self, now: Instant) -> Duration {
        self.time.saturating_sub(now.duration_since(self.at) / SHARE)
    }
}

impl ConditionBudgets {
    /// Notes what the filters of a subscriber have taken. Returns true if it is too much. What was
    /// spent is forgotten then.
    pub fn spend(&mut self, owner: &FilterOwner, time: Duration) -> bool {
        self.spend_at(owner, time, Instant::now())
    }

    fn spend_at(&mut self, owner: &FilterOwner, time: Duration, now: Instant) -> bool {
        let time = time + self.0.remove(owner).map_or(Duration::ZERO, |spent| spent.left(now));
        if time > BURST {
            return true;
        }
        if self.0.len() >= MAX_SUBSCRIBERS {
            self.0.retain(|_, spent| !spent.left(now).is_zero());
        }
        if self.0.len() >= MAX_SUBSCRIBERS
            && let Some(least) = self.0.iter().min_by_key(|(_, spent)| spent.left(now)).map(|(owner, _)| owner.clone())
        {
            self.0.remove(&least);
        }
        self.0.insert(owner.clone(), SpentTime { time, at: now });
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_a_share_of_the_time() {
        let (mut budgets, start, owner) = (ConditionBudgets::default(), Instant::now(), FilterOwner::Group(1));
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            assert!(!budgets.spend_at(&owner, Duration::from_secs(1) / SHARE, now), "{second}");
        }
        let now = start + Duration::from_secs(100);
        assert!(!budgets.spend_at(&owner, BURST, now));
        assert!(!budgets.spend_at(&FilterOwner::Group(2), BURST, now), "each has its own");
        assert!(budgets.spend_at(&owner, Duration::from_millis(1), now));
        assert!(!budgets.spend_at(&owner, BURST, now), "forgotten");
    }

    #[test]
    fn the_number_of_budgets_is_bounded() {
        let (mut budgets, now) = (ConditionBudgets::default(), Instant::now());
        for number in 0..=MAX_SUBSCRIBERS as u64 {
            budgets.spend_at(&FilterOwner::Group(number), Duration::from_micros(number + 1), now);
        }
        assert_eq!(budgets.0.len(), MAX_SUBSCRIBERS);
        assert!(!budgets.0.contains_key(&FilterOwner::Group(0)));
    }
}
