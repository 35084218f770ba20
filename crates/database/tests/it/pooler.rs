//! Connection poolers before the database.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use portico_database::{BootstrapSettings, Database, Endpoint, PoolSettings, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::bootstrap::value;
use super::external::start;

/// What a pooler does with sessions and their settings, as PgBouncer can be configured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Lends sessions for one transaction each, the one that became free last first, and refuses settings.
    Transaction,
    /// Lends sessions for good, and refuses settings with which they are to begin.
    Session,
    /// Lends sessions for good, and drops such settings.
    SessionWithoutSettings,
}

/// It accepts any password; the server has to trust it.
#[derive(Clone)]
struct Pooler {
    mode: Mode,
    server: SocketAddr,
    free: Arc<Mutex<HashMap<Vec<u8>, Vec<TcpStream>>>>,
}

type Message = (u8, Vec<u8>);

async fn message(stream: &mut TcpStream) -> std::io::Result<Message> {
    let tag = stream.read_u8().await?;
    let length = stream.read_u32().await? as usize - 4;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((tag, body))
}

async fn send(stream: &mut TcpStream, (tag, body): &Message) -> std::io::Result<()> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    stream.write_all(&[&[*tag], &length[..], body].concat()).await
}

fn parameters(startup: &[u8]) -> HashMap<String, String> {
    let texts: Vec<&[u8]> = startup[4..].split(|byte| *byte == 0).collect();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    texts
        .chunks(2)
        .filter(|pair| pair.len() == 2 && !pair[0].is_empty())
        .map(|pair| (text(pair[0]), text(pair[1])))
        .collect()
}

impl Pooler {
    async fn start(server: SocketAddr, mode: Mode) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pooler = Self { mode, server, free: Arc::default() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pooler.clone().serve(client));
            }
        });
        address
    }

    async fn serve(self, mut client: TcpStream) -> std::io::Result<()> {
        let startup = loop {
            let length = client.read_u32().await? as usize - 4;
            let mut body = vec![0; length];
            client.read_exact(&mut body).await?;
            match u32::from_be_bytes(body[..4].try_into().unwrap()) {
                80_877_103 => client.write_all(b"N").await?,
                _ => break body,
            }
        };
        let given = parameters(&startup);
        let unknown =
            given.keys().find(|name| !["user", "database", "application_name", "client_encoding"].contains(&&***name));
        if let (Some(unknown), Mode::Transaction | Mode::Session) = (unknown, self.mode) {
            let text = format!("SFATAL\0C08P01\0Munsupported startup parameter: {unknown}\0\0");
            return send(&mut client, &(b'E', text.into_bytes())).await;
        }
        let key = format!("user\0{}\0database\0{}\0\0", given["user"], given["database"]).into_bytes();
        send(&mut client, &(b'R', vec![0; 4])).await?;
        send(&mut client, &(b'Z', b"I".to_vec())).await?;
        let mut lent: Option<TcpStream> = None;
        loop {
            let asked = message(&mut client).await?;
            if asked.0 == b'X' {
                return Ok(());
            }
            let mut server = match lent.take() {
                Some(server) => server,
                None => self.lend(&key).await?,
            };
            send(&mut server, &asked).await?;
            let mut is_over = false;
            let ends = matches!(asked.0, b'Q' | b'S');
            loop {
                if !ends {
                    break;
                }
                let answer = message(&mut server).await?;
                send(&mut client, &answer).await?;
                if answer.0 == b'Z' {
                    is_over = answer.1 == b"I" && self.mode == Mode::Transaction;
                    break;
                }
            }
            match is_over {
                true => self.free.lock().unwrap().entry(key.clone()).or_default().push(server),
                false => lent = Some(server),
            }
        }
    }

    async fn lend(&self, key: &[u8]) -> std::io::Result<TcpStream> {
        let free = self.free.lock().unwrap().get_mut(key).and_then(Vec::pop);
        if let Some(server) = free {
            return Ok(server);
        }
        let mut server = TcpStream::connect(self.server).await?;
        let body = [&196_608_u32.to_be_bytes()[..], key].concat();
        server.write_all(&[&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], &body].concat()).await?;
        while message(&mut server).await?.0 != b'Z' {}
        Ok(server)
    }
}

#[tokio::test]
async fn poolers_that_lose_what_belongs_to_a_session_are_refused_before_they_spoil_one() {
    let server = start(18).await;
    let admin = server.administrator().await;
    admin.batch_execute("create role tenant login createrole createdb").await.unwrap();
    admin.batch_execute("create database pooled owner tenant").await.unwrap();
    server.set_rules("host all all 127.0.0.1/32 trust\n").await.unwrap();
    let is_open = async || connect(&server.login("tenant", "", "pooled")).await.is_ok();
    super::cluster::within(std::time::Duration::from_secs(60), async || is_open().await.then_some(())).await;
    let direct = server.login("tenant", "", "pooled");
    let address = Pooler::start(SocketAddr::from(([127, 0, 0, 1], direct.port())), Mode::Transaction).await;
    let pooled = Endpoint::parse(&format!("postgresql://tenant@{address}/pooled")).unwrap();
    // It is one: plain statements work, and two connections get the same process
    let (one, other) = (connect(&pooled).await.unwrap(), connect(&pooled).await.unwrap());
    let process = "select pg_backend_pid()";
    assert_eq!(value(&one, process).await, value(&other, process).await);

    let database = Database::open(&pooled.with_login_secret(b"secret"), PoolSettings::default()).unwrap();
    let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err().to_string();
    assert!(error.contains("transaction mode") && error.contains("session mode"), "{error}");
    let error = database.migrations().await.err().unwrap().to_string();
    assert!(error.contains("transaction mode"), "{error}");
    // Other clients of the pooler find their sessions as they were
    assert_eq!(
        value(&one, "select current_setting('search_path') || current_setting('role')").await,
        "\"$user\", publicnone"
    );
    assert_eq!(value(&connect(&direct).await.unwrap(), "select to_regnamespace('portico') is null").await, "t");

    for (mode, told) in [(Mode::Session, "refuses the settings"), (Mode::SessionWithoutSettings, "drops the settings")]
    {
        let address = Pooler::start(SocketAddr::from(([127, 0, 0, 1], direct.port())), mode).await;
        let pooled = Endpoint::parse(&format!("postgresql://tenant@{address}/pooled")).unwrap();
        let database = Database::open(&pooled, PoolSettings::default()).unwrap();
        let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }

    // The server itself is what it asks for
    let database = Database::open(&direct, PoolSettings::default()).unwrap();
    database.bootstrap(&BootstrapSettings::default()).await.unwrap();
}
