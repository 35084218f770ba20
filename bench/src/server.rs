//! The release program in its own project folder.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Calls, Done, End, PATIENCE, load};
use crate::processor::Watch;

/// The PostgreSQL of a server.
pub struct Postgres {
    /// Its first process.
    pub pid: u32,
    /// Its port, which also names the socket.
    pub port: u16,
    /// The folder of its socket, which the server uses too.
    pub socket_folder: PathBuf,
}

impl Postgres {
    /// Connects with the role of the account service.
    pub async fn connect(&self) -> Result<tokio_postgres::Client> {
        self.connect_as("supabase_auth_admin").await
    }

    /// Connects as `role`.
    pub async fn connect_as(&self, role: &str) -> Result<tokio_postgres::Client> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.socket_folder).port(self.port).user(role).dbname("postgres");
        let (client, connection) = tokio::time::timeout(PATIENCE, config.connect(tokio_postgres::NoTls)).await??;
        tokio::spawn(connection);
        Ok(client)
    }
}

/// The subject of a comparison: a running server and its PostgreSQL.
pub struct Subject {
    /// The address of the server (`host:port`).
    pub address: String,
    /// Its publishable key.
    pub key: String,
    /// Its PostgreSQL.
    pub postgres: Postgres,
    /// The processes of both.
    pub watch: Watch,
}

impl Subject {
    /// Returns the server that was started in `folder`, on `port`.
    pub fn of(server: &Server, folder: &Path, port: u16) -> Result<Self> {
        let postgres = Server::postgres(folder)?;
        Ok(Self {
            address: format!("127.0.0.1:{port}"),
            key: server.value("PUBLISHABLE_KEY").to_owned(),
            watch: server.watch(&postgres)?,
            postgres,
        })
    }

    /// Sends requests over this number of connections.
    pub async fn load(&self, connections: usize, end: End, calls: &Arc<impl Calls + 'static>) -> Result<Done> {
        load(&self.address, connections, end, calls.clone()).await
    }
}

/// A running `portico dev`.
pub struct Server {
    child: Child,
    status: Value,
    /// The time from the start of the process to its first response.
    pub first_answer: Duration,
}

/// Returns the program to measure.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name("portico");
    if !beside.exists() {
        bail!("{} is missing: run make build", beside.display());
    }
    Ok(beside)
}

impl Server {
    /// Starts it in `folder`, on the ports of the folder's configuration.
    pub async fn start(folder: &Path, port: u16) -> Result<Self> {
        let started = Instant::now();
        // A file, so that it need not be read while the server runs
        let errors = folder.join("errors.txt");
        let mut child = Command::new(program()?)
            .args(["dev", "--workdir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&errors)?)
            .kill_on_drop(true)
            .spawn()?;
        let health = crate::client::request("GET", "/auth/v1/health", &[], "");
        let address = format!("127.0.0.1:{port}");
        let first_answer = loop {
            if let Ok(mut connection) = crate::client::Connection::open(&address).await
                && let Ok(answer) = connection.call(&health).await
                && answer.status == 200
            {
                break started.elapsed();
            }
            if let Some(status) = child.try_wait()? {
                bail!("portico dev ended: {status}\n{}", std::fs::read_to_string(&errors)?);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        // The panel is printed when everything is ready; before, there may be no control socket
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        while let Some(line) = lines.next_line().await? {
            if line.contains("Press Ctrl-C") {
                break;
            }
        }
        let output = Command::new(program()?).args(["status", "-o", "json", "--workdir"]).arg(folder).output().await?;
        Ok(Self { child, status: serde_json::from_slice(&output.stdout)?, first_answer })
    }

    /// Returns a value of `portico status`.
    pub fn value(&self, name: &str) -> &str {
        self.status[name].as_str().unwrap_or_default()
    }

    /// Returns the resident memory of the process, without PostgreSQL, in bytes.
    pub fn resident(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// Returns the peak of the resident memory since [`forget_peak`](Self::forget_peak), in bytes.
    pub fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// Resets the peak.
    pub fn forget_peak(&self) -> Result<()> {
        let pid = self.child.id().context("it runs")?;
        Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
    }

    fn memory(&self, name: &str) -> Result<u64> {
        let pid = self.child.id().context("it runs")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find(|line| line.starts_with(name)).context("its memory")?;
        let kib: u64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
        Ok(kib * 1024)
    }

    /// Returns its PostgreSQL, which runs in the project folder.
    pub fn postgres(folder: &Path) -> Result<Postgres> {
        let file = folder.join(".portico/postgres/pgdata/postmaster.pid");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let line = |at: usize| text.lines().nth(at).map(str::trim).context("a line of postmaster.pid");
        Ok(Postgres { pid: line(0)?.parse()?, port: line(3)?.parse()?, socket_folder: line(4)?.into() })
    }

    /// Returns the processes to observe.
    pub fn watch(&self, postgres: &Postgres) -> Result<Watch> {
        Ok(Watch { server: self.child.id().context("it runs")?, postgres: postgres.pid })
    }

    /// Stops it cleanly.
    pub async fn stop(mut self, folder: &Path) -> Result<()> {
        Command::new(program()?).args(["stop", "--workdir"]).arg(folder).output().await?;
        self.child.wait().await?;
        Ok(())
    }
}

/// Creates a project folder with its own ports; `[auth]` settings may follow.
pub fn folder(port: u16, auth: &str) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("supabase"))?;
    // Room for the limit's connections besides the server's own
    let config = format!(
        "[api]\nport = {port}\n[db]\nport = {}\n[db.settings]\nmax_connections = 200\n[inbucket]\nport = {}\n{auth}",
        port + 1,
        port + 3
    );
    std::fs::write(folder.path().join("supabase/config.toml"), config)?;
    Ok(folder)
}
