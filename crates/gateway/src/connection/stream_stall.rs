//! HTTP/2 streams whose reader reads nothing more.
//!
//! The library waits for a stream's window without a limit, and keeps the response for as long. So
//! each stream runs within a limit: where its body has returned bytes and is not asked for the next
//! ones in time, the stream is reset. Its connection continues, and so do streams that do not need
//! the window of the connection: where the stalled one has used it up, they wait until the client
//! opens it, and are reset in turn. A body that returns nothing for a while, as one of events, does
//! not count as stalled.
//!
//! Behind the end of a stream the library may still keep its last slice, until the connection
//! ends. That is a copy, which keeps nothing else, and a connection without a stream ends after the
//! idle time.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::stall_time::StallTime;

/// The most bytes that a stream takes from a body at once: a frame of HTTP/2. The reader has the
/// limit of time for each of them.
const SLICE: usize = 16 * 1024;

tokio::task_local! {
    static PROGRESS: Arc<StreamProgress>;
}

/// The progress of a stream.
#[derive(Debug, Default)]
struct StreamProgress {
    /// The number of slices that its body has returned.
    slices: AtomicU64,
    /// The body was asked last when it returned a slice, so the reader is awaited.
    awaits_reader: AtomicBool,
}

/// Runs the streams of a connection in tasks of their own, within a limit.
#[derive(Debug, Clone)]
pub(super) struct StreamExecutor {
    stall: Duration,
}

impl StreamExecutor {
    /// Returns an executor. A reader may read nothing of a stream for the time `stall`.
    pub fn new(stall: Duration) -> Self {
        Self { stall }
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        tokio::spawn(run_limited(stream, self.stall));
    }
}

/// Runs a stream until its end, or until its reader has read nothing for the time `stall`. A stream
/// that is dropped before its end is reset.
async fn run_limited(stream: impl Future<Output = ()>, stall: Duration) {
    let progress = Arc::new(StreamProgress::default());
    let mut stream = pin!(PROGRESS.scope(Arc::clone(&progress), stream));
    let (mut stall, mut seen) = (StallTime::new(stall), 0);
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let slices = progress.slices.load(Ordering::Relaxed);
        let awaits_reader = progress.awaits_reader.load(Ordering::Relaxed);
        if !awaits_reader || slices != seen {
            seen = slices;
            let _ = stall.limit(context, Poll::Ready(Ok(())));
        }
        if awaits_reader && stall.limit::<()>(context, Poll::Pending).is_ready() {
            tracing::debug!("a stream is reset: its reader reads nothing");
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// The body of a response by HTTP/2, in slices whose progress counts for its stream.
pub(super) struct SlicedBody<B> {
    body: B,
    /// The rest of a frame of the body.
    rest: Bytes,
    /// That frame had more than one slice.
    is_divided: bool,
    /// `None` outside of a stream.
    progress: Option<Arc<StreamProgress>>,
}

impl<B> SlicedBody<B> {
    /// Wraps a body of the stream that is running.
    pub fn new(body: B) -> Self {
        Self { body, rest: Bytes::new(), is_divided: false, progress: PROGRESS.try_with(Arc::clone).ok() }
    }

    fn record(&self, has_slice: bool) {
        if let Some(progress) = &self.progress {
            progress.slices.fetch_add(u64::from(has_slice), Ordering::Relaxed);
            progress.awaits_reader.store(has_slice, Ordering::Relaxed);
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for SlicedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        this.record(false);
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => (this.is_divided, this.rest) = (data.len() > SLICE, data),
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let mut slice = this.rest.split_to(SLICE.min(this.rest.len()));
        if this.is_divided && this.rest.is_empty() {
            // It may be kept, and must not keep the whole frame
            slice = Bytes::copy_from_slice(&slice);
        }
        this.record(true);
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, Full, StreamBody};

    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    /// Returns true if a stream ends by itself.
    async fn ends(stream: impl Future<Output = ()>) -> bool {
        let has_ended = AtomicBool::new(false);
        let stream = async {
            stream.await;
            has_ended.store(true, Ordering::Relaxed);
        };
        run_limited(stream, STALL).await;
        has_ended.into_inner()
    }

    /// Reads a body of 100 slices, with a pause behind each.
    async fn read(pause: Duration) {
        let mut body = SlicedBody::new(Full::new(Bytes::from(vec![b'x'; 100 * SLICE])));
        while let Some(Ok(_)) = body.frame().await {
            tokio::time::sleep(pause).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_early_only_if_its_reader_reads_nothing_for_the_limit() {
        assert!(ends(read(STALL - Duration::from_secs(1))).await, "a slow reader");
        assert!(!ends(read(STALL + Duration::from_secs(1))).await, "a stalled one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_silent_is_no_stalled_reader() {
        let silent = async {
            let frames = stream::iter(0..3).then(|_| async {
                tokio::time::sleep(STALL * 10).await;
                Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"event")))
            });
            let mut body = SlicedBody::new(StreamBody::new(Box::pin(frames)));
            while body.frame().await.is_some() {}
        };
        assert!(ends(silent).await);
    }

    #[tokio::test]
    async fn a_body_is_the_same_in_slices() {
        let content: Vec<u8> = (0..SLICE * 2 + 5).map(|n| (n % 251) as u8).collect();
        let mut body = SlicedBody::new(Full::new(Bytes::from(content.clone())));
        let (mut read, mut sizes) = (Vec::new(), Vec::new());
        while !body.is_end_stream() {
            assert_eq!(body.size_hint().exact(), Some((content.len() - read.len()) as u64));
            let slice = body.frame().await.unwrap().unwrap().into_data().unwrap();
            sizes.push(slice.len());
            read.extend_from_slice(&slice);
        }
        assert_eq!((sizes, read), (vec![SLICE, SLICE, 5], content));
    }

    #[tokio::test]
    async fn the_last_slice_keeps_nothing_of_the_frame_before_it() {
        let frame = Bytes::from(vec![b'x'; SLICE + 5]);
        let mut body = SlicedBody::new(Full::new(frame.clone()));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.as_ptr(), frame.as_ptr(), "the others are no copies");
        drop((first, body));
        assert!(frame.is_unique());
        assert_eq!(last, frame[SLICE..]);
    }
}
