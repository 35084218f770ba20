//! Request bodies: their limit, and what happens to the part that nobody read.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;

/// How much of a body that was refused is read and thrown away, so that the client gets to read the answer:
/// a connection that is closed while data arrives loses what was sent last.
const DRAIN_BYTES: usize = 16 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(3);

/// The body is longer than its mount allows.
#[derive(Debug, thiserror::Error)]
#[error("the request body is longer than {0} bytes")]
struct TooLarge(usize);

/// What a service left of a body.
pub(crate) struct Rest {
    pub(crate) body: Body,
    /// The service read up to the limit and got an error.
    pub(crate) too_large: bool,
}

/// A body that ends with an error beyond its limit, and comes back when it is dropped before its end.
pub(crate) struct RequestBody {
    inner: Body,
    limit: usize,
    left: usize,
    too_large: bool,
    back: Option<oneshot::Sender<Rest>>,
}

impl RequestBody {
    /// Wraps a body; what is left of it arrives at the receiver.
    pub(crate) fn new(inner: Body, limit: usize) -> (Self, oneshot::Receiver<Rest>) {
        let (back, rest) = oneshot::channel();
        (Self { inner, limit, left: limit, too_large: false, back: Some(back) }, rest)
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.too_large {
            return Poll::Ready(None);
        }
        match std::task::ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                match self.left.checked_sub(length) {
                    Some(left) => {
                        self.left = left;
                        Poll::Ready(Some(Ok(frame)))
                    }
                    None => {
                        self.too_large = true;
                        Poll::Ready(Some(Err(Box::new(TooLarge(self.limit)))))
                    }
                }
            }
            Some(Err(error)) => Poll::Ready(Some(Err(Box::new(error)))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(back) = self.back.take()
            && (self.too_large || !self.inner.is_end_stream())
        {
            let body = std::mem::replace(&mut self.inner, Body::empty());
            // Nobody waits when the request is over
            let _ = back.send(Rest { body, too_large: self.too_large });
        }
    }
}

/// Reads and forgets what is left of a body, within bounds.
pub(crate) async fn drain(mut body: Body) {
    let _ = tokio::time::timeout(DRAIN_TIME, async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DRAIN_BYTES {
                break;
            }
        }
    })
    .await;
}
