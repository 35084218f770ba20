//! The threads that hash and write the pieces of uploads.
//!
//! There is one for every two processors, however many uploads there are: with more, each would
//! find one piece waiting, while the others receive from the network. A thread takes several pieces
//! that wait, each of another upload, and hashes them together, which takes a fraction of the time
//! of one after another. Each piece comes with the file that it belongs to, so the bytes of one
//! upload can reach no other.

use std::collections::VecDeque;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use portico_md5::LANES;
use tokio::sync::oneshot;

use super::draft::DraftWriter;
use crate::backend::model::BackendError;
use crate::backend::piece_permit::PiecePermit;

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
pub(super) struct PieceWriters(Arc<Mutex<WriterQueue>>);

struct WriterQueue {
    waiting: VecDeque<PieceWrite>,
    /// The threads at work.
    threads: usize,
    max_threads: usize,
}

impl Default for PieceWriters {
    fn default() -> Self {
        // Reads files, so it is asked once
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let max_threads = processors.div_ceil(2);
        Self(Arc::new(Mutex::new(WriterQueue { waiting: VecDeque::new(), threads: 0, max_threads })))
    }
}

/// A piece that waits.
struct PieceWrite {
    target: PieceTarget,
    piece: Piece,
    written: oneshot::Sender<Result<DraftWriter, BackendError>>,
}

impl PieceWriters {
    /// Appends a piece to a file. It is done to its end, also if the result is dropped.
    pub fn write(&self, target: PieceTarget, piece: Piece) -> WrittenPiece {
        let (written, outcome) = oneshot::channel();
        let mut queue = self.queue();
        queue.waiting.push_back(PieceWrite { target, piece, written });
        if queue.threads < queue.max_threads {
            queue.threads += 1;
            // A runtime that is shutting down drops the thread here, which counts it off
            drop(queue);
            let mut thread = WriterThread { writers: self.clone(), has_ended: false };
            #[expect(clippy::disallowed_methods, reason = "the thread works for many requests, and logs for none")]
            tokio::task::spawn_blocking(move || thread.run());
        }
        outcome
    }

    fn queue(&self) -> MutexGuard<'_, WriterQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread at work. It counts until it finds nothing to do, or until this is dropped.
struct WriterThread {
    writers: PieceWriters,
    has_ended: bool,
}

impl WriterThread {
    /// Writes pieces until none waits.
    fn run(&mut self) {
        let mut batch = Vec::with_capacity(LANES);
        loop {
            {
                let mut queue = self.writers.queue();
                let count = queue.waiting.len().min(LANES);
                batch.extend(queue.waiting.drain(..count));
                if batch.is_empty() {
                    // While the queue is locked, so that the next piece begins a new thread
                    queue.threads -= 1;
                    self.has_ended = true;
                    return;
                }
            }
            write_together(batch.drain(..));
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        if !self.has_ended {
            self.writers.queue().threads -= 1;
        }
    }
}

/// Hashes pieces together, and appends each to its file.
fn write_together(batch: impl Iterator<Item = PieceWrite>) {
    let mut writes = Vec::with_capacity(LANES);
    for PieceWrite { target, piece, written } in batch {
        let writer = match target {
            PieceTarget::Begun(writer) => Ok(writer),
            PieceTarget::New(path) => DraftWriter::create(path),
        };
        match writer {
            Ok(writer) => writes.push((writer, piece, written)),
            Err(error) => drop(written.send(Err(error))),
        }
    }
    let pieces = writes.iter_mut().map(|(writer, piece, _)| (&mut writer.digest, piece.chunks.as_slice()));
    portico_md5::update(pieces.collect());
    for (mut writer, piece, written) in writes {
        let outcome = writer.append(&piece.chunks).map(|()| writer).map_err(BackendError::from);
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
    use crate::backend::piece_permit::PiecePermits;

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
        let (permits, writers) = (PiecePermits::default(), PieceWriters::default());
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
        write_together(batch.into_iter());
        assert_eq!(permits.free(), free + 4);
        let outcomes: Vec<_> = outcomes.into_iter().map(|mut outcome| outcome.try_recv().unwrap()).collect();
        let [Ok(first), Err(_), Err(_), Ok(last)] = outcomes.as_slice() else { panic!("another outcome") };
        assert_has(root.path(), first, &content(1));
        assert_has(root.path(), last, &content(4));
        assert!(!path("read-only").exists(), "the file of a failed write is deleted");
    }
}
