//! Uniform timing: responses whose duration does not reveal whether an account exists.
//!
//! However similar the work is, an existing account costs another row or a longer transaction. So
//! where a message is requested, the response waits for the next tick after the work. A difference
//! of a millisecond then moves only those responses that end close to a tick, and the wait is short
//! compared with the delivery of a message. The work itself is kept similar as well, since under
//! load it ends anywhere between the ticks.

use std::time::Duration;

use tokio::time::Instant;

/// Several times the duration of the work on an idle server.
const TICK: Duration = Duration::from_millis(20);

/// Runs `work`, and returns a whole number of ticks after its start. During the wait nothing is
/// held except the result of `work`.
pub(crate) async fn with_uniform_timing<T>(work: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let result = work.await;
    tokio::time::sleep_until(start + next_tick(start.elapsed())).await;
    result
}

fn next_tick(taken: Duration) -> Duration {
    let ticks = taken.as_nanos() / TICK.as_nanos() + 1;
    TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slightly_longer_work_ends_at_the_same_tick() {
        let ends = |micros| next_tick(Duration::from_micros(micros)).as_millis();
        assert_eq!([ends(0), ends(1_900), ends(3_300), ends(19_999)], [20, 20, 20, 20]);
        assert_eq!([ends(20_000), ends(39_999), ends(61_000)], [40, 40, 80]);
        assert!(next_tick(Duration::MAX) > TICK);
    }

    #[tokio::test]
    async fn no_result_is_returned_before_its_tick() {
        let start = Instant::now();
        assert_eq!(with_uniform_timing(async { 5 }).await, 5);
        assert!(start.elapsed() >= TICK);
    }
}
