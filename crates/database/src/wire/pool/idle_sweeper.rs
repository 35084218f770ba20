//! The task that closes idle connections.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::shared::SharedPool;

impl SharedPool {
    /// Starts the task that closes idle connections, unless it runs. It runs while there are idle
    /// connections.
    pub(super) fn start_sweeper(self: &Arc<Self>) {
        if self.has_sweeper.load(Ordering::Acquire) || self.has_sweeper.swap(true, Ordering::AcqRel) {
            return;
        }
        let sweeper = IdleSweeper::new(self);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(sweeper.run(self.settings.max_idle));
        }
    }

    /// Closes the connections that have been idle for too long. Returns the time until the next one
    /// will have been, if there is one.
    fn sweep(&self) -> Option<Duration> {
        let mut queue = self.queue();
        while let Some(mut oldest) = queue.take_idle_for(self.settings.max_idle) {
            oldest.connection.terminate();
        }
        match queue.oldest_idle() {
            Some(since) => Some(self.settings.max_idle.saturating_sub(since.elapsed())),
            None => {
                // Under the lock, so that the next connection that becomes idle starts a new task
                self.has_sweeper.store(false, Ordering::Release);
                None
            }
        }
    }
}

/// The task that closes connections which were idle for too long. If it ends early, together with
/// its runtime, another one can be started.
struct IdleSweeper {
    pool: Weak<SharedPool>,
    is_done: bool,
}

impl IdleSweeper {
    /// Returns the task of a pool.
    fn new(pool: &Arc<SharedPool>) -> Self {
        Self { pool: Arc::downgrade(pool), is_done: false }
    }

    /// Sweeps after `first_pause`, and then whenever a connection has been idle for long enough,
    /// until none is idle.
    async fn run(mut self, first_pause: Duration) {
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
