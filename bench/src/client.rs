//! A load generator as thin as can be: requests prepared as bytes, keep-alive connections, answers read by their length.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A status and a body.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Connection {
    /// Connects to `address` (`host:port`).
    pub async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(8192) })
    }

    /// Sends a whole request and reads the whole answer.
    pub async fn call(&mut self, request: &[u8]) -> Result<Answer> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head_end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed the connection");
            }
        };
        let head = std::str::from_utf8(&self.buffer[..head_end])?.to_ascii_lowercase();
        let status = head.get(9..12).context("a status line")?.parse()?;
        let length: usize = match head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()) {
            Some(length) => length.parse()?,
            None if status == 204 => 0,
            None => bail!("an answer without a length: {head}"),
        };
        while self.buffer.len() < head_end + length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed the connection");
            }
        }
        Ok(Answer { status, body: self.buffer[head_end..head_end + length].to_vec() })
    }
}

/// A request with a JSON body (or none), as bytes.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: bench\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str("content-type: application/json\r\n");
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text.into_bytes()
}

/// Calls per second over `connections` connections for `time`. `next` makes the request from the number of the connection and
/// the answer before.
pub async fn throughput<F>(address: &str, connections: usize, time: Duration, next: F) -> Result<f64>
where
    F: Fn(usize, Option<&Answer>) -> Option<Vec<u8>> + Send + Sync + 'static,
{
    let next = Arc::new(next);
    let over = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..connections {
        let (next, over, address) = (next.clone(), over.clone(), address.to_owned());
        tasks.spawn(async move {
            let mut connection = Connection::open(&address).await?;
            let mut last: Option<Answer> = None;
            let mut calls = 0_u64;
            while !over.load(Ordering::Relaxed) {
                let Some(request) = next(number, last.as_ref()) else { break };
                let answer = connection.call(&request).await?;
                if answer.status >= 300 {
                    bail!("{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
                }
                last = Some(answer);
                calls += 1;
            }
            Ok(calls)
        });
    }
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let mut calls = 0;
    while let Some(done) = tasks.join_next().await {
        calls += done??;
    }
    Ok(calls as f64 / started.elapsed().as_secs_f64())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
