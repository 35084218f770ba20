//! Threads for work that waits for the disk.
//!
//! A flush takes long, and many uploads end at the same time. If each had a thread of its own,
//! there would be hundreds, each with a stack and a heap, and the disk would not be faster.

use std::io;
use std::sync::Arc;

use portico_base::spawn_blocking;
use tokio::sync::Semaphore;

/// The threads of one kind of work.
const THREADS: usize = 8;

/// A bound of the threads that one kind of work takes. Clones share it. Work beyond it waits in
/// order.
#[derive(Debug, Clone)]
pub(crate) struct DiskThreads(Arc<Semaphore>);

impl Default for DiskThreads {
    fn default() -> Self {
        Self::new(THREADS)
    }
}

impl DiskThreads {
    /// Returns a bound of this number of threads.
    pub fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads)))
    }

    /// Runs work on a thread that may block. Once begun it runs to its end, also if this is
    /// cancelled.
    ///
    /// # Errors
    /// Those of the work, and one if it panics.
    pub async fn run<T: Send + 'static, E: From<io::Error> + Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        // It is never closed
        let thread = Arc::clone(&self.0).acquire_owned().await.ok();
        let working = spawn_blocking(move || {
            let outcome = work();
            drop(thread);
            outcome
        });
        working.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    /// Begins work that lasts until its channel is closed, and is then cancelled.
    async fn begin(threads: &DiskThreads, begun: &std::sync::mpsc::Sender<()>, end: &Arc<Mutex<Receiver<()>>>) {
        let (begun, end) = (begun.clone(), Arc::clone(end));
        let mut work = Box::pin(threads.run(move || {
            let _ = begun.send(());
            let _ = end.lock().unwrap().recv();
            Ok::<_, io::Error>(())
        }));
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut work).await.is_err());
    }

    #[tokio::test]
    async fn work_takes_a_bounded_number_of_threads_also_when_it_is_cancelled() {
        let threads = DiskThreads::default();
        let (begun, begins) = channel();
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        for _ in 0..THREADS {
            begin(&threads, &begun, &ends).await;
        }
        (0..THREADS).for_each(|_| begins.recv().unwrap());
        begin(&threads, &begun, &ends).await;
        assert!(begins.try_recv().is_err(), "one more has no thread");
        drop(end);
        threads.run(|| Ok::<_, io::Error>(())).await.unwrap();
    }
}
