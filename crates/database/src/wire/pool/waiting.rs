//! A caller in the checkout queue.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, error::Elapsed, timeout_at};

use super::checkout_queue::{CheckoutGrant, IdleConnection, WaiterId};
use super::shared::SharedPool;

/// A caller that waits in the checkout queue. Dropped, it leaves the queue, and a grant that has
/// arrived meanwhile is returned to the pool.
pub(crate) struct WaitingCaller {
    pool: Arc<SharedPool>,
    id: WaiterId,
    is_limited: bool,
    /// `None` once the grant was received.
    receiver: Option<oneshot::Receiver<CheckoutGrant>>,
}

impl WaitingCaller {
    /// Returns a caller that was queued.
    pub fn new(
        pool: Arc<SharedPool>,
        id: WaiterId,
        is_limited: bool,
        receiver: oneshot::Receiver<CheckoutGrant>,
    ) -> Self {
        Self { pool, id, is_limited, receiver: Some(receiver) }
    }

    /// Waits for the grant until `until`. If another caller has then taken the batch of this one,
    /// waits for its results until `deadline`. Returns `Ok(None)` when nothing will arrive any
    /// more: the pool was closed, or the caller that took the batch failed.
    pub async fn granted(&mut self, until: Instant, deadline: Instant) -> Result<Option<CheckoutGrant>, Elapsed> {
        match timeout_at(until, self.receive()).await {
            // Not in the queue any more, so the grant or the results are on their way
            Err(_) if !self.pool.queue().leave(self.id) => timeout_at(deadline, self.receive()).await,
            outcome => outcome,
        }
    }

    async fn receive(&mut self) -> Option<CheckoutGrant> {
        let grant = self.receiver.as_mut()?.await.ok();
        self.receiver = None;
        grant
    }
}

impl Drop for WaitingCaller {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        let _ = self.pool.queue().leave(self.id);
        receiver.close();
        // A grant that arrived in the meantime
        match receiver.try_recv() {
            Ok(CheckoutGrant::Connection(Some(IdleConnection { connection, generation, .. }))) => {
                self.pool.give_back(Some(connection), generation, self.is_limited);
            }
            Ok(CheckoutGrant::Connection(None)) => self.pool.give_back(None, 0, self.is_limited),
            Ok(CheckoutGrant::Results(_)) | Err(_) => {}
        }
    }
}
