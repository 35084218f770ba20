//! A body of several chunks in memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// A body that sends its chunks one after the other.
pub(crate) struct ChunkListBody {
    chunks: std::vec::IntoIter<Bytes>,
    remaining: u64,
}

impl ChunkListBody {
    /// Makes a body of known length.
    pub fn body(mut chunks: Vec<Bytes>) -> Body {
        if chunks.len() <= 1 {
            return chunks.pop().map_or_else(Body::empty, Body::from);
        }
        let remaining = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Body::new(Self { chunks: chunks.into_iter(), remaining })
    }
}

impl http_body::Body for ChunkListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.chunks.next().map(|chunk| {
            self.remaining = self.remaining.saturating_sub(chunk.len() as u64);
            Ok(Frame::data(chunk))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn the_body_has_all_chunks_and_a_known_length() {
        for chunks in [&[][..], &["[]"], &["[1", ",2", "]"]] {
            let body = ChunkListBody::body(chunks.iter().map(|chunk| Bytes::from_static(chunk.as_bytes())).collect());
            assert_eq!(body.size_hint().exact(), Some(chunks.concat().len() as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), chunks.concat());
        }
    }
}
