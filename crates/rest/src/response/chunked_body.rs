//! A body whose pieces lie in memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// ChunkedBody that go out one after the other.
pub(crate) struct ChunkedBody {
    pieces: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl ChunkedBody {
    /// A body of these pieces, of known length.
    pub fn body(mut pieces: Vec<Bytes>) -> Body {
        if pieces.len() <= 1 {
            return pieces.pop().map_or_else(Body::empty, Body::from);
        }
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Body::new(Self { pieces: pieces.into_iter(), left })
    }
}

impl http_body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.pieces.next().map(|piece| {
            self.left = self.left.saturating_sub(piece.len() as u64);
            Ok(Frame::data(piece))
        }))
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
    use http_body::Body as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn the_pieces_are_the_body_and_its_length_is_known() {
        for pieces in [&[][..], &["[]"], &["[1", ",2", "]"]] {
            let body = ChunkedBody::body(pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect());
            assert_eq!(body.size_hint().exact(), Some(pieces.concat().len() as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), pieces.concat());
        }
    }
}
