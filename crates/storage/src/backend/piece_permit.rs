//! The permits of uploads that are written to disk.
//!
//! Content is written piece by piece, on threads that may block. Few pieces are in memory at a
//! time, however many uploads there are: each piece needs a permit, and permits are given in the
//! order in which uploads ask for them. An upload with a permit fills a piece with what has arrived
//! and gives the permit back when the piece is written, or at once if nothing has arrived. So a
//! client that is slow or silent holds none, an upload with a permit never waits for another one,
//! and what an upload without one has received stays in the system's buffers.

use std::num::NonZero;
use std::sync::Arc;

use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes of a piece, to which the last chunk may add.
pub(crate) const PIECE_SIZE: usize = 256 * 1024;

/// The permits for each processor.
const PERMITS: usize = 6;

/// The permits. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct PiecePermits {
    free: Arc<Semaphore>,
    count: usize,
}

/// A permit for a piece in memory, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PiecePermit(#[expect(dead_code, reason = "it is held")] Option<OwnedSemaphorePermit>);

impl Default for PiecePermits {
    /// Six for each processor: some pieces are hashed at once, while others are written or filled.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let count = PERMITS * processors;
        Self { free: Arc::new(Semaphore::new(count)), count }
    }
}

impl PiecePermits {
    /// Waits for a permit.
    pub async fn acquire(&self) -> PiecePermit {
        // It is never closed
        PiecePermit(Arc::clone(&self.free).acquire_owned().await.ok())
    }

    /// Waits for a chunk and a permit for the piece that begins with it; `None` at the end.
    pub async fn first_chunk<S: Stream + Unpin + ?Sized>(&self, content: &mut S) -> (PiecePermit, Option<S::Item>) {
        let permit = self.acquire().await;
        if let Some(first) = arrived(content).await {
            return (permit, first);
        }
        // No permit is held while a client is waited for
        drop(permit);
        let first = content.next().await;
        (self.acquire().await, first)
    }

    /// Returns the number of permits that are held.
    pub fn held(&self) -> usize {
        self.count.saturating_sub(self.free.available_permits())
    }

    /// Returns the number of permits that can be acquired at once.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.free.available_permits()
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
