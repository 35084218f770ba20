//! The threads that hash and write the pieces of uploads.
//!
//! Hashing has one thread for every two processors, however many uploads there are: with more, each
//! would find one piece waiting, while the others receive from the network. A thread takes several
//! pieces that wait, each of another upload, and hashes them together, which takes a fraction of
//! the time of one after another. Writing waits for the disk, which does several writes at once.
//! Each piece comes with the file that it belongs to, so the bytes of one upload can reach no
//! other.

use std::num::NonZero;
use std::path::PathBuf;
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

/// The file that a piece is appended to.
pub(super) enum PieceTarget {
    /// One that does not exist yet.
    New(PathBuf),
    /// The one that has the pieces before.
    Begun(DraftWriter),
}

/// The file with the piece. If this is dropped, the file is deleted after the write.
pub(super) type WrittenPiece = oneshot::Receiver<Result<DraftWriter, BackendError>>;

/// Hashes and writes pieces. Clones share the threads.
#[derive(Clone)]
pub(super) struct PieceWriters(WorkQueue<PieceWrite>);

/// A piece that waits.
struct PieceWrite {
    target: PieceTarget,
    piece: Piece,
    written: oneshot::Sender<Result<DraftWriter, BackendError>>,
}

/// A piece that was hashed, and the digest of its file with it.
struct HashedPiece {
    digest: Md5State,
    write: PieceWrite,
}

impl PieceWriters {
    /// Makes writers for pieces with these permits.
    pub fn new(permits: &PiecePermits) -> Self {
        // Reads files, so it is asked once
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let buffers = AlignedBuffers::default();
        let writing = WorkQueue::new(WRITING_THREADS, Batches::none(), move || {
            let mut buffer = buffers.take();
            move |pieces: &mut Vec<HashedPiece>| pieces.drain(..).for_each(|piece| piece.write(&mut buffer))
        });
        // An upload has up to two permits: one for a piece that is hashed or written, and one for
        // the next. So a single one is not waited for
        let permits = permits.clone();
        let wanted = Box::new(move || permits.held() / 2);
        let batches = Batches { max: LANES, wanted, patience: PATIENCE };
        Self(WorkQueue::new(processors.div_ceil(2), batches, move || {
            let writing = writing.clone();
            move |batch: &mut Vec<PieceWrite>| hash_together(batch).into_iter().for_each(|piece| writing.push(piece))
        }))
    }

    /// Appends a piece to a file. It is done to its end, also if the result is dropped.
    pub fn write(&self, target: PieceTarget, piece: Piece) -> WrittenPiece {
        let (written, outcome) = oneshot::channel();
        self.0.push(PieceWrite { target, piece, written });
        outcome
    }
}

/// Hashes pieces together.
fn hash_together(batch: &mut Vec<PieceWrite>) -> Vec<HashedPiece> {
    let begin = |mut write: PieceWrite| {
        let digest = match &mut write.target {
            PieceTarget::New(_) => Md5State::default(),
            PieceTarget::Begun(writer) => std::mem::take(&mut writer.digest),
        };
        HashedPiece { digest, write }
    };
    let mut pieces: Vec<HashedPiece> = batch.drain(..).map(begin).collect();
    let contents = pieces.iter_mut().map(|piece| (&mut piece.digest, piece.write.piece.chunks.as_slice()));
    portico_md5::update(contents.collect());
    pieces
}

impl HashedPiece {
    /// Appends the piece to its file.
    fn write(self, buffer: &mut AlignedBuffer) {
        let Self { digest, write: PieceWrite { target, piece, written } } = self;
        let writer = match target {
            PieceTarget::Begun(writer) => Ok(writer),
            PieceTarget::New(path) => DraftWriter::create(path),
        };
        let outcome = writer.and_then(|mut writer| {
            writer.digest = digest;
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
    use std::path::Path;

    use md5::{Digest as _, Md5};

    use super::*;

    async fn piece(permits: &PiecePermits, content: &[u8]) -> Piece {
        let chunks = content.chunks(1000).map(Bytes::copy_from_slice).collect();
        Piece { chunks, size: content.len(), has_ended: false, _permit: permits.acquire().await }
    }

    fn content(number: usize) -> Vec<u8> {
        (0..number * 999).map(|at| (at * 31 + number) as u8).collect()
    }

    fn assert_has(root: &Path, writer: &DraftWriter, content: &[u8]) {
        assert_eq!(fs::read(root.join(writer.draft.path())).unwrap(), content);
        assert_eq!(writer.digest(), hex::encode(Md5::digest(content)));
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
                let begun = writers.write(PieceTarget::New(path), piece(permits, &content).await).await;
                let more = piece(permits, &content).await;
                (content, writers.write(PieceTarget::Begun(begun.unwrap().unwrap()), more).await.unwrap().unwrap())
            }
        });
        for (content, writer) in futures_util::future::join_all(files).await {
            assert_has(root.path(), &writer, &content.repeat(2));
        }
    }

    #[tokio::test]
    async fn a_write_that_fails_affects_no_other_one() {
        let root = tempfile::tempdir().unwrap();
        let permits = PiecePermits::default();
        let path = |name: &str| root.path().join(name);
        let writer = |name: &str| DraftWriter::create(path(name)).unwrap();
        let mut closed = writer("read-only");
        closed.file = File::open(writer("closed").draft.path()).unwrap();
        let targets = [
            PieceTarget::Begun(writer("first")),
            PieceTarget::New(path("missing/folder")),
            PieceTarget::Begun(closed),
            PieceTarget::New(path("last")),
        ];
        let (mut batch, mut outcomes) = (Vec::new(), Vec::new());
        for (number, target) in (1..).zip(targets) {
            let (written, outcome) = oneshot::channel();
            batch.push(PieceWrite { target, piece: piece(&permits, &content(number)).await, written });
            outcomes.push(outcome);
        }
        let free = permits.free();
        let mut buffer = AlignedBuffers::default().take();
        hash_together(&mut batch).into_iter().for_each(|piece| piece.write(&mut buffer));
        assert_eq!(permits.free(), free + 4);
        let outcomes: Vec<_> = outcomes.into_iter().map(|mut outcome| outcome.try_recv().unwrap()).collect();
        let [Ok(first), Err(_), Err(_), Ok(last)] = outcomes.as_slice() else { panic!("another outcome") };
        assert_has(root.path(), first, &content(1));
        assert_has(root.path(), last, &content(4));
        assert!(!path("read-only").exists(), "the file of a failed write is deleted");
    }
}
