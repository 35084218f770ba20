//! A connection pooler, for tests.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The treatment of sessions and their settings by a pooler, as PgBouncer can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolerMode {
    /// Lends sessions for one transaction each, the one that became free last first, and refuses
    /// settings.
    Transaction,
    /// The same, and knows one login alone.
    TransactionOfOneLogin(&'static str),
    /// Lends sessions for good, and refuses settings with which they are to begin.
    Session,
    /// Lends sessions for good, and drops such settings.
    SessionWithoutSettings,
}

/// A connection pooler in front of a server. It accepts any password, so the server has to trust
/// it. It runs on the runtime that started it.
#[derive(Debug, Clone)]
pub struct TestPooler {
    address: SocketAddr,
    sessions: Arc<ServerSessions>,
}

#[derive(Debug)]
struct ServerSessions {
    mode: PoolerMode,
    server: SocketAddr,
    /// The sessions that are not checked out, by login and database.
    free: Mutex<HashMap<Vec<u8>, Vec<Connection>>>,
    /// The server sessions that may be checked out at once.
    permits: Arc<Semaphore>,
}

/// Far more server sessions than any test needs.
const MANY: u32 = 64;

type ProtocolMessage = (u8, Vec<u8>);

/// Batches and their responses are passed on in one write each.
type Connection = BufStream<TcpStream>;

impl TestPooler {
    /// Starts a pooler on a free loopback port.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(server: SocketAddr, mode: PoolerMode) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let permits = Arc::new(Semaphore::new(MANY as usize));
        let sessions = Arc::new(ServerSessions { mode, server, free: Mutex::default(), permits });
        let pooler = Self { address: listener.local_addr()?, sessions: Arc::clone(&sessions) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&sessions).serve(client));
            }
        });
        Ok(pooler)
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the server sessions that are not checked out.
    pub fn close_idle_sessions(&self) {
        self.sessions.free().clear();
    }

    /// Limits the server sessions in use to `count` at once from now on, once fewer are checked
    /// out, and closes those that are not checked out.
    pub async fn keep_sessions(&self, count: u32) {
        if let Ok(permits) = self.sessions.permits.acquire_many(MANY.saturating_sub(count)).await {
            permits.forget();
        }
        self.close_idle_sessions();
    }
}

impl ServerSessions {
    fn free(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<Connection>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a client until either side closes its connection.
    async fn serve(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        let mut client = buffered(client)?;
        let served = self.pass_messages(&mut client).await;
        // A connection that is closed with unread bytes is reset, and the client would not receive
        // the last error
        client.shutdown().await?;
        tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
        served
    }

    /// Passes messages until either side closes its connection. A session that is checked out then
    /// is closed.
    async fn pass_messages(&self, client: &mut Connection) -> io::Result<()> {
        let startup = read_startup(client).await?;
        let given = parameters(&startup);
        let text = |name: &str| given.get(name).cloned().unwrap_or_default();
        if let Some(reason) = self.rejection(&given) {
            return refuse(client, &reason).await;
        }
        let key = format!("user\0{}\0database\0{}\0\0", text("user"), text("database")).into_bytes();
        send(client, &(b'R', vec![0; 4])).await?;
        send(client, &(b'Z', b"I".to_vec())).await?;
        client.flush().await?;
        let mut checked_out: Option<(Connection, OwnedSemaphorePermit)> = None;
        loop {
            let request = message(client).await?;
            if request.0 == b'X' {
                return Ok(());
            }
            let (mut server, permit) = match checked_out.take() {
                Some(checked_out) => checked_out,
                None => match self.check_out(&key).await {
                    Ok(server) => server,
                    Err(error) => return refuse(client, &format!("server login failed: {error}")).await,
                },
            };
            let mut sent = send(&mut server, &request).await;
            let mut is_over = false;
            if matches!(request.0, b'Q' | b'S') {
                sent = sent.and(server.flush().await);
                let status = pass_responses(&mut server, client).await;
                client.flush().await?;
                is_over = status? == b"I" && self.pools_transactions();
            }
            // A session that does not take the request has ended, and its responses say why
            if sent.is_err() {
                let _ended = pass_responses(&mut server, client).await;
                return sent;
            }
            if is_over {
                self.free().entry(key.clone()).or_default().push(server);
                drop(permit);
            } else {
                checked_out = Some((server, permit));
            }
        }
    }

    /// Returns the reason for which the mode refuses a client with these parameters.
    fn rejection(&self, given: &HashMap<String, String>) -> Option<String> {
        let known = ["user", "database", "application_name", "client_encoding"];
        let unknown = given.keys().find(|name| !known.contains(&name.as_str()));
        if let Some(unknown) = unknown.filter(|_| self.mode != PoolerMode::SessionWithoutSettings) {
            return Some(format!("unsupported startup parameter: {unknown}"));
        }
        match self.mode {
            PoolerMode::TransactionOfOneLogin(login) if given.get("user").is_none_or(|user| user != login) => {
                Some("no such user".to_owned())
            }
            _ => None,
        }
    }

    fn pools_transactions(&self) -> bool {
        matches!(self.mode, PoolerMode::Transaction | PoolerMode::TransactionOfOneLogin(_))
    }

    async fn check_out(&self, key: &[u8]) -> io::Result<(Connection, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        let free = self.free().get_mut(key).and_then(Vec::pop);
        if let Some(server) = free {
            return Ok((server, permit));
        }
        let mut server = buffered(TcpStream::connect(self.server).await?)?;
        let body = [&196_608_u32.to_be_bytes()[..], key].concat();
        let length = u32::try_from(body.len() + 4).map_err(io::Error::other)?;
        server.write_all(&[&length.to_be_bytes()[..], &body].concat()).await?;
        server.flush().await?;
        loop {
            match message(&mut server).await? {
                (b'Z', _) => return Ok((server, permit)),
                (b'E', body) => return Err(io::Error::other(String::from_utf8_lossy(&body).replace('\0', " "))),
                _ => {}
            }
        }
    }
}

fn buffered(stream: TcpStream) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    Ok(BufStream::new(stream))
}

/// Passes on the responses to a batch, and returns the status of the session after them.
async fn pass_responses(server: &mut Connection, client: &mut Connection) -> io::Result<Vec<u8>> {
    loop {
        let response = message(server).await?;
        send(client, &response).await?;
        if response.0 == b'Z' {
            return Ok(response.1);
        }
    }
}

async fn read_body(stream: &mut Connection) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await? as usize;
    let mut body = vec![0; length.saturating_sub(4)];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// Reads the startup message, and declines TLS before it.
async fn read_startup(client: &mut Connection) -> io::Result<Vec<u8>> {
    const TLS_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
    loop {
        let body = read_body(client).await?;
        match body.starts_with(&TLS_REQUEST) {
            true => {
                client.write_all(b"N").await?;
                client.flush().await?;
            }
            false => return Ok(body),
        }
    }
}

async fn message(stream: &mut Connection) -> io::Result<ProtocolMessage> {
    let tag = stream.read_u8().await?;
    Ok((tag, read_body(stream).await?))
}

async fn send(stream: &mut Connection, (tag, body): &ProtocolMessage) -> io::Result<()> {
    let length = u32::try_from(body.len() + 4).map_err(io::Error::other)?.to_be_bytes();
    stream.write_all(&[&[*tag], &length[..], body].concat()).await
}

async fn refuse(client: &mut Connection, reason: &str) -> io::Result<()> {
    let text = format!("SFATAL\0VFATAL\0C08P01\0M{reason}\0\0");
    send(client, &(b'E', text.into_bytes())).await
}

/// Returns the parameters of a startup message, which follow the protocol's version.
fn parameters(startup: &[u8]) -> HashMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut texts = startup.get(4..).unwrap_or_default().split(|byte| *byte == 0);
    let mut parameters = HashMap::new();
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        if !name.is_empty() {
            parameters.insert(text(name), text(value));
        }
    }
    parameters
}
