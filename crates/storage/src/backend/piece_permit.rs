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
const PERMITS: usize = 8;

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
    /// Eight for each processor: some pieces are hashed and written at once, while others are
    /// filled.
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

    /// Returns a permit if one is free and no upload waits for it.
    pub fn try_acquire(&self) -> Option<PiecePermit> {
        Some(PiecePermit(Some(Arc::clone(&self.free).try_acquire_owned().ok()?)))
    }

    /// Waits for a chunk and returns it with a permit for the piece that begins with it, which is
    /// `permit` unless the chunk is still on its way. The chunk is `None` at the end of the
    /// content. Nothing is received after `cancelled`, and `None` returned; no chunk is lost.
    pub async fn first_chunk<S: Stream + Unpin + ?Sized>(
        &self,
        permit: PiecePermit,
        content: &mut S,
        cancelled: impl Future<Output = ()>,
    ) -> Option<(PiecePermit, Option<S::Item>)> {
        if let Some(first) = arrived(content).await {
            return Some((permit, first));
        }
        // No permit is held while a client is waited for
        drop(permit);
        let first = tokio::select! {
            biased;
            () = cancelled => return None,
            first = content.next() => first,
        };
        Some((self.acquire().await, first))
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

#[cfg(test)]
mod tests {
    use futures_util::{pin_mut, poll};
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    #[tokio::test]
    async fn a_chunk_that_was_received_outlives_the_cancellation() {
        let permits = PiecePermits::default();
        let mut held: Vec<PiecePermit> = std::iter::from_fn(|| permits.try_acquire()).collect();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut content = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
        let (cancel, cancelled) = oneshot::channel::<()>();
        let receiving = permits.first_chunk(held.pop().unwrap(), &mut content, async {
            let _ = cancelled.await;
        });
        pin_mut!(receiving);
        while permits.free() == 0 {
            assert!(poll!(&mut receiving).is_pending());
        }
        // Another upload takes the permit while this one waits for its client
        held.push(permits.acquire().await);
        sender.send("chunk").unwrap();
        assert!(poll!(&mut receiving).is_pending());
        assert!(cancel.is_closed(), "nothing cancels it from now on");
        held.pop();
        assert_eq!(receiving.await.unwrap().1, Some("chunk"));
    }

    #[tokio::test]
    async fn nothing_is_received_after_the_cancellation() {
        let permits = PiecePermits::default();
        let mut content = futures_util::stream::pending::<()>();
        let permit = permits.acquire().await;
        assert!(permits.first_chunk(permit, &mut content, std::future::ready(())).await.is_none());
        assert_eq!(permits.held(), 0);
    }
}
