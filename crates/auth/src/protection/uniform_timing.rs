//! Answers that take as long for everybody.
//!
//! Whether an address has an account shows in how long its answer takes, however alike the work is: another row, a
//! longer transaction. So where a message is asked for, the answer waits for the next tick after the work. A difference
//! of a millisecond then moves no answer but those that end right beside a tick, and nobody notices the wait: the
//! message takes longer. The work itself is kept alike as well, since under load it ends anywhere between the ticks.

use std::time::Duration;

use tokio::time::Instant;

/// Several times what the work takes on an idle server.
const TICK: Duration = Duration::from_millis(20);

/// Does `work`, and ends a whole number of ticks after its beginning. Nothing is held meanwhile that `work` does not
/// return.
pub(crate) async fn evenly<T>(work: impl Future<Output = T>) -> T {
    let begin = Instant::now();
    let done = work.await;
    tokio::time::sleep_until(begin + next_tick(begin.elapsed())).await;
    done
}

fn next_tick(taken: Duration) -> Duration {
    let ticks = taken.as_nanos() / TICK.as_nanos() + 1;
    TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_a_little_longer_ends_at_the_same_tick() {
        let ends = |micros| next_tick(Duration::from_micros(micros)).as_millis();
        assert_eq!([ends(0), ends(1_900), ends(3_300), ends(19_999)], [20, 20, 20, 20]);
        assert_eq!([ends(20_000), ends(39_999), ends(61_000)], [40, 40, 80]);
        assert!(next_tick(Duration::MAX) > TICK);
    }

    #[tokio::test]
    async fn no_answer_comes_before_its_tick() {
        let begin = Instant::now();
        assert_eq!(evenly(async { 5 }).await, 5);
        assert!(begin.elapsed() >= TICK);
    }
}
