//! The permits of uploads that are written to disk.
//!
//! Content is written piece by piece, on threads that may block. Few pieces are in memory at a
//! time, however many uploads there are: each piece needs a permit, and permits are given in the
//! order in which uploads ask for them. An upload asks when bytes of it have arrived, fills the
//! piece with what is there, and gives the permit back when the piece is written. So a client that
//! is slow or silent holds none, and an upload with a permit never waits for another one.

use std::num::NonZero;
use std::sync::Arc;

use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes of a piece, to which the last chunk may add.
pub(crate) const PIECE_SIZE: usize = 128 * 1024;

/// The permits. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct PiecePermits(Arc<Semaphore>);

/// A permit for a piece in memory, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PiecePermit(#[expect(dead_code, reason = "it is held")] Option<OwnedSemaphorePermit>);

impl Default for PiecePermits {
    /// Eight for each processor: that many pieces are hashed at once, and others are filled
    /// meanwhile.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self(Arc::new(Semaphore::new(8 * processors)))
    }
}

impl PiecePermits {
    /// Waits for a permit.
    pub async fn acquire(&self) -> PiecePermit {
        // It is never closed
        PiecePermit(Arc::clone(&self.0).acquire_owned().await.ok())
    }

    /// Returns the number of permits that can be acquired at once.
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
