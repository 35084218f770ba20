//! The body of an upload as a stream that ends if its sender is silent for too long.

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

/// The body of an upload.
pub(super) struct UploadBody {
    body: Body,
    idle_timeout: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl UploadBody {
    /// Wraps a body that may be silent for at most `idle_timeout`.
    pub fn new(body: Body, idle_timeout: Duration) -> Self {
        Self { body, idle_timeout, deadline: Box::pin(tokio::time::sleep(idle_timeout)) }
    }
}

impl Stream for UploadBody {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    let next = Instant::now() + this.idle_timeout;
                    this.deadline.as_mut().reset(next);
                    // Trailers have no meaning here
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(StorageError::Aborted))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    return this.deadline.as_mut().poll(context).map(|()| Some(Err(StorageError::Stalled)));
                }
            }
        }
    }
}
