//! The MD5 of content that arrives piece by piece.

use bytes::Bytes;
use md5::{Digest as _, Md5};
use portico_base::spawn_blocking;
use tokio::task::JoinHandle;

use super::file::finished;
use crate::backend::model::BackendError;

/// The most bytes that are hashed at once on the thread of a request: more would take longer than
/// to pass them to another thread.
const INLINE: usize = 16 * 1024;

/// The MD5 of the pieces so far. The last ones may still be hashed on a thread of their own, while
/// they are written or flushed.
pub(super) enum ContentDigest {
    Ready(Md5),
    Hashing(JoinHandle<Result<Md5, BackendError>>),
}

impl ContentDigest {
    /// Returns the digest of nothing.
    pub fn new() -> Self {
        Self::Ready(Md5::new())
    }

    async fn ready(self) -> Result<Md5, BackendError> {
        match self {
            Self::Ready(digest) => Ok(digest),
            Self::Hashing(hashing) => finished(hashing).await,
        }
    }

    /// Waits for the pieces before, and begins to hash further ones.
    pub async fn update(self, chunks: &[Bytes]) -> Result<Self, BackendError> {
        let mut digest = self.ready().await?;
        if chunks.iter().map(Bytes::len).sum::<usize>() <= INLINE {
            chunks.iter().for_each(|chunk| digest.update(chunk));
            return Ok(Self::Ready(digest));
        }
        let chunks = chunks.to_vec();
        Ok(Self::Hashing(spawn_blocking(move || {
            chunks.iter().for_each(|chunk| digest.update(chunk));
            Ok(digest)
        })))
    }

    /// Returns the digest in hexadecimal digits.
    pub async fn finish(self) -> Result<String, BackendError> {
        Ok(hex::encode(self.ready().await?.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_are_hashed_in_their_order_wherever_that_happens() {
        let all: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
        let mut digest = ContentDigest::new();
        let mut rest = Bytes::from(all.clone());
        for size in [1, INLINE, INLINE + 1, 300_000, 0, 5, 400_000, 100].into_iter().cycle() {
            let piece = rest.split_to(size.min(rest.len()));
            let middle = piece.len() / 2;
            digest = digest.update(&[piece.slice(..middle), piece.slice(middle..)]).await.unwrap();
            if rest.is_empty() {
                break;
            }
        }
        assert_eq!(digest.finish().await.unwrap(), hex::encode(Md5::digest(&all)));
        assert_eq!(ContentDigest::new().finish().await.unwrap(), "d41d8cd98f00b204e9800998ecf8427e");
    }
}
