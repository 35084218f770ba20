//! The clients of the bench: WebSockets that cost the generator little.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// The length of the payload of a broadcast: a JSON string with a time, of a fixed length.
const PAYLOAD: usize = 64;
/// The patience with deliveries that do not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts deliveries.
#[derive(Default)]
pub struct Tally {
    count: AtomicU64,
    changed: Notify,
    /// Milliseconds, of a part of the deliveries.
    latencies: Mutex<Vec<f64>>,
}

impl Tally {
    /// Returns the number of deliveries.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until there are `count` deliveries. Returns false if none comes any more.
    pub async fn wait(&self, count: u64) -> bool {
        loop {
            let changed = self.changed.notified();
            let before = self.count();
            if before >= count {
                return true;
            }
            if tokio::time::timeout(PATIENCE, changed).await.is_err() && self.count() == before {
                return false;
            }
        }
    }

    /// Takes the latencies, in milliseconds.
    pub fn take_latencies(&self) -> Vec<f64> {
        std::mem::take(&mut self.latencies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, count: u64, latency: Option<f64>) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.changed.notify_waiters();
        if let Some(latency) = latency {
            self.latencies.lock().unwrap_or_else(PoisonError::into_inner).push(latency);
        }
    }
}

/// Returns the time in microseconds since 1970, which SQL writes into rows, too.
#[expect(clippy::disallowed_methods, reason = "the bench compares times of two processes")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A WebSocket.
pub struct Socket {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Socket {
    /// Connects and upgrades.
    pub async fn open(address: &str, url: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET {url} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = BytesMut::with_capacity(2048);
        let end = loop {
            if let Some(end) = memchr::memmem::find(&buffer, b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(stream.read_buf(&mut buffer).await? > 0, "the connection was closed");
        };
        ensure!(buffer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&buffer));
        buffer.advance(end);
        Ok(Self { stream, buffer })
    }

    /// Sends a frame. The mask is zero, which leaves the payload as it is.
    pub async fn send(&mut self, opcode: u8, payload: &[u8]) -> Result<()> {
        self.stream.write_all(&frame(opcode, payload)).await?;
        Ok(())
    }

    /// Returns the payload of the next frame.
    pub async fn receive(&mut self) -> Result<BytesMut> {
        loop {
            if let Some(length) = whole_frame(&self.buffer) {
                let (head, payload) = length;
                self.buffer.advance(head);
                return Ok(self.buffer.split_to(payload));
            }
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the connection was closed");
        }
    }
}

fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match u16::try_from(payload.len()) {
        Ok(length) if length < 126 => frame.push(0x80 | length as u8),
        Ok(length) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        Err(_) => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// Returns the lengths of the head and the payload of a frame that has arrived completely.
fn whole_frame(buffer: &[u8]) -> Option<(usize, usize)> {
    let (head, payload) = match buffer.get(1)? & 0x7f {
        126 => (4, usize::from(u16::from_be_bytes(buffer.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(buffer.get(2..10)?.try_into().ok()?)).ok()?),
        length => (2, usize::from(length)),
    };
    (buffer.len() >= head + payload).then_some((head, payload))
}

/// Joins a channel, and waits for the reply. On a server without channels there is none.
pub async fn join(socket: &mut Socket, topic: &str, payload: &str) -> Result<()> {
    socket.send(1, format!(r#"["1","1","{topic}","phx_join",{payload}]"#).as_bytes()).await?;
    loop {
        let reply = socket.receive().await?;
        if memchr::memmem::find(&reply, b"phx_reply").is_some() {
            let reply = String::from_utf8_lossy(&reply);
            ensure!(reply.contains(r#""status":"ok""#), "{reply}");
            return Ok(());
        }
    }
}

/// A socket that receives.
pub struct Receiver {
    socket: Socket,
    topic: String,
}

impl Receiver {
    /// Opens a socket and joins a channel.
    pub async fn open(address: &str, url: &str, topic: &str, payload: &str) -> Result<Self> {
        let mut socket = Socket::open(address, url).await?;
        join(&mut socket, topic, payload).await?;
        Ok(Self { socket, topic: topic.to_owned() })
    }

    /// Waits for a message with this text.
    pub async fn wait_for(&mut self, text: &str) -> Result<()> {
        let found = async {
            while memchr::memmem::find(&self.socket.receive().await?, text.as_bytes()).is_none() {}
            Ok(())
        };
        tokio::time::timeout(PATIENCE, found).await.with_context(|| format!("{text}: {}", self.topic))?
    }

    /// Counts frames, and measures the latency of the last one of each read.
    pub async fn count_broadcasts(mut self, tally: Arc<Tally>) -> Result<()> {
        loop {
            let (mut count, mut latency) = (0, None);
            while let Some((head, payload)) = whole_frame(&self.socket.buffer) {
                self.socket.buffer.advance(head);
                let frame = self.socket.buffer.split_to(payload);
                count += 1;
                let time = frame.len().checked_sub(PAYLOAD - 1).and_then(|start| frame.get(start..start + 16));
                let time = time.and_then(|time| std::str::from_utf8(time).ok()?.parse::<u64>().ok());
                latency = time.map(|time| micros().saturating_sub(time) as f64 / 1000.0).or(latency);
            }
            if count > 0 {
                tally.add(count, latency);
            }
            self.read().await?;
        }
    }

    /// Counts database changes, and measures their latencies by the time in `title`.
    pub async fn count_texts(mut self, tally: Arc<Tally>) -> Result<()> {
        loop {
            while let Some((head, payload)) = whole_frame(&self.socket.buffer) {
                self.socket.buffer.advance(head);
                let frame = self.socket.buffer.split_to(payload);
                let Some(start) = memchr::memmem::find(&frame, b"\"title\":") else { continue };
                let digits = frame[start + 8..].iter().skip_while(|byte| !byte.is_ascii_digit());
                let digits = digits.take_while(|byte| byte.is_ascii_digit());
                let time =
                    digits.fold(0_u64, |time, digit| time.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
                tally.add(1, Some(micros().saturating_sub(time) as f64 / 1000.0));
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<()> {
        self.socket.buffer.reserve(16 * 1024);
        if self.socket.stream.read_buf(&mut self.socket.buffer).await? == 0 {
            bail!("the server closed a socket of {}", self.topic);
        }
        Ok(())
    }
}

/// A socket that sends broadcasts.
pub struct Sender {
    socket: Socket,
    topic: String,
}

impl Sender {
    /// Opens a socket and joins a channel.
    pub async fn open(address: &str, url: &str, topic: &str) -> Result<Self> {
        let mut socket = Socket::open(address, url).await?;
        join(&mut socket, topic, "{}").await?;
        Ok(Self { socket, topic: topic.to_owned() })
    }

    /// Sends broadcasts in one write.
    pub async fn send(&mut self, count: u64) -> Result<()> {
        let mut frames = Vec::new();
        for _ in 0..count {
            let time = format!("{:016}", micros());
            let payload = format!("\"{time}{}\"", "x".repeat(PAYLOAD - 2 - time.len()));
            let mut message = vec![3, 1, 1, self.topic.len() as u8, 1, 0, 1];
            message.extend_from_slice(b"12");
            message.extend_from_slice(self.topic.as_bytes());
            message.push(b'e');
            message.extend_from_slice(payload.as_bytes());
            frames.extend_from_slice(&frame(2, &message));
        }
        self.socket.stream.write_all(&frames).await?;
        Ok(())
    }
}

/// Returns a token of a person.
pub fn token(secret: &str, subject: &str) -> String {
    let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
    let claims = format!(r#"{{"role":"authenticated","sub":"{subject}","exp":4102444800}}"#);
    let signed = format!("{}.{}", part(r#"{"alg":"HS256","typ":"JWT"}"#), part(&claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}
