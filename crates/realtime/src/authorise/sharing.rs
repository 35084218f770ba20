//! Runs that identical probes share while they wait.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use portico_base::inherit_request;
use tokio_util::task::AbortOnDropHandle;

use super::error::AuthoriseError;
use super::probe::{Probe, ProbeResult};

/// The result of a run, for all callers that share it. The run is cancelled when the last of them
/// is.
pub(super) type SharedRun = Shared<Pin<Box<dyn Future<Output = Outcome> + Send>>>;
type Outcome = Result<ProbeResult, AuthoriseError>;

/// The runs that have not begun.
#[derive(Debug, Default)]
pub(super) struct SharedRuns(Arc<Mutex<WaitingRuns>>);

#[derive(Debug, Default)]
struct WaitingRuns {
    runs: HashMap<Arc<Probe>, WaitingRun>,
    begun: u64,
}

#[derive(Debug)]
struct WaitingRun {
    number: u64,
    run: WeakShared<Pin<Box<dyn Future<Output = Outcome> + Send>>>,
}

/// The slot of a run among those that have not begun. Others join it until it is left or dropped.
#[derive(Debug)]
pub(super) struct WaitingSlot {
    waiting: Arc<Mutex<WaitingRuns>>,
    probe: Arc<Probe>,
    number: u64,
}

impl SharedRuns {
    /// Returns the run of an identical probe that has not begun, or begins to wait with a new one.
    /// `run` must [leave](WaitingSlot::leave) its slot before it asks PostgreSQL.
    pub fn join_or_begin<Run>(&self, probe: Probe, run: impl FnOnce(WaitingSlot) -> Run) -> SharedRun
    where
        Run: Future<Output = Outcome> + Send + 'static,
    {
        // Held until the run can be found, because it may start on another thread at once
        let mut waiting = lock(&self.0);
        if let Some(run) = waiting.runs.get(&probe).and_then(|waiting| waiting.run.upgrade()) {
            return run;
        }
        let probe = Arc::new(probe);
        waiting.begun += 1;
        let number = waiting.begun;
        let slot = WaitingSlot { waiting: Arc::clone(&self.0), probe: Arc::clone(&probe), number };
        // A task of its own, because the callers may be on different threads, and each may go first
        let task = AbortOnDropHandle::new(tokio::spawn(inherit_request(run(slot))));
        let shared = async move { task.await.unwrap_or(Err(AuthoriseError::Failed)) }.boxed().shared();
        if let Some(run) = shared.downgrade() {
            waiting.runs.insert(probe, WaitingRun { number, run });
        }
        shared
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        lock(&self.0).runs.is_empty()
    }
}

impl WaitingSlot {
    /// Ends the waiting: callers from now on need another run. Returns the probe.
    pub fn leave(self) -> Arc<Probe> {
        Arc::clone(&self.probe)
    }
}

impl Drop for WaitingSlot {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        // A run whose callers were all cancelled may have been replaced
        if waiting.runs.get(&self.probe).is_some_and(|run| run.number == self.number) {
            waiting.runs.remove(&self.probe);
        }
    }
}

fn lock(waiting: &Mutex<WaitingRuns>) -> MutexGuard<'_, WaitingRuns> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
