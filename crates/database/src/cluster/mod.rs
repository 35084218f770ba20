//! The embedded cluster: the real PostgreSQL server as a child process of ours.
//!
//! Portico finds it ([`Binaries`]), initialises it on the first start, runs it as an unprivileged
//! user if it runs as root itself, restarts it when it crashes, and stops it at the end: by
//! [`Cluster::stop`], by dropping the handle, or by the system if Portico is killed. A lock on the
//! data folder keeps a second server out. The next start cleans up after a server that was killed.

mod account;
mod binaries;
mod configuration;
mod copies;
mod error;
mod extensions;
mod home;
mod initialise;
mod leftovers;
mod log;
mod private;
mod process;
mod settings;
mod supervisor;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

pub use binaries::{BINARIES_VARIABLE, Binaries};
pub(crate) use copies::{begin_with, copy_content, initialise_in};
pub use error::ClusterError;
pub(crate) use home::ROOTS_FOLDER;
pub use private::{close_folder, make_folder};
pub use settings::{ClusterSettings, Durability};

use crate::endpoint::Endpoint;
use home::{SOCKET_PORT, SUPERUSER};
use supervisor::SharedSupervisor;

/// The time limits of a fast shutdown, and of an immediate one after it.
const FAST: Duration = Duration::from_secs(30);
const IMMEDIATE: Duration = Duration::from_secs(5);

/// A running cluster. Dropping the handle stops it and waits for the end.
#[derive(Debug)]
pub struct Cluster {
    endpoint: Endpoint,
    tcp_port: Option<u16>,
    major: u32,
    programs: PathBuf,
    shared: Arc<SharedSupervisor>,
}

impl Cluster {
    /// Starts the cluster and waits until it accepts sessions. An empty data folder is initialised
    /// first.
    ///
    /// # Errors
    /// [`ClusterError`] names the obstacle and the remedy.
    pub async fn start(settings: ClusterSettings) -> Result<Self, ClusterError> {
        let tcp_port = settings.tcp_port;
        let shared = Arc::new(SharedSupervisor::default());
        let started =
            supervisor::start(settings, Arc::clone(&shared))?.await.map_err(|_| ClusterError::SupervisorGone)??;
        let port = tcp_port.unwrap_or(SOCKET_PORT);
        let endpoint = Endpoint::socket(started.socket_folder, port, SUPERUSER, "postgres");
        Ok(Self { endpoint, tcp_port, major: started.major, programs: started.programs, shared })
    }

    /// Returns the endpoint of the cluster that another process runs in the data folder `data`;
    /// `None` if none runs there. Only the user who started it and root can use it.
    pub fn endpoint_of_running(data: &Path) -> Option<Endpoint> {
        // PostgreSQL writes the port into the fourth line and the folder of its socket into the
        // fifth
        let text = std::fs::read_to_string(data.join("pgdata").join("postmaster.pid")).ok()?;
        let lines: Vec<&str> = text.lines().collect();
        let (port, folder) = (lines.get(3)?.trim().parse().ok()?, lines.get(4)?.trim());
        let socket = Path::new(folder).join(format!(".s.PGSQL.{port}"));
        // A server that was killed leaves both files behind
        std::os::unix::net::UnixStream::connect(&socket).ok()?;
        Some(Endpoint::socket(folder, port, SUPERUSER, "postgres"))
    }

    /// Returns the endpoint of the superuser: the socket, and the database `postgres`.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Returns the loopback port for other programs, if there is one.
    pub fn tcp_port(&self) -> Option<u16> {
        self.tcp_port
    }

    /// Returns PostgreSQL's major version.
    pub fn major_version(&self) -> u32 {
        self.major
    }

    /// Returns the folder of the programs, as it was found.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Returns the process id of the running server. `None` during a restart.
    pub fn process(&self) -> Option<u32> {
        self.shared.process()
    }

    /// Returns the number of restarts after crashes.
    pub fn restarts(&self) -> u32 {
        self.shared.restarts()
    }

    /// Stops the cluster: sessions are closed, everything is written, and the folder is unlocked.
    pub async fn stop(self) {
        let shared = Arc::clone(&self.shared);
        // Waiting blocks, so it runs on a blocking thread. Without a runtime, `drop` waits.
        let _ = portico_base::spawn_blocking(move || end(&shared)).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end(&self.shared);
    }
}

/// Requests the shutdown, with increasing urgency, and waits for it.
fn end(shared: &SharedSupervisor) {
    shared.stop();
    if shared.wait_until_ended(FAST) {
        return;
    }
    tracing::warn!("PostgreSQL takes long to stop: its processes are ended at once, and it recovers at the next start");
    shared.insist(Signal::QUIT);
    if !shared.wait_until_ended(IMMEDIATE) {
        shared.insist(Signal::KILL);
        shared.wait_until_ended(IMMEDIATE);
    }
}
