//! A minimal load generator: requests prepared as bytes, keep-alive connections, responses read by
//! their length.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The longest wait of a measurement.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A status and a body.
pub struct BenchResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl BenchResponse {
    /// Returns the text of a JSON field, found without parsing the JSON: the generator shares its
    /// processors with the server.
    pub fn text(&self, name: &str) -> Option<&str> {
        let body = std::str::from_utf8(&self.body).ok()?;
        let start = body.find(&format!("\"{name}\":\""))? + name.len() + 4;
        body[start..].split('"').next()
    }
}

impl Connection {
    /// Connects to `address` (`host:port`).
    pub async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(8192) })
    }

    /// Sends a whole request and reads the whole response.
    pub async fn call(&mut self, request: &[u8]) -> Result<BenchResponse> {
        self.stream.write_all(request).await?;
        let (status, head_end, length) = self.head().await?;
        while self.buffer.len() < head_end + length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed the connection");
            }
        }
        Ok(BenchResponse { status, body: self.buffer[head_end..head_end + length].to_vec() })
    }

    /// Sends a request with a body and reads the response, of which it keeps nothing but the size:
    /// large content costs the generator as little as possible.
    async fn transfer(&mut self, request: &[u8], body: &[u8], pieces: &mut [u8]) -> Result<usize> {
        self.stream.write_all(request).await?;
        self.stream.write_all(body).await?;
        let (status, head_end, length) = self.head().await?;
        let mut left = (head_end + length).saturating_sub(self.buffer.len());
        while left > 0 {
            let most = left.min(pieces.len());
            match self.stream.read(&mut pieces[..most]).await? {
                0 => bail!("the server closed the connection"),
                count => left -= count,
            }
        }
        if status >= 300 {
            bail!("{status}: {}", String::from_utf8_lossy(&self.buffer));
        }
        Ok(length)
    }

    /// Reads the head of a response into the buffer. Returns the status, the end of the head and
    /// the length of the body.
    async fn head(&mut self) -> Result<(u16, usize, usize)> {
        self.buffer.clear();
        let head_end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed the connection");
            }
        };
        let head = std::str::from_utf8(&self.buffer[..head_end])?;
        let status = head.get(9..12).context("a status line")?.parse()?;
        let length: usize = match head.lines().find_map(content_length) {
            Some(length) => length.parse()?,
            None if status == 204 => 0,
            None => bail!("an answer without a length: {head}"),
        };
        Ok((status, head_end, length))
    }

    /// Like [`Self::call`], but for a response that must be successful.
    pub async fn succeed(&mut self, request: &[u8]) -> Result<BenchResponse> {
        let answer = self.call(request).await?;
        if answer.status >= 300 {
            bail!("{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(answer)
    }
}

fn content_length(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(": ")?;
    name.eq_ignore_ascii_case("content-length").then_some(value)
}

/// Returns a request with a JSON body (or none), as bytes.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: bench\r\nuser-agent: bench\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str("content-type: application/json\r\n");
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text.into_bytes()
}

/// The requests of a load.
pub trait Calls: Send + Sync {
    /// Returns the bytes of the `call`th request of a connection.
    fn request(&self, connection: usize, call: u64) -> Cow<'_, [u8]>;

    /// Returns what follows each request, and that the content of responses is not needed. `None`
    /// for requests that are complete by themselves.
    fn transferred(&self) -> Option<&[u8]> {
        None
    }

    /// Stores what a connection needs for its next request.
    fn answered(&self, _connection: usize, _answer: &BenchResponse) -> Result<()> {
        Ok(())
    }
}

/// The end of a load.
#[derive(Clone, Copy)]
pub enum End {
    /// After a time.
    After(Duration),
    /// After this number of requests on each connection.
    Calls(u64),
}

/// The result of a load.
#[derive(Clone, Copy)]
pub struct Done {
    /// Requests or transactions.
    pub calls: u64,
    /// The same per second.
    pub per_second: f64,
}

/// Sends requests over `connections` connections, each with one request at a time.
///
/// All on one thread, as `pgbench` and other generators have few: on more threads they would take
/// processor time from the subject by waking each other.
pub async fn load(address: &str, connections: usize, end: End, calls: Arc<impl Calls + 'static>) -> Result<Done> {
    let address = address.to_owned();
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(load_here(&address, connections, end, calls))
    });
    thread.await?
}

async fn load_here(address: &str, connections: usize, end: End, calls: Arc<impl Calls + 'static>) -> Result<Done> {
    let over = Arc::new(AtomicBool::new(false));
    let most = if let End::Calls(most) = end { most } else { u64::MAX };
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, mut connection) in open.into_iter().enumerate() {
        let (calls, over) = (calls.clone(), over.clone());
        tasks.spawn(async move {
            let mut done = 0;
            let mut pieces = vec![0; if calls.transferred().is_some() { 256 * 1024 } else { 0 }];
            while done < most && !over.load(Ordering::Relaxed) {
                match calls.transferred() {
                    Some(body) => {
                        connection.transfer(&calls.request(number, done), body, &mut pieces).await?;
                    }
                    None => {
                        let answer = connection.succeed(&calls.request(number, done)).await?;
                        calls.answered(number, &answer)?;
                    }
                }
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    if let End::After(time) = end {
        tokio::time::sleep(time).await;
        over.store(true, Ordering::Relaxed);
    }
    let mut calls = 0;
    let all = async {
        while let Some(done) = tasks.join_next().await {
            calls += done??;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, all).await.context("the load did not end in time")??;
    Ok(Done { calls, per_second: calls as f64 / started.elapsed().as_secs_f64() })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}
