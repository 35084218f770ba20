//! The threads that write the pieces of uploads, which are hashed meanwhile.
//!
//! Writing waits for the disk, which does several writes at once, and does not wait for hashing:
//! both share the piece, which is in memory until the later one ends. Each piece comes with the
//! file that it belongs to, so the bytes of one upload can reach no other.

use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use portico_md5::Md5State;
use tokio::sync::oneshot;

use super::draft::DraftWriter;
use crate::backend::content_writer::{AlignedBuffer, AlignedBuffers};
use crate::backend::model::BackendError;
use crate::backend::piece_hasher::{Piece, PieceHasher};
use crate::backend::piece_permit::PiecePermits;
use crate::backend::work_queue::{Batches, WorkQueue};

/// The threads that write. More writes to the disk at a time would not be faster, but the last one
/// of each upload is followed by flushes.
const WRITING_THREADS: usize = 8;

/// The file that a piece is appended to.
pub(super) enum PieceTarget {
    /// One that does not exist yet, and the largest size that it may have.
    New(PathBuf, u64),
    /// The one that has the pieces before.
    Begun(DraftWriter),
}

/// Gives a whole file its place and makes it durable there.
pub(super) type FinishDraft = Box<dyn FnOnce(&mut DraftWriter) -> Result<(), BackendError> + Send>;

/// The file of an upload, and the MD5 of what was written to it.
pub(super) struct HashedDraft {
    pub writer: DraftWriter,
    pub digest: Md5State,
}

/// Hashes and writes pieces. Clones share the threads.
#[derive(Clone)]
pub(super) struct PieceWriters {
    hashing: PieceHasher,
    writing: WorkQueue<PieceWrite>,
}

/// A piece that waits to be written.
struct PieceWrite {
    target: PieceTarget,
    piece: Arc<Piece>,
    /// Called behind the write, if nothing follows.
    finish: Option<FinishDraft>,
    progress: Arc<PieceProgress>,
}

/// The results of a piece, which is done when there are both. So its upload is woken once.
struct PieceProgress(Mutex<PieceResults>);

#[derive(Default)]
struct PieceResults {
    digest: Option<Md5State>,
    writer: Option<Result<DraftWriter, BackendError>>,
    done: Option<oneshot::Sender<Result<HashedDraft, BackendError>>>,
}

impl PieceProgress {
    /// Adds a result.
    fn add(&self, add: impl FnOnce(&mut PieceResults)) {
        let mut results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut results);
        if results.digest.is_none() || results.writer.is_none() {
            return;
        }
        let PieceResults { digest, writer, done } = mem::take(&mut *results);
        drop(results);
        if let (Some(digest), Some(writer), Some(done)) = (digest, writer, done) {
            let _ = done.send(writer.map(|writer| HashedDraft { writer, digest }));
        }
    }
}

/// A piece on its way. If this is dropped, the file is deleted after the write.
pub(super) struct WrittenPiece(oneshot::Receiver<Result<HashedDraft, BackendError>>);

impl WrittenPiece {
    /// Waits until the piece is hashed and written, and returns its file.
    ///
    /// # Errors
    /// When it could not be written or finished.
    pub async fn finish(self) -> Result<HashedDraft, BackendError> {
        // The runtime is shutting down if there is no answer
        self.0.await.map_err(|_| BackendError::Io(io::ErrorKind::Interrupted.into()))?
    }
}

impl PieceWriters {
    /// Makes writers for pieces with these permits.
    pub fn new(permits: &PiecePermits) -> Self {
        let buffers = AlignedBuffers::default();
        // Taken for each piece, so that a thread that waits for more keeps no memory
        let writing = WorkQueue::new(WRITING_THREADS, Batches::none(), move || {
            let buffers = buffers.clone();
            move |pieces: &mut Vec<PieceWrite>| pieces.drain(..).for_each(|piece| piece.write(&mut buffers.take()))
        });
        Self { hashing: PieceHasher::new(permits), writing }
    }

    /// Appends a piece to a file, which is hashed while it is written. `digest` is that of the
    /// pieces before. With `finish`, which is called behind it, the piece is the last one. It is
    /// done to its end, also if the result is dropped.
    pub fn write(
        &self,
        target: PieceTarget,
        digest: Md5State,
        piece: Piece,
        finish: Option<FinishDraft>,
    ) -> WrittenPiece {
        let (done, finished) = oneshot::channel();
        let results = PieceResults { done: Some(done), ..PieceResults::default() };
        let (piece, progress) = (Arc::new(piece), Arc::new(PieceProgress(Mutex::new(results))));
        self.writing.push(PieceWrite { target, piece: Arc::clone(&piece), finish, progress: Arc::clone(&progress) });
        self.hashing.hash(digest, piece, move |digest| progress.add(|results| results.digest = Some(digest)));
        WrittenPiece(finished)
    }
}

impl PieceWrite {
    /// Appends the piece to its file.
    fn write(self, buffer: &mut AlignedBuffer) {
        let Self { target, piece, finish, progress } = self;
        let mut writer = append(target, &piece, finish.is_some(), buffer);
        // Others may have use for its permit while the file is flushed
        drop(piece);
        if let Some(finish) = finish {
            writer = writer.and_then(|mut writer| finish(&mut writer).map(|()| writer));
        }
        progress.add(|results| results.writer = Some(writer));
    }
}

fn append(
    target: PieceTarget,
    piece: &Piece,
    is_last: bool,
    buffer: &mut AlignedBuffer,
) -> Result<DraftWriter, BackendError> {
    let mut writer = match target {
        PieceTarget::Begun(writer) => writer,
        PieceTarget::New(path, limit) => DraftWriter::create(path, limit)?,
    };
    writer.content.append(&piece.chunks, buffer)?;
    if is_last {
        writer.content.complete()?;
    }
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use md5::{Digest as _, Md5};

    use super::*;

    async fn piece(permits: &PiecePermits, content: &[u8]) -> Piece {
        let chunks = content.chunks(1000).map(Bytes::copy_from_slice).collect();
        Piece { chunks, _permit: permits.acquire().await }
    }

    fn content(number: usize) -> Vec<u8> {
        (0..number * 999).map(|at| (at * 31 + number) as u8).collect()
    }

    fn assert_has(draft: &HashedDraft, content: &[u8]) {
        assert_eq!(fs::read(draft.writer.draft.path()).unwrap(), content);
        assert_eq!(draft.digest.finish(), *Md5::digest(content));
    }

    #[tokio::test]
    async fn each_file_receives_its_own_pieces() {
        let root = tempfile::tempdir().unwrap();
        let permits = PiecePermits::default();
        let writers = PieceWriters::new(&permits);
        let files = (0..3 * portico_md5::MAX_LANES).map(|number| {
            let new = PieceTarget::New(root.path().join(number.to_string()), u64::MAX);
            let (permits, writers) = (&permits, &writers);
            async move {
                let content = content(number);
                let first = writers.write(new, Md5State::default(), piece(permits, &content).await, None);
                let HashedDraft { writer, digest } = first.finish().await.unwrap();
                let second = writers.write(PieceTarget::Begun(writer), digest, piece(permits, &content).await, None);
                (content, second.finish().await.unwrap())
            }
        });
        for (content, draft) in futures_util::future::join_all(files).await {
            assert_has(&draft, &content.repeat(2));
        }
    }

    #[tokio::test]
    async fn a_file_is_finished_behind_its_last_piece_and_without_a_permit() {
        let root = tempfile::tempdir().unwrap();
        let permits = PiecePermits::default();
        let (writers, free) = (PieceWriters::new(&permits), permits.free());
        let new = |name: &str| PieceTarget::New(root.path().join(name), u64::MAX);
        let at_work = permits.clone();
        let finish: FinishDraft = Box::new(move |writer| {
            // Only hashing may still have the piece
            let end = Instant::now() + Duration::from_secs(60);
            while at_work.free() < free {
                assert!(Instant::now() < end, "the permit is held while the file is finished");
                std::thread::yield_now();
            }
            let size = fs::metadata(writer.draft.path())?.len();
            assert_eq!(size, content(3).len() as u64);
            fs::rename(writer.draft.path(), writer.draft.path().with_extension("whole"))?;
            writer.draft.keep();
            Ok(())
        });
        let last = piece(&permits, &content(3)).await;
        let finished = writers.write(new("first"), Md5State::default(), last, Some(finish)).finish().await.unwrap();
        assert_eq!(finished.digest.finish(), *Md5::digest(content(3)));
        assert_eq!(fs::read(root.path().join("first.whole")).unwrap(), content(3));
        // A file that has no place is deleted
        let fail: FinishDraft = Box::new(|_| Err(BackendError::NotFound));
        let last = piece(&permits, &content(3)).await;
        let failed = writers.write(new("second"), Md5State::default(), last, Some(fail)).finish().await;
        assert!(matches!(failed, Err(BackendError::NotFound)));
        assert!(!root.path().join("second").exists());
    }

    #[tokio::test]
    async fn a_write_that_fails_affects_no_other_one() {
        let root = tempfile::tempdir().unwrap();
        let permits = PiecePermits::default();
        let path = |name: &str| root.path().join(name);
        let begun = |name: &str| DraftWriter::create(path(name), u64::MAX).unwrap();
        let mut closed = begun("read-only");
        closed.content.file = File::open(begun("closed").draft.path()).unwrap();
        let targets = [
            PieceTarget::Begun(begun("first")),
            PieceTarget::New(path("missing/folder"), u64::MAX),
            PieceTarget::Begun(closed),
            PieceTarget::New(path("last"), u64::MAX),
        ];
        let (writers, free) = (PieceWriters::new(&permits), permits.free());
        let mut written = Vec::new();
        for (number, target) in (1..).zip(targets) {
            written.push(writers.write(target, Md5State::default(), piece(&permits, &content(number)).await, None));
        }
        let outcomes = futures_util::future::join_all(written.into_iter().map(WrittenPiece::finish)).await;
        let [Ok(first), Err(_), Err(_), Ok(last)] = outcomes.as_slice() else { panic!("another outcome") };
        assert_has(first, &content(1));
        assert_has(last, &content(4));
        assert!(!path("read-only").exists(), "the file of a failed write is deleted");
        assert_eq!(permits.free(), free);
    }
}
