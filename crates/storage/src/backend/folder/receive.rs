//! Uploads on their way to disk: hashed and written piece by piece.

use portico_base::spawn_blocking;
use portico_md5::Md5State;

use super::file::finished;
use super::store::ContentFolder;
use super::writers::{FinishDraft, HashedDraft, PieceTarget, PieceWriters, WrittenPiece};
use crate::backend::model::{BackendError, ContentStream};
use crate::backend::piece_hasher::Piece;
use crate::backend::piece_permit::{PIECE_SIZE, PiecePermit, PiecePermits, arrived};

impl ContentFolder {
    /// Receives content of at most `limit` bytes into a draft. Behind its last piece, `finish` is
    /// called with the draft on the thread that has written it. That may happen though this is
    /// cancelled. Also returns the size of the content.
    pub(super) async fn receive(
        &self,
        content: ContentStream<'_>,
        limit: u64,
        finish: FinishDraft,
    ) -> Result<(HashedDraft, u64), BackendError> {
        let draft = PieceTarget::New(self.incoming.new_path(), limit);
        let next = Some((draft, Md5State::default()));
        let mut pieces = Pieces { writers: &self.writers, next, writing: None };
        let (mut size, mut finish) = (0_u64, Some(finish));
        let received = async {
            loop {
                let permit = match self.permits.try_acquire() {
                    // The piece is received while that before it is written
                    Some(permit) => permit,
                    // Another upload has use for the permit meanwhile
                    None => {
                        pieces.wait().await?;
                        self.permits.acquire().await
                    }
                };
                let (piece, has_ended) = gather(content, &self.permits, permit).await?;
                size += piece.size() as u64;
                if size > limit {
                    return Err(BackendError::TooLarge);
                }
                pieces.write(piece, finish.take_if(|_| has_ended)).await?;
                if has_ended {
                    return pieces.wait().await;
                }
            }
        };
        let received = received.await;
        // Also after a failure: the draft is deleted behind the last write
        let last = pieces.wait().await;
        match (received.and(last), pieces.next.take()) {
            (Ok(()), Some((PieceTarget::Begun(writer), digest))) => Ok((HashedDraft { writer, digest }, size)),
            (received, target) => {
                // To delete a large file takes a while
                let _ = finished(spawn_blocking(move || {
                    drop(target);
                    Ok(())
                }))
                .await;
                received.and(Err(BackendError::NotFound))
            }
        }
    }
}

/// The pieces of an upload, which are written one after another.
struct Pieces<'a> {
    writers: &'a PieceWriters,
    /// The file that the next piece is appended to, and the MD5 of what it has; `None` while a
    /// piece is written.
    next: Option<(PieceTarget, Md5State)>,
    writing: Option<WrittenPiece>,
}

impl Pieces<'_> {
    /// Waits until all pieces are written.
    async fn wait(&mut self) -> Result<(), BackendError> {
        if let Some(writing) = self.writing.take() {
            let HashedDraft { writer, digest } = writing.finish().await?;
            self.next = Some((PieceTarget::Begun(writer), digest));
        }
        Ok(())
    }

    /// Waits until all pieces are written, and begins to write the next one.
    async fn write(&mut self, piece: Piece, finish: Option<FinishDraft>) -> Result<(), BackendError> {
        self.wait().await?;
        let next = self.next.take();
        self.writing = next.map(|(target, digest)| self.writers.write(target, digest, piece, finish));
        Ok(())
    }
}

/// Waits for content, and returns it with what has arrived meanwhile: it shares the hop to another
/// thread. Also returns whether nothing follows.
async fn gather(
    content: ContentStream<'_>,
    permits: &PiecePermits,
    permit: PiecePermit,
) -> Result<(Piece, bool), BackendError> {
    let never = std::future::pending();
    let (permit, first) = permits.first_chunk(permit, content, never).await.ok_or(BackendError::NotFound)?;
    let mut next = first.transpose().map_err(BackendError::Source)?;
    let (mut piece, mut size) = (Piece { chunks: Vec::new(), _permit: permit }, 0);
    while let Some(chunk) = next {
        size += chunk.len();
        piece.chunks.push(chunk);
        // Content whose size is known tells that only its end follows, which belongs to this piece
        if size >= PIECE_SIZE && content.size_hint() != (0, Some(0)) {
            return Ok((piece, false));
        }
        // No permit is held while a client is waited for
        let Some(arrived) = arrived(content).await else { return Ok((piece, false)) };
        next = arrived.transpose().map_err(BackendError::Source)?;
    }
    Ok((piece, true))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::StreamExt as _;
    use futures_util::future::join_all;
    use futures_util::stream;

    use super::*;
    use crate::backend::interface::Backend as _;
    use crate::backend::model::VersionKey;
    use crate::error::StorageError;

    /// The uploads of a test: many more than there are permits.
    const UPLOADS: u128 = 200;
    /// Long enough for a machine under load; no passing test waits that long.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn key(version: u128) -> VersionKey {
        VersionKey::new("bucket", "a", Some(&uuid::Uuid::from_u128(version).to_string()))
    }

    #[tokio::test]
    async fn silent_clients_hold_no_permit() {
        let root = tempfile::tempdir().unwrap();
        let folder = Arc::new(ContentFolder::open(root.path()).unwrap());
        let silent = (0..UPLOADS).map(|version| {
            let folder = Arc::clone(&folder);
            tokio::spawn(async move {
                let mut begun = stream::iter([Ok(Bytes::from_static(b"abc"))]).chain(stream::pending());
                folder.put(&key(version), &mut begun, 100).await
            })
        });
        let silent: Vec<_> = silent.collect();
        let are_written = async {
            let written = || {
                let drafts = std::fs::read_dir(root.path().join("incoming")).unwrap();
                drafts.filter(|draft| draft.as_ref().unwrap().metadata().unwrap().len() == 3).count()
            };
            while written() < silent.len() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, are_written).await.expect("every upload has had a permit");
        let mut whole = stream::iter([Ok(Bytes::from_static(b"abc"))]);
        let key = key(UPLOADS);
        let stored = tokio::time::timeout(PATIENCE, folder.put(&key, &mut whole, 100));
        assert_eq!(stored.await.expect("another one has a permit").unwrap().size, 3);
        silent.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn content_that_tells_its_end_has_no_empty_piece() {
        let permits = PiecePermits::default();
        let permit = || permits.try_acquire().unwrap();
        let chunks = |sizes: &'static [usize]| stream::iter(sizes).map(|size| Ok(Bytes::from(vec![b'x'; *size])));
        let mut content = chunks(&[PIECE_SIZE / 2, PIECE_SIZE / 2, PIECE_SIZE]);
        for has_ended in [false, true] {
            let (piece, is_last) = gather(&mut content, &permits, permit()).await.unwrap();
            assert_eq!((piece.size(), is_last), (PIECE_SIZE, has_ended));
        }
        // A stream that does not know has one
        let mut content = chunks(&[PIECE_SIZE]).chain(stream::poll_fn(|_| std::task::Poll::Ready(None)));
        for (size, has_ended) in [(PIECE_SIZE, false), (0, true)] {
            let (piece, is_last) = gather(&mut content, &permits, permit()).await.unwrap();
            assert_eq!((piece.size(), is_last), (size, has_ended));
        }
    }

    /// A chunk that counts among the bytes in memory until it is dropped.
    struct CountedChunk<'a> {
        bytes: Vec<u8>,
        in_memory: &'a AtomicUsize,
    }

    impl AsRef<[u8]> for CountedChunk<'_> {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Drop for CountedChunk<'_> {
        fn drop(&mut self) {
            self.in_memory.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn the_uploads_of_many_take_the_memory_of_few() {
        const CHUNK: usize = 16 * 1024;
        static IN_MEMORY: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let permits = folder.permits.free();
        let uploads = (0..UPLOADS).map(|version| {
            let folder = &folder;
            async move {
                let chunk = |_| {
                    MOST.fetch_max(IN_MEMORY.fetch_add(CHUNK, Ordering::Relaxed) + CHUNK, Ordering::Relaxed);
                    let bytes = vec![b'x'; CHUNK];
                    Ok::<_, StorageError>(Bytes::from_owner(CountedChunk { bytes, in_memory: &IN_MEMORY }))
                };
                folder.put(&key(version), &mut stream::iter((0..64).map(chunk)), u64::MAX).await.unwrap().size
            }
        });
        assert!(join_all(uploads).await.iter().all(|size| *size == 64 * CHUNK as u64));
        assert_eq!((IN_MEMORY.load(Ordering::Relaxed), folder.permits.free()), (0, permits));
        // A piece for each permit, and the chunk with which each upload waits for one
        let most = permits * PIECE_SIZE + UPLOADS as usize * CHUNK;
        assert!(MOST.load(Ordering::Relaxed) <= most, "{MOST:?} bytes, {most} at most");
    }
}
