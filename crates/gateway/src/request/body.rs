//! Request bodies: their limit, and the part that a service did not read.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;

/// The bytes of a rejected body that are read and discarded, so that the client can read the
/// response: a connection that is closed while data arrives loses what was sent last.
const DRAIN_BYTES: usize = 16 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(3);

/// The error of a body that is longer than its mount allows.
#[derive(Debug, thiserror::Error)]
#[error("the request body is longer than {0} bytes")]
struct TooLarge(usize);

/// The part of a body that a service did not read.
pub(crate) struct UnreadBody {
    pub(crate) body: Body,
    /// True if the service read up to the limit and got an error.
    pub(crate) too_large: bool,
}

/// A body that ends with an error beyond its limit, and is returned to the gateway if it is dropped
/// before its end.
pub(crate) struct RequestBody {
    inner: Body,
    limit: usize,
    left: usize,
    too_large: bool,
    back: Option<oneshot::Sender<UnreadBody>>,
}

impl RequestBody {
    /// Wraps a body. The unread part arrives at the receiver.
    pub(crate) fn new(inner: Body, limit: usize) -> (Self, oneshot::Receiver<UnreadBody>) {
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
            // The receiver is gone when the request is over
            let _ = back.send(UnreadBody { body, too_large: self.too_large });
        }
    }
}

/// Reads and discards the rest of a body, within bounds.
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
