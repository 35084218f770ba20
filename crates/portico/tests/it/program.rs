//! Runs the program under test in its own folder.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The longest wait for the program. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// The last line of the panel.
const READY: &str = "Press Ctrl-C to stop";

/// The output of a program so far, and whether it has ended.
#[derive(Default)]
struct Output {
    text: Mutex<(String, usize)>,
    grown: Condvar,
}

/// A running program. Dropping it ends the program.
pub struct Program {
    child: Child,
    output: Arc<Output>,
}

/// Returns a command without settings of the machine that the tests run on.
pub fn command(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = text.starts_with("PORTICO_") && text != "PORTICO_POSTGRES_BIN";
        if is_ours || text.starts_with("SUPABASE_") || ["DATABASE_URL", "DIRECT_URL", "PORT"].contains(&&*text) {
            command.env_remove(&name);
        }
    }
    // The programs are in the workspace, and the folder of a test is outside of it
    let binaries = portico_database::cluster::Binaries::find(None).unwrap();
    command.env("PORTICO_POSTGRES_BIN", binaries.folder()).env("NO_COLOR", "1").env("PORT", "0");
    command.current_dir(folder);
    command
}

/// Returns a command of the program under test.
pub fn portico(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_portico"), folder);
    command.args(arguments);
    command
}

/// Runs a command to its end. Returns whether it succeeded, and everything that it printed.
pub fn finished(mut command: Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

impl Program {
    /// Starts a command.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = Arc::new(Output::default());
        read(child.stdout.take().unwrap(), &output);
        read(child.stderr.take().unwrap(), &output);
        Self { child, output }
    }

    /// Starts a command, and waits until it is ready.
    pub fn ready(command: Command) -> Self {
        let program = Self::start(command);
        let text = program.output.text.lock().unwrap();
        let unfinished = |(text, ended): &mut (String, usize)| !text.contains(READY) && *ended < 2;
        let (text, _) = program.output.grown.wait_timeout_while(text, PATIENCE, unfinished).unwrap();
        assert!(text.0.contains(READY), "{}", text.0);
        drop(text);
        program
    }

    /// Returns the output so far.
    pub fn printed(&self) -> String {
        self.output.text.lock().unwrap().0.clone()
    }

    /// Returns the value of a row of the panel.
    pub fn row(&self, label: &str) -> String {
        let printed = self.printed();
        let row = printed.lines().find_map(|line| line.trim().strip_prefix(label));
        row.unwrap_or_else(|| panic!("no {label} in {printed}")).trim().to_owned()
    }

    /// Stops the program, and waits until it has ended.
    pub fn stop(mut self) -> ExitStatus {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }

    /// Sends a request with the publishable key, and with an access token if there is one.
    pub async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> (u16, Value) {
        portico::install_cryptography();
        let client = reqwest::Client::builder().timeout(PATIENCE);
        // The certificates of the system take long to read, and no call needs them
        let client = client.tls_built_in_root_certs(false).build().unwrap();
        let mut request = client.request(method, format!("{}{path}", self.row("Listens on")));
        request = request.header("apikey", self.row("Publishable")).header("prefer", "return=representation");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap_or(Value::Null))
    }

    /// Signs up or in. Returns the access token.
    pub async fn token(&self, path: &str, email: &str) -> String {
        let body = json!({ "email": email, "password": "correct horse battery" });
        let (status, response) = self.call(reqwest::Method::POST, path, None, Some(body)).await;
        assert_eq!(status, 200, "{path}: {response}\n{}", self.printed());
        response["access_token"].as_str().unwrap().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut from: impl Read + Send + 'static, output: &Arc<Output>) {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            let count = from.read(&mut bytes).unwrap_or(0);
            let mut text = output.text.lock().unwrap();
            text.0.push_str(&String::from_utf8_lossy(&bytes[..count]));
            text.1 += usize::from(count == 0);
            output.grown.notify_all();
            if count == 0 {
                return;
            }
        }
    });
}
