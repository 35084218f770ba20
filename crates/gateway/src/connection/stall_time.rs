//! The time for which a client may read nothing of what is written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The time since the last progress of a connection's writes.
#[derive(Debug)]
pub(super) struct StallTime {
    limit: Duration,
    /// The time since which a write has been waiting.
    since: Option<Instant>,
    /// Kept from one wait to the next: most of them are short.
    end: Option<Pin<Box<Sleep>>>,
}

impl StallTime {
    pub fn new(limit: Duration) -> Self {
        Self { limit, since: None, end: None }
    }

    /// Returns the outcome of a write, or `TimedOut` if the writes have waited for too long.
    pub fn limit<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.since = None;
            return outcome;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        // A limit beyond the end of time is no limit
        let Some(over) = since.checked_add(self.limit) else { return Poll::Pending };
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(over)));
        loop {
            ready!(end.as_mut().poll(context));
            if Instant::now() >= over {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            // It was set by an earlier wait
            end.as_mut().reset(over);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    #[tokio::test]
    async fn a_wait_without_progress_is_limited() {
        let mut stall = StallTime::new(Duration::ZERO);
        let cut_off = poll_fn(|context| stall.limit(context, Poll::<io::Result<()>>::Pending)).await;
        assert_eq!(cut_off.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn progress_begins_the_next_wait_anew() {
        let mut context = Context::from_waker(Waker::noop());
        for limit in [Duration::from_secs(3600), Duration::MAX] {
            let mut stall = StallTime::new(limit);
            assert!(stall.limit(&mut context, Poll::<io::Result<()>>::Pending).is_pending());
            assert!(stall.since.is_some());
            assert!(matches!(stall.limit(&mut context, Poll::Ready(Ok(1))), Poll::Ready(Ok(1))));
            assert!(stall.since.is_none());
        }
    }
}
