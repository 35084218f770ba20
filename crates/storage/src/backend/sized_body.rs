//! Bodies whose size is known before the first byte.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};

/// A body of exactly `left` more bytes, unless it fails.
pub(super) struct SizedBody<S> {
    chunks: S,
    left: u64,
}

impl<S> SizedBody<S> {
    /// Makes a body of chunks that have `size` bytes together.
    pub fn new(chunks: S, size: u64) -> Self {
        Self { chunks, left: size }
    }
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Body for SizedBody<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let next = ready!(Pin::new(&mut self.chunks).poll_next(context));
        self.left = match &next {
            Some(Ok(chunk)) => self.left.saturating_sub(chunk.len() as u64),
            Some(Err(_)) => 0,
            // The connection sees that bytes are missing
            None => self.left,
        };
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_counts_what_is_left() {
        let chunks = [Ok(Bytes::from_static(b"four")), Ok(Bytes::from_static(b"and")), Ok(Bytes::from_static(b"more"))];
        let mut body = SizedBody::new(stream::iter(chunks), 7);
        for (chunk, left) in [("four", 3), ("and", 0)] {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), chunk);
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), left == 0));
        }
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_body_ends_with_its_first_error() {
        let chunks = [Err(io::ErrorKind::BrokenPipe.into()), Ok(Bytes::from_static(b"late"))];
        let mut body = SizedBody::new(stream::iter(chunks), 4);
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_body_that_is_short_does_not_say_that_it_is_complete() {
        let mut body = SizedBody::new(stream::iter([Ok(Bytes::from_static(b"half"))]), 8);
        body.frame().await.unwrap().unwrap();
        assert!(body.frame().await.is_none() && !body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(4));
    }
}
