//! The queue of refreshes with the same token.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

type Turns = HashMap<[u8; 32], Arc<Mutex<()>>>;

/// Lets refreshes with the same token run one after the other.
#[derive(Debug, Default)]
pub(crate) struct RefreshQueue {
    turns: std::sync::Mutex<Turns>,
}

/// The turn of one refresh; the next one starts when it is dropped.
pub(crate) struct Turn<'a> {
    // Dropped before the ticket, which counts the waiting refreshes
    _guard: OwnedMutexGuard<()>,
    _ticket: Ticket<'a>,
}

struct Ticket<'a> {
    queue: &'a RefreshQueue,
    name: [u8; 32],
    turn: Arc<Mutex<()>>,
}

impl RefreshQueue {
    fn turns(&self) -> std::sync::MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Returns `None` when the deadline passes.
    pub(super) async fn enter(&self, name: [u8; 32], deadline: Instant) -> Option<Turn<'_>> {
        let turn = Arc::clone(self.turns().entry(name).or_default());
        let ticket = Ticket { queue: self, name, turn: Arc::clone(&turn) };
        let guard = tokio::time::timeout_at(deadline, turn.lock_owned()).await.ok()?;
        Some(Turn { _guard: guard, _ticket: ticket })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut turns = self.queue.turns();
        // The references of the map and of this ticket: no other refresh waits
        if Arc::strong_count(&self.turn) == 2 {
            turns.remove(&self.name);
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
                    let _turn = queue.enter([1; 32], Instant::now() + LIMIT).await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(queue.turns().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let queue = RefreshQueue::default();
        let turn = queue.enter([2; 32], Instant::now() + LIMIT).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(1), queue.enter([2; 32], Instant::now() + LIMIT));
        assert!(waiting.await.is_err());
        drop(turn);
        assert!(queue.turns().is_empty());
    }
}
