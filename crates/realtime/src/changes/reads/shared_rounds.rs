//! Work that many callers need at the same time, done once for all of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The callers that wait for the next round of each piece of work that is running.
type WaitingCallers<K, V> = HashMap<K, Vec<oneshot::Sender<V>>>;

/// Shares the results of work among the callers who ask while it has not begun. A caller that comes
/// while a round is running gets the result of the next one, so that it never gets a result that is
/// older than its call.
#[derive(Debug)]
pub(crate) struct SharedRounds<K, V> {
    waiting: Arc<Mutex<WaitingCallers<K, V>>>,
}

impl<K, V> Default for SharedRounds<K, V> {
    fn default() -> Self {
        Self { waiting: Arc::default() }
    }
}

impl<K: Hash + Eq + Clone + Send + 'static, V: Clone + Send + 'static> SharedRounds<K, V> {
    /// Returns the result of a round that begins after this call. The key determines the work.
    /// `None`: the work has panicked, or the runtime is shutting down.
    pub async fn result<F, Fut>(&self, key: K, work: F) -> Option<V>
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = V> + Send,
    {
        let (sender, receiver) = oneshot::channel();
        match lock(&self.waiting).entry(key.clone()) {
            Entry::Occupied(mut running) => running.get_mut().push(sender),
            Entry::Vacant(idle) => {
                idle.insert(vec![sender]);
                let running = RunningRounds { waiting: Arc::clone(&self.waiting), key };
                // A task of its own, which no caller cancels for the others
                tokio::spawn(async move {
                    while let Some(callers) = next_callers(&running.waiting, &running.key) {
                        let value = work().await;
                        for caller in callers {
                            let _ = caller.send(value.clone());
                        }
                    }
                });
            }
        }
        receiver.await.ok()
    }
}

/// A running task. However it ends, also by a panic of the work, later callers begin another one:
/// those that wait then receive nothing.
struct RunningRounds<K: Hash + Eq, V> {
    waiting: Arc<Mutex<WaitingCallers<K, V>>>,
    key: K,
}

impl<K: Hash + Eq, V> Drop for RunningRounds<K, V> {
    fn drop(&mut self) {
        // A task that ends by itself has removed it, and the place may be that of another one
        if std::thread::panicking() {
            lock(&self.waiting).remove(&self.key);
        }
    }
}

/// Takes the callers of the next round. `None`: there are none, and the work ends.
fn next_callers<K: Hash + Eq, V>(waiting: &Mutex<WaitingCallers<K, V>>, key: &K) -> Option<Vec<oneshot::Sender<V>>> {
    let mut waiting = lock(waiting);
    let callers = waiting.get_mut(key).map(std::mem::take).filter(|callers| !callers.is_empty());
    if callers.is_none() {
        waiting.remove(key);
    }
    callers
}

fn lock<K, V>(waiting: &Mutex<WaitingCallers<K, V>>) -> MutexGuard<'_, WaitingCallers<K, V>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn callers_during_a_round_share_the_next_one() {
        let rounds = Arc::new(SharedRounds::<&str, usize>::default());
        let (started, permits) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let count = Arc::new(AtomicUsize::new(0));
        let call = || {
            let (rounds, count) = (Arc::clone(&rounds), Arc::clone(&count));
            let (started, permits) = (Arc::clone(&started), Arc::clone(&permits));
            async move {
                rounds
                    .result("key", move || {
                        let (count, started, permits) =
                            (Arc::clone(&count), Arc::clone(&started), Arc::clone(&permits));
                        async move {
                            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                            started.add_permits(1);
                            permits.acquire().await.unwrap().forget();
                            number
                        }
                    })
                    .await
            }
        };
        let first = tokio::spawn(call());
        started.acquire().await.unwrap().forget();
        let later: Vec<_> = (0..10).map(|_| tokio::spawn(call())).collect();
        while lock(&rounds.waiting)["key"].len() < 10 {
            tokio::task::yield_now().await;
        }
        permits.add_permits(2);
        assert_eq!(first.await.unwrap(), Some(1));
        for call in later {
            assert_eq!(call.await.unwrap(), Some(2));
        }
        while !lock(&rounds.waiting).is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_round_that_panics_leaves_nothing_behind() {
        let rounds = SharedRounds::<&str, usize>::default();
        assert_eq!(rounds.result("key", || async { panic!("a test") }).await, None);
        assert_eq!(rounds.result("key", || async { 1 }).await, Some(1));
        assert!(lock(&rounds.waiting).is_empty());
    }
}
