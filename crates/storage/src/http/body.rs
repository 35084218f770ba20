//! The body of an upload as a stream that ends if its sender is silent for too long or too slow.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::Stream;
use http_body::Body as _;
use tokio::time::{Instant, Sleep};

use crate::error::{Result, StorageError};
use crate::settings::StorageSettings;

/// The body of an upload.
pub(crate) struct UploadBody {
    body: Body,
    idle_timeout: Duration,
    rate: LowestRate,
    received: u64,
    /// The time at which the body is ended unless more of it arrives.
    deadline: Pin<Box<Sleep>>,
}

/// The lowest average rate of a body.
struct LowestRate {
    /// In bytes per second.
    rate: u64,
    begin: Instant,
    /// The time for which every rate is allowed.
    after: Duration,
}

impl LowestRate {
    /// Returns the time at which the average falls below the rate if nothing more arrives; `None`
    /// without a limit.
    fn end(&self, received: u64) -> Option<Instant> {
        let seconds = received.checked_div(self.rate)?;
        self.begin.checked_add(self.after.max(Duration::from_secs(seconds)))
    }
}

impl UploadBody {
    /// Wraps a body, which is limited by the settings from now on.
    pub fn new(body: Body, settings: &StorageSettings) -> Self {
        let begin = Instant::now();
        let rate = LowestRate { rate: settings.min_upload_rate, begin, after: settings.min_rate_after };
        let mut body = Self {
            body,
            idle_timeout: settings.idle_timeout,
            rate,
            received: 0,
            deadline: Box::pin(tokio::time::sleep(settings.idle_timeout)),
        };
        body.postpone();
        body
    }

    /// Sets the deadline after something has arrived.
    fn postpone(&mut self) {
        let idle = Instant::now() + self.idle_timeout;
        let slow = self.rate.end(self.received);
        self.deadline.as_mut().reset(slow.map_or(idle, |slow| slow.min(idle)));
    }

    /// Returns the reason why the body is ended at its deadline.
    fn failure(&self) -> StorageError {
        let is_slow = self.rate.end(self.received).is_some_and(|end| end <= Instant::now());
        if is_slow { StorageError::TooSlow } else { StorageError::Stalled }
    }
}

impl Stream for UploadBody {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    let data = frame.into_data();
                    this.received += data.as_ref().map_or(0, Bytes::len) as u64;
                    this.postpone();
                    // Trailers have no meaning here
                    if let Ok(data) = data {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(StorageError::Aborted))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    return this.deadline.as_mut().poll(context).map(|()| Some(Err(this.failure())));
                }
            }
        }
    }

    /// Only tells whether the end was reached: then the upper bound is 0.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.body.is_end_stream().then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    /// Returns a body of 40 chunks.
    fn body(interval: Duration, size: usize) -> Body {
        let chunks = futures_util::stream::unfold((), move |()| async move {
            tokio::time::sleep(interval).await;
            Some((Ok::<_, std::convert::Infallible>(Bytes::from(vec![b'x'; size])), ()))
        });
        Body::from_stream(chunks.take(40))
    }

    #[tokio::test]
    async fn a_body_below_the_lowest_rate_is_ended_and_a_faster_one_is_not() {
        let settings = StorageSettings {
            min_upload_rate: 1000,
            min_rate_after: Duration::from_millis(50),
            ..StorageSettings::in_folder("/")
        };
        // The idle timeout never applies to these
        for (size, outcome) in [(1, Err(StorageError::TooSlow)), (100_000, Ok(()))] {
            let body = UploadBody::new(body(Duration::from_millis(10), size), &settings);
            let chunks: Vec<Result<Bytes>> = body.collect_until_error().await;
            assert_eq!(chunks.last().cloned().map(|last| last.map(drop)), Some(outcome), "{size}");
        }
    }

    #[tokio::test]
    async fn a_body_of_a_known_size_tells_its_end() {
        let mut body = UploadBody::new(Body::from("abc"), &StorageSettings::in_folder("/"));
        assert_eq!(body.size_hint(), (0, None));
        assert_eq!(body.next().await, Some(Ok(Bytes::from_static(b"abc"))));
        assert_eq!(body.size_hint(), (0, Some(0)));
        assert_eq!(body.next().await, None);
    }

    impl UploadBody {
        async fn collect_until_error(mut self) -> Vec<Result<Bytes>> {
            let mut chunks = Vec::new();
            while let Some(chunk) = self.next().await {
                let has_failed = chunk.is_err();
                chunks.push(chunk);
                if has_failed {
                    break;
                }
            }
            chunks
        }
    }
}
