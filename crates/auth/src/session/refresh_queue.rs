//! The queue of refreshes with the same token.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

type QueueLocks = HashMap<[u8; 32], Arc<Mutex<()>>>;

/// Lets refreshes with the same token run one after the other.
#[derive(Debug, Default)]
pub(crate) struct RefreshQueue {
    locks: std::sync::Mutex<QueueLocks>,
}

/// The permission of one refresh to run; the next one starts when it is dropped.
pub(crate) struct RefreshGuard<'a> {
    // Dropped before the entry, which counts the waiting refreshes
    _guard: OwnedMutexGuard<()>,
    _entry: QueueEntry<'a>,
}

struct QueueEntry<'a> {
    queue: &'a RefreshQueue,
    name: [u8; 32],
    lock: Arc<Mutex<()>>,
}

impl RefreshQueue {
    fn locks(&self) -> std::sync::MutexGuard<'_, QueueLocks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other refresh with the same token runs. Returns `None` when the deadline
    /// passes.
    pub(super) async fn enter(&self, name: [u8; 32], deadline: Instant) -> Option<RefreshGuard<'_>> {
        let lock = Arc::clone(self.locks().entry(name).or_default());
        let entry = QueueEntry { queue: self, name, lock: Arc::clone(&lock) };
        let guard = tokio::time::timeout_at(deadline, lock.lock_owned()).await.ok()?;
        Some(RefreshGuard { _guard: guard, _entry: entry })
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let mut locks = self.queue.locks();
        // The references of the map and of this entry: no other refresh waits
        if Arc::strong_count(&self.lock) == 2 {
            locks.remove(&self.name);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn the_queue_admits_one_at_a_time_and_forgets_names() {
        let queue = Arc::new(RefreshQueue::default());
        let inside = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (queue, inside) = (Arc::clone(&queue), Arc::clone(&inside));
                tokio::spawn(async move {
                    let _guard = queue.enter([1; 32], Instant::now() + LIMIT).await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(queue.locks().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let queue = RefreshQueue::default();
        let guard = queue.enter([2; 32], Instant::now() + LIMIT).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(1), queue.enter([2; 32], Instant::now() + LIMIT));
        assert!(waiting.await.is_err());
        drop(guard);
        assert!(queue.locks().is_empty());
    }
}
