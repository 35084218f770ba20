//! Hashing the pieces of uploads, several of them at once.
//!
//! There is one thread for every two processors, however many uploads there are: with more, each
//! would find one piece waiting, while the others receive from the network. A thread takes several
//! pieces that wait, each of another upload, and hashes them together, which takes a fraction of
//! the time of one after another (decision 35). Each piece comes with the digest that it continues
//! and with what takes the result, so the bytes of one upload can reach no other.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_md5::Md5State;

use super::piece_permit::{PiecePermit, PiecePermits};
use super::work_queue::{Batches, WorkQueue};

/// The number of pieces that hashing waits for at most. Together they take less than two would.
/// More that have arrived are hashed with them, as far as there are lanes.
const ENOUGH: usize = 8;
/// The time for which hashing waits for the pieces of other uploads that are on their way. With
/// three times as long there were fewer uploads in the bench (decision 37).
const PATIENCE: Duration = Duration::from_millis(1);

/// Content that has arrived. Its permit ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    pub chunks: Vec<Bytes>,
    pub _permit: PiecePermit,
}

impl Piece {
    /// Returns the number of bytes.
    pub fn size(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}

/// Hashes pieces. Clones share the threads.
#[derive(Debug, Clone)]
pub(crate) struct PieceHasher(WorkQueue<PieceHash>);

/// A piece that waits to be hashed.
struct PieceHash {
    digest: Md5State,
    piece: Arc<Piece>,
    done: Box<dyn FnOnce(Md5State) + Send>,
}

impl PieceHasher {
    /// Makes a hasher for pieces with these permits.
    pub fn new(permits: &PiecePermits) -> Self {
        // Reads files, so it is asked once
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let permits = permits.clone();
        // The other pieces are received or written
        let wanted = Box::new(move || (permits.held() * 3 / 4).min(ENOUGH));
        let batches = Batches { max: portico_md5::lanes(), wanted, patience: PATIENCE };
        Self(WorkQueue::new(processors.div_ceil(2), batches, || hash_together))
    }

    /// Adds a piece to a digest, and calls `done` with it, behind the end of the piece unless
    /// another one shares it. It is done to its end.
    pub fn hash(&self, digest: Md5State, piece: Arc<Piece>, done: impl FnOnce(Md5State) + Send + 'static) {
        self.0.push(PieceHash { digest, piece, done: Box::new(done) });
    }
}

/// Hashes pieces together.
fn hash_together(batch: &mut Vec<PieceHash>) {
    let contents = batch.iter_mut().map(|hash| (&mut hash.digest, hash.piece.chunks.as_slice()));
    portico_md5::update(contents.collect());
    for PieceHash { digest, piece, done } in batch.drain(..) {
        // Before the answer, so that the permit of a piece has ended when it is whole
        drop(piece);
        done(digest);
    }
}
