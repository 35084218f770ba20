//! The threads that hash and write the pieces of uploads.
//!
//! Hashing has one thread for every two processors, however many uploads there are: with more, each
//! would find one piece waiting, while the others receive from the network. A thread takes several
//! pieces that wait, each of another upload, and hashes them together, which takes a fraction of
//! the time of one after another. Writing waits for the disk, which does several writes at once,
//! and does not wait for hashing: both share the piece, which is in memory until the later one
//! ends. Each piece comes with the file that it belongs to, so the bytes of one upload can reach no
//! other.

use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_md5::{LANES, Md5State};
use tokio::sync::oneshot;

use super::aligned::{AlignedBuffer, AlignedBuffers};
use super::draft_writer::DraftWriter;
use super::work_queue::{Batches, WorkQueue};
use crate::backend::model::BackendError;
use crate::backend::piece_permit::{PiecePermit, PiecePermits};

/// The writes to the disk at a time. More would not be faster.
const WRITING_THREADS: usize = 6;
/// The time for which hashing waits for the pieces of other uploads that are on their way. Eight
/// pieces together take less than two would, and the disk has work meanwhile.
const PATIENCE: Duration = Duration::from_millis(3);

/// Content that has arrived. Its permit ends when it is dropped.
pub(super) struct Piece {
    pub chunks: Vec<Bytes>,
    pub size: usize,
    /// Nothing follows.
    pub has_ended: bool,
    pub _permit: PiecePermit,
}

/// The file of an upload, and the MD5 of what was written.
pub(super) struct HashedDraft {
    pub writer: DraftWriter,
    digest: Md5State,
}

impl HashedDraft {
    /// Returns the MD5 of what was written, in hexadecimal digits.
    pub fn digest(&self) -> String {
        hex::encode(self.digest.finish())
    }
}

/// The file that a piece is appended to.
pub(super) enum PieceTarget {
    /// One that does not exist yet, and the largest size that it may have.
    New(PathBuf, u64),
    /// The one that has the pieces before.
    Begun(HashedDraft),
}

/// Hashes and writes pieces. Clones share the threads.
#[derive(Clone)]
pub(super) struct PieceWriters {
    hashing: WorkQueue<PieceHash>,
    writing: WorkQueue<PieceWrite>,
}

/// A piece that waits to be hashed.
struct PieceHash {
    digest: Md5State,
    piece: Arc<Piece>,
    hashed: oneshot::Sender<Md5State>,
}

/// A piece that waits to be written.
struct PieceWrite {
    target: WriteTarget,
    piece: Arc<Piece>,
    written: oneshot::Sender<Result<DraftWriter, BackendError>>,
}

enum WriteTarget {
    New(PathBuf, u64),
    Begun(DraftWriter),
}

/// A piece on its way. If this is dropped, the file is deleted after the write.
pub(super) struct WrittenPiece {
    hashed: oneshot::Receiver<Md5State>,
    written: oneshot::Receiver<Result<DraftWriter, BackendError>>,
}

impl WrittenPiece {
    /// Waits until the piece is hashed and written, and returns its file.
    ///
    /// # Errors
    /// When it could not be written.
    pub async fn finish(self) -> Result<HashedDraft, BackendError> {
        // The runtime is shutting down if there is no answer
        let lost = |_| BackendError::Io(io::ErrorKind::Interrupted.into());
        let writer = self.written.await.map_err(lost)??;
        Ok(HashedDraft { writer, digest: self.hashed.await.map_err(lost)? })
    }
}

impl PieceWriters {
    /// Makes writers for pieces with these permits.
    pub fn new(permits: &PiecePermits) -> Self {
        // Reads files, so it is asked once
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let buffers = AlignedBuffers::default();
        let writing = WorkQueue::new(WRITING_THREADS, Batches::none(), move || {
            let mut buffer = buffers.take();
            move |pieces: &mut Vec<PieceWrite>| pieces.drain(..).for_each(|piece| piece.write(&mut buffer))
        });
        // Other pieces are received or written
        let permits = permits.clone();
        let wanted = Box::new(move || permits.held() / 2);
        let batches = Batches { max: LANES, wanted, patience: PATIENCE };
        Self { hashing: WorkQueue::new(processors.div_ceil(2), batches, || hash_together), writing }
    }

    /// Appends a piece to a file. It is hashed while it is written. It is done to its end, also if
    /// the result is dropped.
    pub fn write(&self, target: PieceTarget, piece: Piece) -> WrittenPiece {
        let ((hash, hashed), (write, written)) = (oneshot::channel(), oneshot::channel());
        let (target, digest) = match target {
            PieceTarget::New(path, limit) => (WriteTarget::New(path, limit), Md5State::default()),
            PieceTarget::Begun(HashedDraft { writer, digest }) => (WriteTarget::Begun(writer), digest),
        };
        let piece = Arc::new(piece);
        self.writing.push(PieceWrite { target, piece: Arc::clone(&piece), written: write });
        self.hashing.push(PieceHash { digest, piece, hashed: hash });
        WrittenPiece { hashed, written }
    }
}

/// Hashes pieces together.
fn hash_together(batch: &mut Vec<PieceHash>) {
    let contents = batch.iter_mut().map(|hash| (&mut hash.digest, hash.piece.chunks.as_slice()));
    portico_md5::update(contents.collect());
    for PieceHash { digest, piece, hashed } in batch.drain(..) {
        // Before the answer, so that the permit of a piece has ended when it is whole
        drop(piece);
        let _ = hashed.send(digest);
    }
}

impl PieceWrite {
    /// Appends the piece to its file.
    fn write(self, buffer: &mut AlignedBuffer) {
        let Self { target, piece, written } = self;
        let writer = match target {
            WriteTarget::Begun(writer) => Ok(writer),
            WriteTarget::New(path, limit) => DraftWriter::create(path, limit),
        };
        let outcome = writer.and_then(|mut writer| {
            writer.append(&piece.chunks, piece.has_ended, buffer)?;
            Ok(writer)
        });
        drop(piece);
        let _ = written.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use md5::{Digest as _, Md5};

    use super::*;

    async fn piece(permits: &PiecePermits, content: &[u8]) -> Piece {
        let chunks = content.chunks(1000).map(Bytes::copy_from_slice).collect();
        Piece { chunks, size: content.len(), has_ended: false, _permit: permits.acquire().await }
    }

    fn content(number: usize) -> Vec<u8> {
        (0..number * 999).map(|at| (at * 31 + number) as u8).collect()
    }

    fn assert_has(draft: &HashedDraft, content: &[u8]) {
        assert_eq!(fs::read(draft.writer.draft.path()).unwrap(), content);
        assert_eq!(draft.digest(), hex::encode(Md5::digest(content)));
    }

    #[tokio::test]
    async fn each_file_receives_its_own_pieces() {
        let root = tempfile::tempdir().unwrap();
        let permits = PiecePermits::default();
        let writers = PieceWriters::new(&permits);
        let files = (0..3 * LANES).map(|number| {
            let path = root.path().join(number.to_string());
            let (permits, writers) = (&permits, &writers);
            async move {
                let content = content(number);
                let begun =
                    writers.write(PieceTarget::New(path, u64::MAX), piece(permits, &content).await).finish().await;
                let more = piece(permits, &content).await;
                (content, writers.write(PieceTarget::Begun(begun.unwrap()), more).finish().await.unwrap())
            }
        });
        for (content, draft) in futures_util::future::join_all(files).await {
            assert_has(&draft, &content.repeat(2));
        }
    }

    #[tokio::test]
    async fn a_write_that_fails_affects_no_other_one() {
        let root = tempfile::tempdir().unwrap();
        let permits = PiecePermits::default();
        let path = |name: &str| root.path().join(name);
        let begun = |name: &str| HashedDraft {
            writer: DraftWriter::create(path(name), u64::MAX).unwrap(),
            digest: Md5State::default(),
        };
        let mut closed = begun("read-only");
        closed.writer.file = File::open(begun("closed").writer.draft.path()).unwrap();
        let targets = [
            PieceTarget::Begun(begun("first")),
            PieceTarget::New(path("missing/folder"), u64::MAX),
            PieceTarget::Begun(closed),
            PieceTarget::New(path("last"), u64::MAX),
        ];
        let (writers, free) = (PieceWriters::new(&permits), permits.free());
        let mut written = Vec::new();
        for (number, target) in (1..).zip(targets) {
            written.push(writers.write(target, piece(&permits, &content(number)).await));
        }
        let outcomes = futures_util::future::join_all(written.into_iter().map(WrittenPiece::finish)).await;
        let [Ok(first), Err(_), Err(_), Ok(last)] = outcomes.as_slice() else { panic!("another outcome") };
        assert_has(first, &content(1));
        assert_has(last, &content(4));
        assert!(!path("read-only").exists(), "the file of a failed write is deleted");
        // Hashing may end later than a write that failed
        while permits.free() < free {
            tokio::task::yield_now().await;
        }
    }
}
