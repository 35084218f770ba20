//! The owner of the stream: runs it while it is in use.

use std::sync::Arc;
use std::time::Duration;

use portico_database::Database;
use portico_database::replication::ReplicationError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::backoff::Backoff;
use super::refusals::Refusals;
use super::run::{RunError, StreamConsumers, StreamRun};
use super::times::StreamTimes;
use super::watchdog::Unhealthy;

/// The slot's name before the suffix.
const SLOT: &str = "supabase_realtime_replication_slot_";
/// The pause after an error that only a change of the server's configuration ends.
const CONFIGURATION_PAUSE: Duration = Duration::from_secs(30);

/// The settings of the stream.
#[derive(Debug)]
pub(crate) struct ChangeStreamSettings {
    pub database: Database,
    /// The end of the slot's name, which differs between servers on the same PostgreSQL:
    /// lower-case letters, digits and underscores, at most 28.
    pub suffix: String,
    pub consumers: StreamConsumers,
    pub times: StreamTimes,
}

/// The state of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// Not in use.
    Stopped,
    /// In use, and not connected yet.
    Connecting,
    /// Everything that is committed from now on is received.
    Running,
    /// The last attempt failed, for this reason. There will be another one.
    Failed(Arc<str>),
}

/// The values of a stream that its users follow.
#[derive(Debug, Clone)]
pub(crate) struct FollowedStream {
    pub state: watch::Receiver<StreamState>,
    /// Changes when other tables are published than before, while the stream is running.
    pub table_changes: watch::Receiver<u64>,
}

/// The stream of database changes. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ChangeStream {
    uses: watch::Sender<usize>,
    followed: FollowedStream,
    task: JoinHandle<()>,
}

/// A use of the stream, which runs at least until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamUse {
    uses: watch::Sender<usize>,
}

impl ChangeStream {
    /// Prepares the stream, on the current runtime. It connects when it is first used.
    pub fn new(settings: ChangeStreamSettings) -> Self {
        let (uses, in_use) = watch::channel(0);
        let (sender, state) = watch::channel(StreamState::Stopped);
        let ChangeStreamSettings { database, suffix, consumers, times } = settings;
        let (slot, refusals) = (format!("{SLOT}{suffix}"), Refusals::default());
        let (table_changes, followed_tables) = watch::channel(0);
        let run = StreamRun { database, slot, consumers, times, refusals, table_changes };
        let task = tokio::spawn(own(run, in_use, sender));
        Self { uses, followed: FollowedStream { state, table_changes: followed_tables }, task }
    }

    /// Uses the stream until the returned value is dropped. Starts it if it is not running.
    pub fn use_stream(&self) -> StreamUse {
        self.uses.send_modify(|uses| *uses += 1);
        StreamUse { uses: self.uses.clone() }
    }

    /// Returns the state, whose changes can be awaited.
    pub fn state(&self) -> watch::Receiver<StreamState> {
        self.followed.state.clone()
    }

    /// Returns the values of the stream that can be followed.
    pub fn follow(&self) -> FollowedStream {
        self.followed.clone()
    }
}

impl Drop for ChangeStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for StreamUse {
    fn drop(&mut self) {
        self.uses.send_modify(|uses| *uses = uses.saturating_sub(1));
    }
}

/// Runs the stream whenever it is in use, until the owner and all uses are dropped or a consumer
/// has ended.
async fn own(run: StreamRun, mut uses: watch::Receiver<usize>, state: watch::Sender<StreamState>) {
    while uses.wait_for(|uses| *uses > 0).await.is_ok() {
        tokio::select! {
            () = keep_running(&run, &state) => return,
            () = unused(&mut uses, run.times.idle) => {}
        }
        tracing::debug!(slot = run.slot, "the stream of database changes has stopped");
        state.send_replace(StreamState::Stopped);
    }
}

/// Returns when the stream was without any use for the whole of `idle`.
async fn unused(uses: &mut watch::Receiver<usize>, idle: Duration) {
    while uses.wait_for(|uses| *uses == 0).await.is_ok() {
        match tokio::time::timeout(idle, uses.wait_for(|uses| *uses > 0)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Returns the reason of a failure as clients may see it. The log has the details.
fn public_reason(error: &RunError) -> String {
    match error {
        RunError::Replication(ReplicationError::NotLogical(_)) | RunError::NoPublication => error.to_string(),
        _ => "Realtime was unable to connect to the project database".to_owned(),
    }
}

/// Runs the stream again and again. Returns when a consumer has ended.
async fn keep_running(run: &StreamRun, state: &watch::Sender<StreamState>) {
    let mut backoff = Backoff::default();
    loop {
        state.send_if_modified(|state| match state {
            // A reason stays visible until the stream is running again
            StreamState::Failed(_) => false,
            _ => {
                *state = StreamState::Connecting;
                true
            }
        });
        let running = run.run(|| {
            backoff.reset();
            tracing::debug!(slot = run.slot, "the stream of database changes is running");
            state.send_replace(StreamState::Running);
        });
        let error = running.await;
        let reason: Arc<str> = public_reason(&error).into();
        let is_known = matches!(&*state.borrow(), StreamState::Failed(known) if *known == reason);
        if matches!(error, RunError::Unhealthy(Unhealthy::Publications)) {
            tracing::info!(
                slot = run.slot,
                "the publications have changed: the stream of database changes starts anew"
            );
        } else if !is_known && !run.database.is_being_recreated() {
            tracing::warn!(error = %error, slot = run.slot, "the stream of database changes has ended");
        }
        state.send_replace(StreamState::Failed(reason));
        let pause = match &error {
            RunError::NoConsumer => return,
            RunError::Replication(error) if error.needs_configuration() => CONFIGURATION_PAUSE,
            _ => backoff.pause(),
        };
        tokio::time::sleep(pause).await;
    }
}
