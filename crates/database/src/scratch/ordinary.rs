//! A PostgreSQL server as a system or a provider sets it up, for tests of databases that are not
//! ours.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::initialised::{initialised, locked_folder};
use super::leftovers::folder_lock;
use crate::cluster::copy_content;
use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;

/// The password of the superuser `postgres`.
const PASSWORD: &str = "superuser's own";
/// The overflow user of Linux, for test programs that run as root, which PostgreSQL does not.
const NOBODY: u32 = 65534;
/// Attempts to find a port that stays free until PostgreSQL has taken it.
const ATTEMPTS: usize = 16;
/// Runs PostgreSQL until standard input is closed, which also happens when the test program is
/// killed.
const SUPERVISE: &str = r#"
    cd / && "$1/postgres" -D "$2" -p "$3" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
      -c max_connections=200 -c shared_buffers=32MB </dev/null >"$2/log" 2>&1 &
    read -r _; kill -INT $! 2>/dev/null; wait; rm -rf "$2" "$2.lock""#;

/// A server whose superuser is `postgres`, reachable over the loopback interface with passwords
/// only. It ends, and its data is deleted, when this is dropped or the program ends.
#[derive(Debug)]
pub struct OrdinaryServer {
    folder: PathBuf,
    port: u16,
    _running: (Child, ChildStdin),
    /// Held open: the lock tells other test programs that the folder is in use.
    _lock: File,
}

impl OrdinaryServer {
    /// Starts a server with a new cluster of the programs in `binaries`.
    ///
    /// # Errors
    /// When a program cannot be run, or the server does not answer.
    pub async fn start(binaries: &Path) -> Result<Self, DatabaseError> {
        let mut outcome = Err(DatabaseError::Closed);
        for _ in 0..ATTEMPTS {
            // Each attempt has a folder of its own: the one that has failed removes its folder when
            // its processes have ended, which may be later
            let server = Self::launch(binaries)
                .map_err(|error| DatabaseError::Refused(format!("an ordinary server for tests: {error}")))?;
            match connection::connect(&server.superuser("postgres")).await {
                Ok(_) => return Ok(server),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Copies a cluster and starts its processes, on a port that was free.
    fn launch(binaries: &Path) -> io::Result<Self> {
        let (folder, lock) = copy(binaries)?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr())?.port();
        let mut command = command_in(&folder, Path::new("/bin/sh"));
        command.args(["-c", SUPERVISE, "sh"]).arg(binaries).arg(&folder).arg(port.to_string());
        let mut running = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        let input = running.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { folder, port, _running: (running, input), _lock: lock })
    }

    /// Returns a connection of the superuser, to the database `postgres`.
    ///
    /// # Panics
    /// When the server does not answer.
    #[allow(clippy::expect_used)]
    pub async fn administrator(&self) -> tokio_postgres::Client {
        connection::connect(&self.superuser("postgres")).await.expect("the server answers")
    }

    /// Returns the endpoint of the superuser for a database.
    pub fn superuser(&self, database: &str) -> Endpoint {
        self.login("postgres", PASSWORD, database)
    }

    /// Returns the endpoint of a role with a password, as a connection URL names it.
    ///
    /// # Panics
    /// When the arguments make no URL.
    #[allow(clippy::expect_used)]
    pub fn login(&self, role: &str, password: &str, database: &str) -> Endpoint {
        Endpoint::parse(&self.url(role, password, database)).expect("a URL of a test's own")
    }

    /// Returns the connection URL of a role with a password.
    pub fn url(&self, role: &str, password: &str, database: &str) -> String {
        let escaped =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        format!("postgresql://{}:{}@127.0.0.1:{}/{}", escaped(role), escaped(password), self.port, escaped(database))
    }

    /// Returns the URL of the superuser for a database.
    pub fn superuser_url(&self, database: &str) -> String {
        self.url("postgres", PASSWORD, database)
    }

    /// Replaces `pg_hba.conf` and has the server read it, which it does a moment later.
    ///
    /// # Errors
    /// When the file cannot be written, or the server does not answer.
    pub async fn set_rules(&self, rules: &str) -> Result<(), DatabaseError> {
        let written = fs::write(self.folder.join("pg_hba.conf"), rules);
        written.map_err(|error| DatabaseError::Refused(error.to_string()))?;
        let client = connection::connect(&self.superuser("postgres")).await?;
        client.batch_execute("select pg_reload_conf()").await?;
        Ok(())
    }
}

/// Returns the folder of a new server, a copy of one that is made once, and its lock.
fn copy(binaries: &Path) -> io::Result<(PathBuf, File)> {
    let initialised = initialised("server", binaries, |folder| initialise(folder, binaries))?;
    let (folder, lock) = locked_folder(0o700)?;
    set_owner(&folder)?;
    set_owner(&folder_lock(&folder))?;
    copy_content(&initialised, &folder, &set_owner)?;
    Ok((folder, lock))
}

fn initialise(folder: &Path, binaries: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    let password = folder.with_extension("password");
    fs::write(&password, PASSWORD)?;
    set_owner(folder)?;
    set_owner(&password)?;
    let mut command = command_in(folder, &binaries.join("initdb"));
    command.arg("-D").arg(folder).arg("--pwfile").arg(&password);
    command.args(["-U", "postgres", "-E", "UTF8", "--locale", "C", "--auth", "scram-sha-256", "--no-sync"]);
    let output = command.stdin(Stdio::null()).output()?;
    let _ = fs::remove_file(&password);
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Makes a file or folder PostgreSQL's own.
fn set_owner(path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() { chown(path, Some(NOBODY), Some(NOBODY)) } else { Ok(()) }
}

fn command_in(folder: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("TZ", "UTC").env("LC_ALL", "C").env("PATH", "/usr/bin:/bin").current_dir(folder);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
