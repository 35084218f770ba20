//! Wake-ups of the tasks of many sockets, made together.
//!
//! To wake a task of another thread costs a system call, and its runtime takes such tasks rarely
//! while it has others. So the wake-ups are collected while frames are put into outboxes, and each
//! thread receives those of its own sockets as one piece of work.

use std::task::Waker;

use tokio::runtime::Handle;

/// The number of wake-ups after which they are made: with more, the first sockets would wait.
const MAX_WAITING: usize = 1024;

/// Wake-ups that are made when there are many, and when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct DeferredWakes {
    /// There are few threads.
    threads: Vec<(Handle, Vec<Waker>)>,
    waiting: usize,
}

impl DeferredWakes {
    /// Adds the wake-up of a task of `runtime`.
    pub fn add(&mut self, runtime: &Handle, waker: Waker) {
        match self.threads.iter_mut().find(|(known, _)| known.id() == runtime.id()) {
            Some((_, wakers)) => wakers.push(waker),
            None => self.threads.push((runtime.clone(), vec![waker])),
        }
        self.waiting += 1;
        if self.waiting >= MAX_WAITING {
            self.wake();
        }
    }

    fn wake(&mut self) {
        self.waiting = 0;
        for (runtime, wakers) in self.threads.drain(..) {
            // A runtime that has ended drops the work, and has no sockets any more
            runtime.spawn(async move { wakers.into_iter().for_each(Waker::wake) });
        }
    }
}

impl Drop for DeferredWakes {
    fn drop(&mut self) {
        self.wake();
    }
}
