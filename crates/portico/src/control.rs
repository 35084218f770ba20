//! The control socket: a unix socket of a running server, for `portico status`, `stop`, `db reset`,
//! `seed buckets`, `storage gc` and `user`.
//!
//! One request per connection: a JSON object on one line. The response is a stream of JSON lines,
//! any number of [`Reply::Progress`] and then exactly one [`Reply::Done`] or [`Reply::Failed`].
//! Only the user who runs the server can connect: the socket is in a folder that other users cannot
//! enter.
//!
//! The data folder contains `server.json` with the process and the path of the socket, because the
//! path of a socket is limited to about a hundred bytes and a project's path is often longer.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use portico_auth::{AccountCommand, Auth};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// The longest request line, in bytes.
const MAX_REQUEST_BYTES: u64 = 256 * 1024;
/// The longest path of a unix socket on Linux and macOS, in bytes.
const MAX_SOCKET_PATH: usize = 100;

/// A request of a command to the running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ControlRequest {
    /// The request for the output of `portico status`.
    Status {
        /// `pretty`, `env`, `json`, `toml` or `yaml`.
        format: String,
        /// Other names for values, as `id=NAME`.
        names: Vec<String>,
    },
    /// An operation on accounts.
    Accounts {
        /// The operation.
        operation: AccountCommand,
    },
    /// The request to make or change the buckets of the project, and to upload their files.
    SeedBuckets,
    /// The request to compare the rows of stored objects with their content.
    CollectGarbage {
        /// The age in seconds from which content without a row counts.
        grace: u64,
        /// True to delete content without a row.
        delete_content: bool,
        /// True to delete rows without content.
        delete_rows: bool,
    },
    /// The request to stop the server cleanly.
    Stop,
    /// The request to drop the database and set it up again from the project folder.
    Reset {
        /// The last migration to apply.
        version: Option<String>,
        /// The number of migrations to leave out at the end.
        last: usize,
        /// True if seed files run.
        seed: bool,
    },
}

/// One line of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// A step of the work, for display.
    Progress {
        /// The line to print.
        line: String,
    },
    /// The request succeeded.
    Done {
        /// The result, or null.
        value: serde_json::Value,
    },
    /// The request failed.
    Failed {
        /// The error, and what to do about it.
        message: String,
    },
}

/// A request with the channel of its replies.
#[derive(Debug)]
pub struct ControlCall {
    /// The request.
    pub request: ControlRequest,
    /// The channel of the replies. The connection ends after the last one.
    pub replies: mpsc::Sender<Reply>,
}

impl Reply {
    /// Runs an operation on accounts and returns its outcome.
    pub async fn from_accounts(auth: &Auth, operation: AccountCommand) -> Self {
        match auth.administer(operation).await {
            Ok(value) => Self::Done { value },
            Err(error) => Self::Failed { message: format!("{:#}", anyhow::Error::new(error)) },
        }
    }
}

/// The content of `server.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ServerRecord {
    pid: u32,
    socket: PathBuf,
    /// The data folder of the server. A copy of the folder contains the same record, but has no
    /// server.
    #[serde(default)]
    data: PathBuf,
}

impl ServerRecord {
    /// Reads the record of a data folder, if it belongs to this folder.
    fn read(data: &Path) -> Option<Self> {
        let running: Self = serde_json::from_slice(&std::fs::read(record_path(data)).ok()?).ok()?;
        (running.data == own_path(data)).then_some(running)
    }
}

/// Returns the path of a folder without symbolic links.
fn own_path(data: &Path) -> PathBuf {
    data.canonicalize().unwrap_or_else(|_| data.to_owned())
}

/// Returns the process id of the server that runs with the data folder `data`, if there is one.
pub async fn running(data: &Path) -> Option<u32> {
    let running = ServerRecord::read(data)?;
    UnixStream::connect(&running.socket).await.ok().map(|_| running.pid)
}

/// The listening side. Removes its files when dropped.
#[derive(Debug)]
pub struct Control {
    record: PathBuf,
    socket: PathBuf,
    listening: tokio::task::JoinHandle<()>,
}

impl Control {
    /// Listens for requests to the server with the data folder `data`.
    ///
    /// # Errors
    /// When the socket or its record cannot be created.
    pub fn listen(data: &Path, calls: mpsc::Sender<ControlCall>) -> anyhow::Result<Self> {
        let socket = socket_path(data)?;
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("could not replace {}", socket.display()));
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("could not listen on {}", socket.display()))?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        let record = record_path(data);
        let running = ServerRecord { pid: std::process::id(), socket: socket.clone(), data: own_path(data) };
        // Written under another name and renamed, so that a reader never sees an incomplete file
        let draft = record.with_extension("json.new");
        let _ = std::fs::remove_file(&draft);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(&serde_json::to_vec(&running)?))
            .and_then(|()| std::fs::rename(&draft, &record))
            .with_context(|| format!("could not write {}", record.display()))?;
        let listening = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(respond(stream, calls.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(error = %error, "the control socket did not accept a connection");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Self { record, socket, listening })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.listening.abort();
        let _ = std::fs::remove_file(&self.record);
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn respond(stream: UnixStream, calls: mpsc::Sender<ControlCall>) {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    if BufReader::new(read.take(MAX_REQUEST_BYTES)).read_line(&mut line).await.is_err() {
        return;
    }
    let (replies, mut lines) = mpsc::channel(64);
    match serde_json::from_str(&line) {
        Ok(request) => {
            if calls.send(ControlCall { request, replies }).await.is_err() {
                return;
            }
        }
        Err(error) => {
            let message = format!("the server does not understand the request: {error}");
            let _ = replies.send(Reply::Failed { message }).await;
            drop(replies);
        }
    }
    while let Some(reply) = lines.recv().await {
        let Ok(mut bytes) = serde_json::to_vec(&reply) else { return };
        bytes.push(b'\n');
        if write.write_all(&bytes).await.is_err() || !matches!(reply, Reply::Progress { .. }) {
            return;
        }
    }
}

/// The reasons for which a request to the running server fails.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No server runs with this data folder.
    #[error("no Portico server is running for {}: start it with `portico dev`", .0.display())]
    NotRunning(PathBuf),
    /// The server reported a failure.
    #[error("{0}")]
    Failed(String),
    /// The connection ended before the response was complete.
    #[error("the server ended before it had answered")]
    Broken,
}

/// Sends `request` to the server with the data folder `data`, and calls `progress` with each line
/// of progress.
///
/// # Errors
/// When no server runs, the request fails, or the connection breaks.
pub async fn call(
    data: &Path,
    request: &ControlRequest,
    mut progress: impl FnMut(&str),
) -> Result<serde_json::Value, ControlError> {
    let not_running = || ControlError::NotRunning(data.parent().unwrap_or(data).to_owned());
    let running = ServerRecord::read(data).ok_or_else(not_running)?;
    let stream = UnixStream::connect(&running.socket).await.map_err(|_| not_running())?;
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_vec(request).map_err(|_| ControlError::Broken)?;
    line.push(b'\n');
    write.write_all(&line).await.map_err(|_| ControlError::Broken)?;
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line).map_err(|_| ControlError::Broken)? {
            Reply::Progress { line } => progress(&line),
            Reply::Done { value } => return Ok(value),
            Reply::Failed { message } => return Err(ControlError::Failed(message)),
        }
    }
    Err(ControlError::Broken)
}

fn record_path(data: &Path) -> PathBuf {
    data.join("server.json")
}

/// Returns the path of the socket: in the data folder if the path is short enough, else in a
/// private folder of the temporary folder.
fn socket_path(data: &Path) -> anyhow::Result<PathBuf> {
    let direct = data.join("control.sock");
    if direct.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok(direct);
    }
    let name = portico_base::hash::sha256_hex(data.as_os_str().as_encoded_bytes());
    let folder = std::env::temp_dir().join(format!("portico-{}", &name[..16]));
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("could not make {}", folder.display()));
        }
        _ => {}
    }
    // Another user who prepared this folder could replace its content
    let owner = rustix::fs::stat(&folder)?;
    anyhow::ensure!(
        owner.st_uid == rustix::process::getuid().as_raw() && owner.st_mode & 0o077 == 0,
        "{} is open to other users; remove it",
        folder.display()
    );
    Ok(folder.join("control.sock"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use portico_auth::AccountToAdd;

    use super::*;

    #[tokio::test]
    async fn a_request_gets_progress_and_then_its_answer() {
        let data = tempfile::tempdir().unwrap();
        let (calls, mut incoming) = mpsc::channel::<ControlCall>(1);
        let control = Control::listen(data.path(), calls).unwrap();
        for file in ["server.json", "control.sock"] {
            let mode = std::fs::metadata(data.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        tokio::spawn(async move {
            let call = incoming.recv().await.unwrap();
            assert_eq!(call.request, ControlRequest::Reset { version: None, last: 0, seed: true });
            call.replies.send(Reply::Progress { line: "Applying".into() }).await.unwrap();
            call.replies.send(Reply::Done { value: serde_json::json!({"ok": true}) }).await.unwrap();
        });
        let mut lines = Vec::new();
        let request = ControlRequest::Reset { version: None, last: 0, seed: true };
        let value = call(data.path(), &request, |line| lines.push(line.to_owned())).await.unwrap();
        assert_eq!((lines.as_slice(), value), (&["Applying".to_owned()][..], serde_json::json!({"ok": true})));
        drop(control);
        let gone = call(data.path(), &ControlRequest::Stop, |_| {}).await;
        assert!(matches!(gone, Err(ControlError::NotRunning(_))), "{gone:?}");
    }

    #[test]
    fn an_operation_on_accounts_arrives_with_its_password() {
        let account = AccountToAdd {
            email: Some("ada@example.com".to_owned()),
            password: Some("correct horse".into()),
            ..AccountToAdd::default()
        };
        for operation in [
            AccountCommand::Add(account),
            AccountCommand::SetPassword { account: "ada@example.com".to_owned(), password: "correct horse".into() },
            AccountCommand::List { filter: None, limit: 50, offset: 0 },
        ] {
            let request = ControlRequest::Accounts { operation };
            assert!(!format!("{request:?}").contains("correct horse"));
            let sent = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<ControlRequest>(&sent).unwrap(), request);
        }
    }

    #[tokio::test]
    async fn a_project_with_a_long_path_has_a_socket_too() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("a".repeat(120));
        std::fs::create_dir(&data).unwrap();
        let (calls, mut incoming) = mpsc::channel::<ControlCall>(1);
        let _control = Control::listen(&data, calls).unwrap();
        tokio::spawn(async move {
            let call = incoming.recv().await.unwrap();
            call.replies.send(Reply::Failed { message: "no".into() }).await.unwrap();
        });
        let answer = call(&data, &ControlRequest::Stop, |_| {}).await;
        assert!(matches!(answer, Err(ControlError::Failed(message)) if message == "no"));
    }
}
