//! The thread that supervises PostgreSQL: it prepares the folder, starts the server, restarts it
//! after a crash, and stops it.
//!
//! A thread and not a task, because the child process is tied to the life of the thread that makes
//! it.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::oneshot;

use super::binaries::Binaries;
use super::error::ClusterError;
use super::extensions;
use super::home::Home;
use super::initialise::initialise;
use super::log::{self, LastLines};
use super::process::{self, accepts_sessions};
use super::settings::ClusterSettings;
use super::{configuration, leftovers};

/// The interval between readiness checks of a starting server.
const POLL: Duration = Duration::from_millis(5);
/// The first pause before a restart; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After a run of this length the pauses start from the beginning.
const WELL: Duration = Duration::from_secs(60);

/// The state that the thread and the handle share.
#[derive(Debug, Default)]
pub(super) struct SharedSupervisor {
    state: Mutex<SupervisorState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SupervisorState {
    /// The running server. Set only while its process id cannot have been reused.
    child: Option<Pid>,
    stopping: bool,
    ended: bool,
    restarts: u32,
}

/// The properties of a started cluster that the handle returns.
#[derive(Debug)]
pub(super) struct StartedCluster {
    pub socket_folder: std::path::PathBuf,
    pub major: u32,
    pub programs: std::path::PathBuf,
}

impl SharedSupervisor {
    fn lock(&self) -> MutexGuard<'_, SupervisorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a fast shutdown, which closes sessions and writes everything.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        self.signal(&state, Signal::INT);
        self.changed.notify_all();
    }

    /// Requests an immediate shutdown.
    pub fn insist(&self, signal: Signal) {
        self.signal(&self.lock(), signal);
    }

    fn signal(&self, state: &SupervisorState, signal: Signal) {
        if let Some(child) = state.child {
            let _ = kill_process(child, signal);
        }
    }

    /// Waits until the thread has ended. Returns `false` if it has not within that time.
    pub fn wait_until_ended(&self, patience: Duration) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), patience, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        state.ended
    }

    /// Returns the process id of the running server.
    pub fn process(&self) -> Option<u32> {
        self.lock().child.and_then(|child| u32::try_from(child.as_raw_nonzero().get()).ok())
    }

    /// Returns the number of restarts after crashes.
    pub fn restarts(&self) -> u32 {
        self.lock().restarts
    }

    fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Sleeps until the time is over or a shutdown is requested.
    fn pause(&self, length: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), length, |state| !state.stopping);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Starts the thread. The answer comes when PostgreSQL accepts sessions or cannot be started.
pub(super) fn start(
    settings: ClusterSettings,
    shared: Arc<SharedSupervisor>,
) -> Result<oneshot::Receiver<Result<StartedCluster, ClusterError>>, ClusterError> {
    let (answer, receiver) = oneshot::channel();
    let body = move || {
        let _ended = SupervisorEnd(&shared);
        match prepare(&settings) {
            Ok((home, binaries)) => keep(&home, &binaries, &settings, &shared, answer),
            Err(error) => drop(answer.send(Err(error))),
        }
    };
    thread::Builder::new()
        .name("postgres".into())
        .spawn(body)
        .map_err(ClusterError::system("a thread for PostgreSQL cannot be made"))?;
    Ok(receiver)
}

/// Reports that the thread has ended, also by a panic, and that the folder is unlocked.
struct SupervisorEnd<'a>(&'a SharedSupervisor);

impl Drop for SupervisorEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Prepares everything that the server needs to start.
fn prepare(settings: &ClusterSettings) -> Result<(Home, Binaries), ClusterError> {
    settings.check()?;
    let binaries = Binaries::find(settings.binaries.as_deref())?;
    let home = Home::open(&settings.data)?;
    let binaries = binaries.usable_by(home.account, &home.private_programs())?;
    leftovers::end(&home.pgdata())?;
    if let Some(port) = settings.tcp_port {
        port_is_free(port)?;
    }
    initialise(&home, &binaries, settings.durability)?;
    let failed = |error| ClusterError::folder(home.folder(), &error);
    configuration::write(&home, settings, &binaries).map_err(failed)?;
    extensions::write(&home, &binaries).map_err(failed)?;
    home.ensure_vault_key().map_err(failed)?;
    Ok((home, binaries))
}

/// Checks the port on every loopback address: PostgreSQL would start with one of them and be
/// reachable on that one only.
fn port_is_free(port: u16) -> Result<(), ClusterError> {
    for address in configuration::loopback_addresses() {
        match TcpListener::bind((address, port)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(ClusterError::PortTaken { port }),
            Err(error) => return Err(ClusterError::system(format!("PostgreSQL cannot listen on port {port}"))(error)),
        }
    }
    Ok(())
}

/// Runs the server, with restarts, until it is stopped.
fn keep(
    home: &Home,
    binaries: &Binaries,
    settings: &ClusterSettings,
    shared: &SharedSupervisor,
    answer: oneshot::Sender<Result<StartedCluster, ClusterError>>,
) {
    let mut answer = Some(answer);
    let mut pause = FIRST_PAUSE;
    while !shared.is_stopping() {
        let since = Instant::now();
        let outcome = run_once(home, binaries, settings, shared, &mut answer);
        if shared.is_stopping() {
            break;
        }
        match (outcome, answer.take()) {
            // A failure of the first start is reported. A retry would fail in the same way.
            (Err(error), Some(answer)) => {
                let _ = answer.send(Err(error));
                break;
            }
            (Err(error), None) => tracing::error!(error = %error, "PostgreSQL could not be started again"),
            (Ok(status), _) => tracing::error!(status = %status, "PostgreSQL ended unexpectedly and is started again"),
        }
        if since.elapsed() > WELL {
            pause = FIRST_PAUSE;
        }
        shared.lock().restarts += 1;
        shared.pause(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Runs the server once, from its start to its end.
fn run_once(
    home: &Home,
    binaries: &Binaries,
    settings: &ClusterSettings,
    shared: &SharedSupervisor,
    answer: &mut Option<oneshot::Sender<Result<StartedCluster, ClusterError>>>,
) -> Result<ExitStatus, ClusterError> {
    leftovers::end_followers_of_the_dead(&home.pgdata())?;
    home.clear_socket_folder();
    let mut child = process::spawn(home, binaries, settings)?;
    let last = LastLines::default();
    let reader = child.stderr.take().map(|stream| {
        let last = last.clone();
        thread::Builder::new().name("postgres log".into()).spawn(move || log::forward(stream, &last))
    });
    {
        let mut state = shared.lock();
        state.child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // The shutdown was requested before there was a process to signal.
        if state.stopping || answer.as_ref().is_some_and(oneshot::Sender::is_closed) {
            state.stopping = true;
            shared.signal(&state, Signal::INT);
        }
    }
    let socket = process::socket(home, settings);
    while answer.is_some() {
        if accepts_sessions(&socket) {
            let started = StartedCluster {
                socket_folder: home.socket_folder().to_owned(),
                major: binaries.major(),
                programs: binaries.found().to_owned(),
            };
            if answer.take().is_some_and(|answer| answer.send(Ok(started)).is_err()) {
                shared.stop();
            }
        } else if has_ended(&child) {
            let status = reap(&mut child, shared)?;
            // The log is complete once its reader has ended.
            if let Some(Ok(reader)) = reader {
                let _ = reader.join();
            }
            return Err(failure(home, settings, &last.text(), status));
        } else if answer.as_ref().is_some_and(oneshot::Sender::is_closed) {
            shared.stop();
            break;
        } else {
            thread::sleep(POLL);
        }
    }
    reap(&mut child, shared)
}

/// Returns true if the child has ended, without freeing its process id.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    Pid::from_raw(child.id().cast_signed()).is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
}

/// Waits for the end. The process id is cleared before the system can reuse it, so that no signal
/// can reach another process.
fn reap(child: &mut Child, shared: &SharedSupervisor) -> Result<ExitStatus, ClusterError> {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {
        }
    }
    shared.lock().child = None;
    child.wait().map_err(ClusterError::system("the end of PostgreSQL cannot be waited for"))
}

/// Returns the reason why the server did not start, as far as its log contains it.
fn failure(home: &Home, settings: &ClusterSettings, log: &str, status: ExitStatus) -> ClusterError {
    match settings.tcp_port {
        Some(port) if log.contains("Address already in use") => ClusterError::PortTaken { port },
        _ if log.contains("No space left on device") => {
            ClusterError::NoSpace { folder: home.folder().to_owned(), available: None }
        }
        _ => ClusterError::DidNotStart { status: status.to_string(), output: log.to_owned() },
    }
}
