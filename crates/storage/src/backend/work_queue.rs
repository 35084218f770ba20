//! Work that waits for threads which may block.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time for which a thread waits for more work before it ends. While there are uploads there is
/// work more often than that, and to begin a thread takes several times as long as to wake one.
const LINGER: Duration = Duration::from_millis(50);

/// Work that waits, and a bounded number of threads that do it. A thread begins when there is work
/// and ends when there has been none for a while. Clones share both.
pub(crate) struct WorkQueue<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    max_threads: usize,
    batches: Batches,
    /// Signalled when a thread without work is to look for some.
    has_work: Condvar,
    /// Signalled when as much waits as a thread wants.
    is_enough: Condvar,
    /// Makes what a thread keeps and does.
    begin_thread: Box<dyn Fn() -> BatchWork<T> + Send + Sync>,
}

/// The function that a thread calls with each batch.
type BatchWork<T> = Box<dyn FnMut(&mut Vec<T>)>;

struct State<T> {
    waiting: VecDeque<T>,
    /// All threads.
    threads: usize,
    /// The threads without work, except for those that were signalled.
    idle: usize,
    /// The threads that were signalled and do not run yet.
    signalled: usize,
    /// The amount of work that a thread waits for; 0 if none does. Only one waits at a time.
    wanted: usize,
}

/// The amounts of work that a thread does at once.
pub(crate) struct Batches {
    pub max: usize,
    /// Returns how much is worth the patience to wait for it.
    pub wanted: Box<dyn Fn() -> usize + Send + Sync>,
    pub patience: Duration,
}

impl Batches {
    /// One at a time.
    pub fn none() -> Self {
        Self { max: 1, wanted: Box::new(|| 1), patience: Duration::ZERO }
    }
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WorkQueue").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> WorkQueue<T> {
    /// Makes a queue. Each thread calls `begin_thread` once, and what that returns with batches of
    /// what waits, as often as there is something; they must be drained.
    pub fn new<W: FnMut(&mut Vec<T>) + 'static>(
        max_threads: usize,
        batches: Batches,
        begin_thread: impl Fn() -> W + Send + Sync + 'static,
    ) -> Self {
        let waiting = VecDeque::new();
        let state = Mutex::new(State { waiting, threads: 0, idle: 0, signalled: 0, wanted: 0 });
        let begin_thread = Box::new(move || Box::new(begin_thread()) as BatchWork<T>);
        let (has_work, is_enough) = (Condvar::new(), Condvar::new());
        Self(Arc::new(Shared { state, max_threads, batches, has_work, is_enough, begin_thread }))
    }

    /// Adds work. It is done to its end.
    pub fn push(&self, work: T) {
        let mut state = self.state();
        state.waiting.push_back(work);
        // Signals are sent without the lock, for which the thread would wait otherwise
        if state.wanted > 0 {
            if state.waiting.len() >= state.wanted {
                state.wanted = 0;
                drop(state);
                self.0.is_enough.notify_one();
            }
        } else if state.idle > 0 {
            state.idle -= 1;
            state.signalled += 1;
            drop(state);
            self.0.has_work.notify_one();
        } else if state.threads < self.0.max_threads {
            self.start_thread(state);
        }
    }

    /// Starts one more thread.
    fn start_thread(&self, mut state: MutexGuard<'_, State<T>>) {
        state.threads += 1;
        // A runtime that is shutting down drops the thread here, which counts it off
        drop(state);
        let mut thread = WorkThread { queue: self.clone(), has_ended: false };
        #[expect(clippy::disallowed_methods, reason = "the thread works for many requests, and logs for none")]
        tokio::task::spawn_blocking(move || thread.run());
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread. It counts until it has found nothing to do for a while, or until this is dropped.
struct WorkThread<T: Send + 'static> {
    queue: WorkQueue<T>,
    has_ended: bool,
}

impl<T: Send + 'static> WorkThread<T> {
    /// Works until nothing has waited for a while.
    fn run(&mut self) {
        let Shared { begin_thread, batches, .. } = &*self.queue.0;
        let (mut work, mut batch) = (begin_thread(), Vec::with_capacity(batches.max));
        while self.take(&mut batch) {
            work(&mut batch);
            batch.clear();
        }
        self.has_ended = true;
    }

    /// Waits for work and takes a batch of it. Returns false if there was none for a while; the
    /// thread is counted off then, while the queue is locked, so that the next work begins another.
    fn take(&self, batch: &mut Vec<T>) -> bool {
        let Shared { batches, has_work, is_enough, .. } = &*self.queue.0;
        let mut state = self.queue.state();
        loop {
            let wanted = (batches.wanted)().min(batches.max);
            let is_less = state.waiting.len() < wanted && !batches.patience.is_zero();
            // If another thread waits for more, it takes this as well
            if state.waiting.is_empty() || (is_less && state.wanted > 0) {
                state.idle += 1;
                let waited = has_work.wait_timeout_while(state, LINGER, |state| state.signalled == 0);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                if state.signalled == 0 {
                    state.idle -= 1;
                    state.threads -= 1;
                    return false;
                }
                state.signalled -= 1;
                continue;
            }
            if is_less {
                state.wanted = wanted;
                let more = is_enough.wait_timeout_while(state, batches.patience, |state| state.wanted > 0);
                state = more.unwrap_or_else(PoisonError::into_inner).0;
                state.wanted = 0;
            }
            let count = state.waiting.len().min(batches.max);
            batch.extend(state.waiting.drain(..count));
            if count > 0 {
                return true;
            }
        }
    }
}

impl<T: Send + 'static> Drop for WorkThread<T> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.queue.state();
        state.threads -= 1;
        // The work behind one that has panicked needs another thread. A runtime that is shutting
        // down takes none
        if std::thread::panicking() && !state.waiting.is_empty() {
            self.queue.start_thread(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_is_done_in_order_by_a_bounded_number_of_threads() {
        const THREADS: usize = 3;
        let (begun, begins) = channel();
        let (go, gone) = channel::<()>();
        let gone = Arc::new(Mutex::new(gone));
        let batches = Batches { max: 2, ..Batches::none() };
        let queue = WorkQueue::new(THREADS, batches, move || {
            let (begun, gone) = (begun.clone(), Arc::clone(&gone));
            move |batch: &mut Vec<(usize, oneshot::Sender<()>)>| {
                begun.send(batch.iter().map(|(number, _)| *number).collect::<Vec<_>>()).unwrap();
                let _ = gone.lock().unwrap().recv();
                batch.drain(..).for_each(|(_, done)| done.send(()).unwrap());
            }
        });
        let work: Vec<_> = (0..9)
            .map(|number| {
                let (done, outcome) = oneshot::channel();
                queue.push((number, done));
                if number < THREADS {
                    // Each begins a thread of its own
                    assert_eq!(begins.recv().unwrap(), [number]);
                }
                outcome
            })
            .collect();
        assert!(begins.try_recv().is_err(), "all threads are at work");
        drop(go);
        for done in work {
            done.await.unwrap();
        }
        let mut batches: Vec<Vec<usize>> = begins.try_iter().collect();
        batches.sort();
        assert_eq!(batches, [[3, 4], [5, 6], [7, 8]]);
    }

    #[tokio::test]
    async fn a_thread_that_has_found_nothing_is_used_again_and_ends_later() {
        const WORK: usize = 200;
        let begun = Arc::new(AtomicUsize::new(0));
        let threads = Arc::clone(&begun);
        let queue = WorkQueue::new(4, Batches::none(), move || {
            threads.fetch_add(1, Ordering::SeqCst);
            |batch: &mut Vec<oneshot::Sender<()>>| batch.drain(..).for_each(|done| done.send(()).unwrap())
        });
        for _ in 0..WORK {
            let (done, outcome) = oneshot::channel();
            queue.push(done);
            outcome.await.unwrap();
        }
        assert!(begun.load(Ordering::SeqCst) < WORK);
        while queue.state().threads > 0 {
            tokio::task::yield_now().await;
        }
        let State { idle, signalled, .. } = *queue.state();
        assert_eq!((idle, signalled), (0, 0));
    }

    #[tokio::test]
    async fn a_thread_waits_for_as_much_as_it_wants() {
        let batches = Batches { max: 8, wanted: Box::new(|| 3), patience: Duration::from_secs(3600) };
        let queue = WorkQueue::new(1, batches, || {
            |batch: &mut Vec<oneshot::Sender<usize>>| {
                let size = batch.len();
                batch.drain(..).for_each(|done| done.send(size).unwrap());
            }
        });
        let push = || {
            let (done, outcome) = oneshot::channel();
            queue.push(done);
            outcome
        };
        let work = [push(), push(), push()];
        for done in work {
            assert_eq!(done.await, Ok(3));
        }
    }

    #[tokio::test]
    async fn one_thread_waits_for_more_and_others_end() {
        const THREADS: usize = 3;
        let wanted = Arc::new(AtomicUsize::new(1));
        let is_wanted = Arc::clone(&wanted);
        let patience = Duration::from_secs(60);
        let batches = Batches { max: 8, wanted: Box::new(move || is_wanted.load(Ordering::SeqCst)), patience };
        let (begun, begins) = channel();
        let (go, gone) = channel::<()>();
        let gone = Arc::new(Mutex::new(gone));
        let queue = WorkQueue::new(THREADS, batches, move || {
            let (begun, gone) = (begun.clone(), Arc::clone(&gone));
            move |batch: &mut Vec<oneshot::Sender<usize>>| {
                let size = batch.len();
                begun.send(size).unwrap();
                let _ = gone.lock().unwrap().recv();
                // The first ones are not waited for
                batch.drain(..).for_each(|done| _ = done.send(size));
            }
        });
        let push = || {
            let (done, outcome) = oneshot::channel();
            queue.push(done);
            outcome
        };
        for _ in 0..THREADS {
            push();
            assert_eq!(begins.recv(), Ok(1));
        }
        wanted.store(4, Ordering::SeqCst);
        let mut work = vec![push(), push()];
        // All threads find less than they want
        drop(go);
        while queue.state().threads > 1 {
            tokio::task::yield_now().await;
        }
        work.extend([push(), push()]);
        for done in work {
            assert_eq!(done.await, Ok(4));
        }
    }

    #[tokio::test]
    async fn a_thread_does_not_wait_for_ever() {
        let batches = Batches { max: 8, wanted: Box::new(|| 3), patience: Duration::from_millis(1) };
        let queue = WorkQueue::new(1, batches, || {
            |batch: &mut Vec<oneshot::Sender<()>>| batch.drain(..).for_each(|done| done.send(()).unwrap())
        });
        let (done, outcome) = oneshot::channel();
        queue.push(done);
        outcome.await.unwrap();
    }

    #[tokio::test]
    async fn a_thread_that_panics_is_replaced() {
        let (begun, begins) = channel();
        let (go, gone) = channel::<()>();
        let gone = Arc::new(Mutex::new(gone));
        let queue = WorkQueue::new(1, Batches::none(), move || {
            let (begun, gone) = (begun.clone(), Arc::clone(&gone));
            move |batch: &mut Vec<Option<oneshot::Sender<()>>>| {
                for done in batch.drain(..) {
                    begun.send(()).unwrap();
                    let _ = gone.lock().unwrap().recv();
                    done.expect("the test wants it").send(()).unwrap();
                }
            }
        });
        let push = || {
            let (done, outcome) = oneshot::channel();
            queue.push(Some(done));
            outcome
        };
        queue.push(None);
        begins.recv().unwrap();
        // It waits while the thread is at work
        let waited = push();
        drop(go);
        waited.await.unwrap();

        queue.push(None);
        while queue.state().threads > 0 {
            tokio::task::yield_now().await;
        }
        push().await.unwrap();
    }
}
