//! The embedded cluster: the real PostgreSQL server as a child process of ours.
//!
//! It is found ([`Binaries`]), made on the first start, run as an unprivileged user when we are root, started again when it
//! dies, and ended when we end: by [`Cluster::stop`], by dropping the handle, and by the system when we are killed. A lock on
//! the data folder keeps a second server out; what a killed one left behind is cleared away at the next start.

mod account;
mod binaries;
mod configuration;
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
pub use error::ClusterError;
pub use private::{close_folder, make_folder};
pub use settings::{ClusterSettings, Durability};

use crate::endpoint::Endpoint;
use home::SOCKET_PORT;
use initialise::SUPERUSER;
use supervisor::Shared;

/// How long a fast shutdown may take, then an immediate one.
const FAST: Duration = Duration::from_secs(30);
const IMMEDIATE: Duration = Duration::from_secs(5);

/// A running cluster. Dropping the handle ends it too, and waits for that.
#[derive(Debug)]
pub struct Cluster {
    endpoint: Endpoint,
    tcp_port: Option<u16>,
    major: u32,
    programs: PathBuf,
    shared: Arc<Shared>,
}

impl Cluster {
    /// Starts the cluster, making it first when the data folder is empty, and waits until it accepts sessions.
    ///
    /// # Errors
    /// [`ClusterError`] says what is in the way and what to do.
    pub async fn start(settings: ClusterSettings) -> Result<Self, ClusterError> {
        let tcp_port = settings.tcp_port;
        let shared = Arc::new(Shared::default());
        let started =
            supervisor::start(settings, Arc::clone(&shared))?.await.map_err(|_| ClusterError::SupervisorGone)??;
        let port = tcp_port.unwrap_or(SOCKET_PORT);
        let endpoint = Endpoint::socket(started.socket_folder, port, SUPERUSER, "postgres");
        Ok(Self { endpoint, tcp_port, major: started.major, programs: started.programs, shared })
    }

    /// The way in for us: the socket, as superuser, to the database `postgres`.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// The loopback port for other programs, if there is one.
    pub fn tcp_port(&self) -> Option<u16> {
        self.tcp_port
    }

    /// PostgreSQL's major version.
    pub fn major_version(&self) -> u32 {
        self.major
    }

    /// The folder of the programs, as it was found.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The process id of the running server; `None` while it is being started again.
    pub fn process(&self) -> Option<u32> {
        self.shared.process()
    }

    /// How often the server was started again because it had died.
    pub fn restarts(&self) -> u32 {
        self.shared.restarts()
    }

    /// Ends the cluster: sessions are ended, everything is written, the folder is free afterwards.
    pub async fn stop(self) {
        let shared = Arc::clone(&self.shared);
        // Waiting blocks, so it has a thread of its own kind; without the runtime's, `drop` waits.
        let _ = tokio::task::spawn_blocking(move || end(&shared)).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end(&self.shared);
    }
}

/// Asks for the end, ever more firmly, and waits for it.
fn end(shared: &Shared) {
    shared.stop();
    if shared.wait_until_ended(FAST) {
        return;
    }
    tracing::warn!("PostgreSQL takes long to stop: it is told to end at once, and recovers at the next start");
    shared.insist(Signal::QUIT);
    if !shared.wait_until_ended(IMMEDIATE) {
        shared.insist(Signal::KILL);
        shared.wait_until_ended(IMMEDIATE);
    }
}
