//! Connection poolers before the database.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portico_database::scratch::OrdinaryServer;
use portico_database::wire::{Access, FunctionTraits, Pool, WirePoolSettings};
use portico_database::{Endpoint, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bootstrap::majors;
use super::external::{set_up, start, works};
use super::wire::{one, value as value_of};
use super::wire_session::{LEFTOVERS, next, run, transaction};

/// The treatment of sessions and their settings by a pooler, as PgBouncer can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Lends sessions for one transaction each, the one that became free last first, and refuses
    /// settings.
    Transaction,
    /// The same, and knows the login `tenant` alone.
    TransactionOfOneLogin,
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
    free: Arc<Mutex<HashMap<Vec<u8>, Vec<ServerSession>>>>,
    /// The server sessions that may be lent at once.
    permits: Arc<Semaphore>,
}

/// A server session that is not lent.
struct ServerSession(TcpStream);

/// Far more server sessions than any test needs.
const MANY: u32 = 64;

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
    async fn start(server: SocketAddr, mode: Mode) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let permits = Arc::new(Semaphore::new(MANY as usize));
        let pooler = Self { mode, server, free: Arc::default(), permits };
        let accepting = pooler.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(client));
            }
        });
        (pooler, address)
    }

    /// Lends one server session at a time from now on.
    async fn keep_one_session(&self) {
        self.permits.acquire_many(MANY - 1).await.unwrap().forget();
        self.free.lock().unwrap().clear();
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
        if let (Some(unknown), Mode::Transaction | Mode::TransactionOfOneLogin | Mode::Session) = (unknown, self.mode) {
            let text = format!("SFATAL\0C08P01\0Munsupported startup parameter: {unknown}\0\0");
            return send(&mut client, &(b'E', text.into_bytes())).await;
        }
        if self.mode == Mode::TransactionOfOneLogin && given["user"] != "tenant" {
            let text = format!("SFATAL\0C08P01\0Mno such user: {}\0\0", given["user"]);
            return send(&mut client, &(b'E', text.into_bytes())).await;
        }
        let key = format!("user\0{}\0database\0{}\0\0", given["user"], given["database"]).into_bytes();
        send(&mut client, &(b'R', vec![0; 4])).await?;
        send(&mut client, &(b'Z', b"I".to_vec())).await?;
        let mut lent: Option<(TcpStream, OwnedSemaphorePermit)> = None;
        loop {
            let asked = message(&mut client).await?;
            if asked.0 == b'X' {
                return Ok(());
            }
            let (mut server, permit) = match lent.take() {
                Some(lent) => lent,
                None => match self.lend(&key).await {
                    Ok(server) => server,
                    Err(error) => {
                        let text = format!("SFATAL\0VFATAL\0C08P01\0Mserver login failed: {error}\0\0");
                        return send(&mut client, &(b'E', text.into_bytes())).await;
                    }
                },
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
                    is_over = answer.1 == b"I" && self.lends_for_transactions();
                    break;
                }
            }
            match is_over {
                true => {
                    self.free.lock().unwrap().entry(key.clone()).or_default().push(ServerSession(server));
                    drop(permit);
                }
                false => lent = Some((server, permit)),
            }
        }
    }

    fn lends_for_transactions(&self) -> bool {
        matches!(self.mode, Mode::Transaction | Mode::TransactionOfOneLogin)
    }

    async fn lend(&self, key: &[u8]) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let permit = self.permits.clone().acquire_owned().await.unwrap();
        let free = self.free.lock().unwrap().get_mut(key).and_then(Vec::pop);
        if let Some(ServerSession(server)) = free {
            return Ok((server, permit));
        }
        let mut server = TcpStream::connect(self.server).await?;
        let body = [&196_608_u32.to_be_bytes()[..], key].concat();
        server.write_all(&[&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], &body].concat()).await?;
        loop {
            match message(&mut server).await? {
                (b'Z', _) => return Ok((server, permit)),
                (b'E', body) => return Err(std::io::Error::other(String::from_utf8_lossy(&body).replace('\0', " "))),
                _ => {}
            }
        }
    }
}

/// Starts a server that trusts its clients, with the login `tenant` and its database `pooled`.
async fn trusting_server(major: u32) -> (OrdinaryServer, SocketAddr) {
    let server = start(major).await;
    let admin = server.administrator().await;
    admin.batch_execute("create role tenant login createrole createdb").await.unwrap();
    admin.batch_execute("create database pooled owner tenant").await.unwrap();
    server.set_rules("host all all 127.0.0.1/32 trust\n").await.unwrap();
    let is_open = async || connect(&server.login("tenant", "", "pooled")).await.is_ok();
    super::cluster::within(Duration::from_secs(60), async || is_open().await.then_some(())).await;
    let address = SocketAddr::from(([127, 0, 0, 1], server.login("tenant", "", "pooled").port()));
    (server, address)
}

fn through(address: SocketAddr) -> Endpoint {
    Endpoint::parse(&format!("postgresql://tenant@{address}/pooled")).unwrap()
}

#[tokio::test]
async fn a_project_is_set_up_and_served_through_a_pooler() {
    let modes = [
        (18, Mode::Transaction),
        (15, Mode::TransactionOfOneLogin),
        (15, Mode::Session),
        (18, Mode::SessionWithoutSettings),
    ];
    for (major, mode) in modes.into_iter().filter(|(major, _)| majors().any(|installed| installed == *major)) {
        let what = format!("through a pooler with {mode:?} on {major}");
        let (_server, address) = trusting_server(major).await;
        let pooled = through(Pooler::start(address, mode).await.1);
        let database = set_up(&pooled, &what).await;
        assert!(database.is_pooled(), "{what}");
        works(&database, &what).await;
        let limited = database.limitations().iter().any(|missing| missing.what.contains("sessions without"));
        assert_eq!(limited, mode == Mode::TransactionOfOneLogin, "{what}");
        // Another start finds everything as it is
        let again = set_up(&pooled, &what).await;
        again.auth().await.unwrap().query("select id from users", &[]).await.unwrap();
    }
}

/// Objects by which transactions of the data API leave things behind.
const OBJECTS: &str = "
    create sequence public.numbers;
    create table public.ids (id int unique deferrable initially deferred);
    insert into public.ids values (1);
    grant all on public.numbers, public.ids to authenticator, anon";

#[tokio::test]
async fn nothing_that_a_transaction_leaves_in_a_shared_server_session_reaches_the_next_one() {
    for mode in [Mode::Transaction, Mode::TransactionOfOneLogin] {
        let (_server, address) = trusting_server(18).await;
        let (pooler, pooled) = Pooler::start(address, mode).await;
        let database = set_up(&through(pooled), "for attacks").await;
        database.migrations().await.unwrap().batch(OBJECTS).await.unwrap();
        drop(database.auth().await.unwrap());
        let settings = || WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() };
        let open = || Pool::open(database.endpoint(), "authenticator", settings()).unwrap();
        let (attacker, other) = (open(), open());
        pooler.keep_one_session().await;
        let (clean, _) = next(&other).await;
        assert!(clean.contains("authenticator"), "{clean}");
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let more = [
                (false, "set role anon"),
                (true, "insert into public.ids values (1); prepare left_over as select 1; select pg_advisory_lock(1)"),
                (true, "create temporary table left_over (id int) on commit drop"),
            ];
            for (writes, sql) in LEFTOVERS.into_iter().chain(more) {
                // The shared login differs in the session user alone
                if access == Access::ReadOnly && (writes || mode == Mode::TransactionOfOneLogin) {
                    continue;
                }
                let whole = transaction(access, sql);
                let open = whole.trim_end_matches("|commit");
                let ends = [
                    (whole.clone(), Some(access)),
                    (format!("{open}|rollback"), Some(access)),
                    (format!("{open}|select 1 / 0|commit"), Some(access)),
                    (open.to_owned(), None),
                    (whole.clone(), None),
                    (sql.to_owned(), None),
                ];
                for (texts, ends) in ends {
                    let mut lease = attacker.checkout().await.unwrap();
                    let _ = run(&mut lease, &texts, ends).await;
                    drop(lease);
                    assert_eq!(next(&other).await.0, clean, "{texts} {ends:?} {mode:?}");
                }
            }
        }
        // Another program of the same pooler cannot reach us either
        let plain = through(pooled);
        for sql in ["prepare q as select 1", "set role anon; set app.a = 'left'", "create temporary table t (id int)"] {
            let _ = connect(&plain).await.unwrap().batch_execute(sql).await;
            assert_eq!(next(&other).await.0, clean, "{sql} {mode:?}");
            database.auth().await.unwrap().query_one("select 1", &[]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_shared_server_session_ends_with_its_transaction_while_expressions_keep_values() {
    let (_server, address) = trusting_server(18).await;
    let (pooler, pooled) = Pooler::start(address, Mode::Transaction).await;
    let database = set_up(&through(pooled), "for kept values").await;
    let settings = WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() };
    let pool = Pool::open(database.endpoint(), "authenticator", settings).unwrap();
    pool.set_function_traits(FunctionTraits { keeps: true, ..FunctionTraits::NONE });
    pooler.keep_one_session().await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..4 {
        for ends in ["commit", "rollback"] {
            let mut lease = pool.checkout().await.unwrap();
            let process = value_of(&mut lease, "select pg_backend_pid()").await;
            assert!(seen.insert(process));
            let texts = format!("begin|select pg_backend_pid()|{ends}");
            let answers = run(&mut lease, &texts, Some(Access::ReadWrite)).await.unwrap();
            assert!(seen.insert(answers.row(1).unwrap().text(0).unwrap().to_owned()));
        }
    }
    assert!(one(&mut pool.checkout().await.unwrap(), "select 1 / 0").await.is_err());
}
