//! The project folder of a test, and the program in it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use portico_database::scratch::ClusterFolder;
use rustix::process::{Pid, Signal, kill_process};

use crate::program::portico;

/// The output of a command, and its exit code.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// The folder in which `portico` keeps its data.
const DATA: &str = ".portico";

/// A project folder that lives as long as a test.
pub struct Folder(ClusterFolder);

impl Folder {
    /// Creates a folder whose server uses free ports.
    pub fn new() -> Self {
        Self(ClusterFolder::new())
            .with("supabase/config.toml", "[api]\nport = 0\n[db]\nport = 0\n[inbucket]\nport = 0\n")
    }

    pub fn with(self, path: &str, text: &str) -> Self {
        self.put(path, text);
        self
    }

    /// Adds a migration.
    pub fn migration(self, name: &str, text: &str) -> Self {
        self.with(&format!("supabase/migrations/{name}.sql"), text)
    }

    pub fn put(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Adds to the configuration.
    pub fn configure(&self, text: &str) {
        let path = self.path().join("supabase/config.toml");
        let present = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{present}{text}")).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a command in the folder to its end. A folder without data starts with
    /// [prepared](Self::prepare) data.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        if arguments == ["dev"] {
            self.prepare();
        }
        command(self.path(), arguments).stdin(Stdio::null()).output().unwrap().into()
    }

    /// Starts `portico dev` and waits until it is ready. A folder without data starts with
    /// [prepared](Self::prepare) data.
    pub fn start(&self) -> Server {
        self.prepare();
        Server::start(self.path().to_owned())
    }

    /// Starts `portico dev` in a folder without data, as on a developer's machine, and waits until
    /// it is ready.
    pub fn start_first(&self) -> Server {
        assert!(!self.path().join(DATA).exists());
        Server::start(self.path().to_owned())
    }

    /// Copies the data of a first start into a folder without data. The start is made once for
    /// this test program, and left in the state of one that was interrupted before migrations and
    /// seeds, which the next start continues.
    fn prepare(&self) {
        static PREPARED: OnceLock<Folder> = OnceLock::new();
        if self.path().join(DATA).exists() {
            return;
        }
        let prepared = PREPARED.get_or_init(|| {
            let folder = Self::new();
            let server = folder.start_first();
            server.query("comment on table supabase_migrations.seed_files is 'portico: preparing'");
            server.stop();
            folder
        });
        // With owners and modes, which PostgreSQL checks
        let copied = Command::new("cp").arg("-a").arg(prepared.path().join(DATA)).arg(self.path()).status().unwrap();
        assert!(copied.success());
    }
}

/// Returns a command without environment variables of its own, as a developer runs it.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = portico(folder, arguments);
    command.env_remove("PORT").env_remove("PORTICO_POSTGRES_BIN");
    command
}

/// A running development server. Dropping it ends it, and waits.
pub struct Server {
    child: Child,
    folder: PathBuf,
    stdout: String,
    stderr: Option<JoinHandle<String>>,
}

impl Server {
    fn start(folder: PathBuf) -> Self {
        let mut child = command(&folder, &["dev"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut stdout = String::new();
        while !stdout.contains("Press Ctrl-C to stop") {
            if lines.read_line(&mut stdout).unwrap() == 0 {
                let _ = child.wait();
                panic!("portico dev ended:\n{}", stderr.join().unwrap());
            }
        }
        Self { child, folder, stdout, stderr: Some(stderr) }
    }

    /// Returns the panel, which it has printed to standard output.
    pub fn panel(&self) -> &str {
        &self.stdout
    }

    /// Ends the server. Returns its standard error.
    pub fn stop(mut self) -> String {
        self.end();
        self.stderr.take().unwrap().join().unwrap()
    }

    fn end(&mut self) {
        if let Some(process) = Pid::from_raw(i32::try_from(self.child.id()).unwrap()) {
            let _ = kill_process(process, Signal::INT);
        }
        let _ = self.child.wait();
    }

    /// Returns a value of `portico status`.
    pub fn value(&self, name: &str) -> String {
        let status = Finished::from(command(&self.folder, &["status", "-o", "json"]).output().unwrap());
        let values: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
        values[name].as_str().unwrap().to_owned()
    }

    /// Returns the body of the response to a request with an API key.
    pub fn get(&self, path: &str, key: &str) -> String {
        let url = self.value("API_URL");
        let address = url.strip_prefix("http://").unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\napikey: {key}\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Returns the first column of a query's rows, as text, through the port that other programs
    /// use.
    pub fn query(&self, sql: &str) -> Vec<String> {
        let url = self.value("DB_URL");
        let rows = async {
            let endpoint = portico_database::Endpoint::parse(&url).unwrap();
            let client = portico_database::connect(&endpoint).await.unwrap();
            client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
        };
        let block_on = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(rows);
        // On a thread of its own, because an asynchronous test's thread has a runtime already
        let messages = std::thread::scope(|scope| scope.spawn(block_on).join().unwrap());
        let first = |message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        };
        messages.into_iter().filter_map(first).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.stderr.is_some() {
            self.end();
        }
    }
}
