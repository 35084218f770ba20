//! Threads for work that waits for the disk.
//!
//! A flush takes long, and many uploads end at the same time. If each had a thread of its own,
//! there would be hundreds, each with a stack and a heap, and the disk would not be faster.

use std::io;

use portico_base::inherit_request_blocking;
use tokio::sync::oneshot;

use super::work_queue::{Batches, WorkQueue};

/// The threads of one kind of work.
const THREADS: usize = 8;

/// A bound of the threads that one kind of work takes. Clones share it. Work beyond it waits in
/// order.
#[derive(Debug, Clone)]
pub(crate) struct DiskThreads(WorkQueue<Box<dyn FnOnce() + Send>>);

impl Default for DiskThreads {
    fn default() -> Self {
        Self::new(THREADS)
    }
}

impl DiskThreads {
    /// Returns a bound of this number of threads.
    pub fn new(threads: usize) -> Self {
        let run_all = || |batch: &mut Vec<Box<dyn FnOnce() + Send>>| batch.drain(..).for_each(|work| work());
        Self(WorkQueue::new(threads, Batches::none(), run_all))
    }

    /// Runs work on a thread that may block. Once begun it runs to its end, also if this is
    /// cancelled; work that still waits for a thread then does not begin.
    ///
    /// # Errors
    /// Those of the work, and one if it panics.
    pub async fn run<T: Send + 'static, E: From<io::Error> + Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let (done, outcome) = oneshot::channel();
        self.0.push(Box::new(inherit_request_blocking(move || {
            if !done.is_closed() {
                let _ = done.send(work());
            }
        })));
        outcome.await.unwrap_or_else(|_| Err(io::Error::other("the work on a disk was not completed").into()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn work_takes_a_bounded_number_of_threads_also_when_it_is_cancelled() {
        let threads = DiskThreads::default();
        let (begun, begins) = channel();
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        // Lasts until its channel is closed
        let work = || {
            let (begun, ends) = (begun.clone(), Arc::clone(&ends));
            Box::pin(threads.run(move || {
                let _ = begun.send(());
                let _ = ends.lock().unwrap().recv();
                Ok::<_, io::Error>(())
            }))
        };
        let mut working: Vec<_> = (0..THREADS).map(|_| work()).collect();
        for work in &mut working {
            assert!(poll!(work).is_pending());
        }
        working.iter().for_each(|_| begins.recv().unwrap());
        // Work that was begun goes on
        drop(working);
        let mut more = work();
        assert!(poll!(&mut more).is_pending());
        assert!(begins.try_recv().is_err(), "one more has no thread");
        drop(more);
        drop(end);
        threads.run(|| Ok::<_, io::Error>(())).await.unwrap();
        assert!(begins.try_recv().is_err(), "and does not begin, since it was cancelled");
    }
}
