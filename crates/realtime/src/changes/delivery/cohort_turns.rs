//! The turns of cohorts: for how many of them PostgreSQL decides at once.

use std::num::NonZero;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// The number of cohorts with a turn while all of them are quick: one for each processor, and one
/// whose changes are sent. With more, PostgreSQL works on all of them at the same time, and the
/// first ones are answered as late as the last.
static QUICK_AT_ONCE: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get).max(2) + 1);
/// The time after which a cohort that is not decided is slow: the others do not wait for it any
/// more.
const PATIENCE: Duration = Duration::from_millis(5);

/// The turns of the cohorts of a slice.
#[derive(Debug)]
pub(in crate::changes) struct CohortTurns {
    all: Semaphore,
    quick: Semaphore,
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(in crate::changes) struct CohortTurn<'a> {
    _of_all: Option<SemaphorePermit<'a>>,
    _of_quick: Option<SemaphorePermit<'a>>,
}

impl CohortTurns {
    /// Returns turns for at most `at_once` cohorts at once, however slow they are.
    pub fn new(at_once: usize) -> Self {
        Self { all: Semaphore::new(at_once), quick: Semaphore::new(at_once.min(*QUICK_AT_ONCE)) }
    }

    /// Waits for a turn, and then for the decision. Returns the turn too.
    pub async fn decide<T>(&self, decision: impl Future<Output = T>) -> (T, CohortTurn<'_>) {
        // They are never closed
        let of_all = self.all.acquire().await.ok();
        let of_quick = self.quick.acquire().await.ok();
        let mut decision = pin!(decision);
        let (decided, of_quick) = match tokio::time::timeout(PATIENCE, decision.as_mut()).await {
            Ok(decided) => (decided, of_quick),
            Err(_) => {
                drop(of_quick);
                (decision.await, None)
            }
        };
        (decided, CohortTurn { _of_all: of_all, _of_quick: of_quick })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::{StreamExt as _, stream};
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Decides on cohorts that take this time each. Returns the largest number of undecided ones
    /// with a turn, and the time until all were decided.
    async fn decide(turns: &CohortTurns, cohorts: usize, time: Duration) -> (usize, Duration) {
        let (begun, running, most) = (Instant::now(), Cell::new(0), Cell::new(0));
        let decided = stream::iter(0..cohorts).map(|_| {
            turns.decide(async {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                sleep(time).await;
                running.set(running.get() - 1);
            })
        });
        decided.buffer_unordered(cohorts).for_each(async |_| ()).await;
        (most.get(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn few_quick_cohorts_have_a_turn_at_once() {
        let cohorts = 4 * *QUICK_AT_ONCE;
        let (most, _) = decide(&CohortTurns::new(cohorts), cohorts, PATIENCE / 2).await;
        assert_eq!(most, *QUICK_AT_ONCE);
        assert_eq!(decide(&CohortTurns::new(2), cohorts, PATIENCE / 2).await.0, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_cohorts_do_not_delay_the_others() {
        let (hour, waits) = (Duration::from_secs(3600), 20_u32.div_ceil(u32::try_from(*QUICK_AT_ONCE).unwrap()));
        let turns = CohortTurns::new(20);
        let (most, time) = decide(&turns, 20, hour).await;
        assert_eq!(most, 20);
        assert!(time <= hour + waits * PATIENCE, "{time:?}");
        assert_eq!(decide(&turns, 60, hour).await.0, 20, "and their number is bounded");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_lasts_until_it_is_dropped() {
        let turns = CohortTurns::new(1);
        let (decided, turn) = turns.decide(async { 1 }).await;
        let next = turns.decide(async { 2 });
        let mut next = pin!(next);
        assert!(tokio::time::timeout(10 * PATIENCE, next.as_mut()).await.is_err());
        drop(turn);
        assert_eq!((decided, next.await.0), (1, 2));
    }
}
