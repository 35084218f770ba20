//! The turns of uploads that are written to disk.
//!
//! Content is written piece by piece, on threads that may block. Few pieces are in memory at a
//! time, however many uploads there are: each piece needs a turn, and turns are given in the order
//! in which uploads ask for them. An upload asks when bytes of it have arrived, fills the piece
//! with what is there, and gives the turn back when the piece is written. So a client that is slow
//! or silent holds none, and an upload with a turn never waits for another one.

use std::num::NonZero;
use std::sync::Arc;

use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes of a piece, to which the last chunk may add.
pub(crate) const PIECE_SIZE: usize = 128 * 1024;

/// The turns. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct PieceTurns(Arc<Semaphore>);

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PieceTurn(#[expect(dead_code, reason = "it is held")] Option<OwnedSemaphorePermit>);

impl Default for PieceTurns {
    /// Eight for each processor: that many pieces are hashed at once, and others are filled
    /// meanwhile.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self(Arc::new(Semaphore::new(8 * processors)))
    }
}

impl PieceTurns {
    /// Waits for a turn.
    pub async fn take(&self) -> PieceTurn {
        // It is never closed
        PieceTurn(Arc::clone(&self.0).acquire_owned().await.ok())
    }

    /// Returns the number of turns that can be taken at once.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.0.available_permits()
    }
}

/// Returns the next chunk if it is there, without waiting for its sender.
pub(crate) async fn arrived<S: Stream + Unpin + ?Sized>(content: &mut S) -> Option<Option<S::Item>> {
    let next = content.next().now_or_never();
    if next.is_some() {
        return next;
    }
    // A connection passes on one chunk at a time, after it was asked for it
    tokio::task::yield_now().await;
    content.next().now_or_never()
}
