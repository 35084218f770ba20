//! The task that closes idle connections.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::shared::SharedPool;

/// The task that closes connections which were idle for too long. If it ends early, together with
/// its runtime, another one can be started.
pub(super) struct IdleSweeper {
    pool: Weak<SharedPool>,
    is_done: bool,
}

impl IdleSweeper {
    /// Returns the task of a pool.
    pub fn new(pool: &Arc<SharedPool>) -> Self {
        Self { pool: Arc::downgrade(pool), is_done: false }
    }

    /// Sweeps after `first_pause`, and then whenever a connection has been idle for long enough,
    /// until none is idle.
    pub async fn run(mut self, first_pause: Duration) {
        let mut pause = first_pause;
        while !self.is_done {
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
            match self.pool.upgrade().and_then(|pool| pool.sweep()) {
                Some(next) => pause = next,
                None => self.is_done = true,
            }
        }
    }
}

impl Drop for IdleSweeper {
    fn drop(&mut self) {
        if !self.is_done
            && let Some(pool) = self.pool.upgrade()
        {
            pool.has_sweeper.store(false, Ordering::Release);
        }
    }
}
