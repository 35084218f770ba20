//! Reads of callers that wait, taken along by one who has a connection.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use portico_database::wire::{
    Access, Batch, FunctionTraits, Pool, PooledConnection, RowSeparators, Statement, Taken, WireError, WirePoolSettings,
};
use portico_database::{Endpoint, Host, connect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::cluster::within;
use crate::wire::{Scratch, one};

/// No function of the database decides about sessions.
const PLAIN: FunctionTraits = FunctionTraits::NONE;
const PATIENCE: Duration = Duration::from_secs(60);

/// Who reads, and what the session shows of him; divided by a number, so that it can fail.
const WHO: &str =
    "select current_user || ' ' || current_setting('app.who') || ' ' || current_setting('statement_timeout')
    || ' ' || (60 / $1::int)";

fn settings(max_connections: usize) -> WirePoolSettings {
    // However busy the machine is
    WirePoolSettings {
        max_connections,
        checkout_timeout: PATIENCE,
        quick_read_limit: PATIENCE,
        ..WirePoolSettings::default()
    }
}

/// A read in settings of its own.
struct Read<'a> {
    text: &'a str,
    params: &'a [Option<&'a [u8]>],
    settings: &'a [(&'a str, &'a str)],
}

fn batch<'a>(text: &'a str, params: &'a [Option<&'a [u8]>], settings: &'a [(&'a str, &'a str)]) -> Read<'a> {
    Read { text, params, settings }
}

async fn read(pool: &Pool, wanted: &Read<'_>) -> Result<String, WireError> {
    let role = wanted.settings.iter().find(|(name, _)| *name == "role").map_or("", |(_, role)| role);
    let each = (0..wanted.settings.len()).map(|at| format!("set_config(${}, ${}, true)", 2 * at + 1, 2 * at + 2));
    let set = format!("select {}", each.collect::<Vec<_>>().join(", "));
    let values: Vec<_> =
        wanted.settings.iter().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect();
    let batch = Batch::new()
        .statement(Statement::named("begin read only", &[]))
        .statement(Statement::named(&set, &values))
        .statement(Statement::named(wanted.text, wanted.params).scope(role).binary().joined(RowSeparators::default()))
        .statement(Statement::named("commit", &[]))
        .ending(Access::ReadOnly);
    let mut answers = match pool.take_for_read(&batch).await? {
        Taken::ResultSets(answers) => answers,
        Taken::PooledConnection(lease) => lease.read(&batch).await?,
    };
    assert_eq!(answers.len(), 4);
    let joined = answers.take_joined_rows().unwrap();
    assert_eq!(joined.rows, 1);
    Ok(String::from_utf8(joined.pieces.concat()).unwrap())
}

/// Has the pool's only connection learn that a read is quick.
async fn learn(pool: &Pool, batch: &Read<'_>) {
    for _ in 0..2 {
        let _ = read(pool, batch).await.unwrap();
    }
}

const fn wanted<'a>(role: &'a str, who: &'a str, timeout: &'a str) -> [(&'a str, &'a str); 3] {
    [("statement_timeout", timeout), ("role", role), ("app.who", who)]
}

/// A role to log in that is not a superuser.
async fn login(scratch: &Scratch) -> (Client, String) {
    let admin = connect(&scratch.endpoint).await.unwrap();
    let login = format!("{}_login", scratch.endpoint.database());
    admin.batch_execute(&format!("create role {login} login in role pg_monitor, pg_read_all_data; grant usage on schema portico_session to {login}; grant select on all tables in schema portico_session to {login}")).await.unwrap();
    (admin, login)
}

#[tokio::test]
async fn reads_that_travel_together_have_settings_of_their_own() {
    let scratch = Scratch::new().await;
    let (admin, login) = login(&scratch).await;
    let pool = Pool::open(&scratch.endpoint, &login, settings(1)).unwrap();
    pool.set_function_traits(PLAIN);
    const MINE: [(&str, &str); 3] = wanted("pg_monitor", "me", "30s");
    const OTHER: [(&str, &str); 3] = wanted("pg_monitor", "other", "30s");
    const ROLE: [(&str, &str); 3] = wanted("pg_read_all_data", "me", "30s");
    const TIME: [(&str, &str); 3] = wanted("pg_monitor", "me", "20s");
    let who = |settings: &'static [(&str, &str); 3]| {
        let pool = pool.clone();
        async move { read(&pool, &batch(WHO, &[Some(b"1")], settings)).await.unwrap() }
    };
    for settings in [&ROLE, &MINE, &MINE] {
        who(settings).await;
    }
    let first = pool.checkout().await.unwrap();
    let callers = [&MINE, &OTHER, &ROLE, &TIME, &MINE].map(|settings| tokio::spawn(who(settings)));
    within(PATIENCE, async || (pool.status().waiting == callers.len()).then_some(())).await;
    drop(first);
    let expected = [
        "pg_monitor me 30s 60",
        "pg_monitor other 30s 60",
        "pg_read_all_data me 30s 60",
        "pg_monitor me 20s 60",
        "pg_monitor me 30s 60",
    ];
    for (caller, expected) in callers.into_iter().zip(expected) {
        assert_eq!(caller.await.unwrap(), expected);
    }
    assert_eq!(pool.coalesced_reads(), 4);
    drop(pool);
    admin.batch_execute(&format!("drop owned by {login}; drop role {login}")).await.unwrap();
    drop(admin);
    scratch.drop().await;
}

/// However many travel together, and whatever fails or goes away among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_sees_its_own_settings_among_failures_and_aborts() {
    let scratch = Scratch::new().await;
    let (admin, login) = login(&scratch).await;
    let pool = Pool::open(&scratch.endpoint, &login, settings(2)).unwrap();
    pool.set_function_traits(PLAIN);
    let failed = Arc::new(AtomicU64::new(0));
    let callers = (0..24_usize).map(|caller| {
        let (pool, failed, login) = (pool.clone(), failed.clone(), login.clone());
        tokio::spawn(async move {
            // Mostly one role, so that many fit together
            let role = if caller % 8 == 7 { "pg_monitor" } else { "pg_read_all_data" };
            let timeout = if caller % 12 == 5 { "40s" } else { "30s" };
            for round in 0..60_usize {
                let who = format!("{caller}-{}", round / 3);
                let settings = wanted(role, &who, timeout);
                let divisor = ["1", "2", "0", "3"][(caller + round) % 4];
                let params = [Some(divisor.as_bytes())];
                let batch = batch(WHO, &params, &settings);
                if (caller + round) % 11 == 0 {
                    // Goes away, wherever it has come to
                    let hasty = read(&pool, &batch);
                    drop(tokio::time::timeout(Duration::from_micros(100 * (round as u64 % 20)), hasty).await);
                    continue;
                }
                match read(&pool, &batch).await {
                    Ok(seen) => {
                        assert_eq!(seen, format!("{role} {who} {timeout} {}", 60 / divisor.parse::<i32>().unwrap()));
                    }
                    Err(error) => {
                        assert_eq!((divisor, error.sqlstate()), ("0", Some("22012")), "{error}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if round % 10 == caller % 10 {
                    // Others use the connections too, and in other ways
                    let mut lease = pool.checkout().await.unwrap();
                    let answers = lease
                        .run(
                            &Batch::new()
                                .statement(Statement::named("select set_config('app.who', 'nobody', false)", &[]))
                                .statement(Statement::named("select current_user || current_setting('app.who')", &[])),
                        )
                        .await
                        .unwrap();
                    assert_eq!(answers.row(1).unwrap().text(0), Some(&*format!("{login}nobody")));
                }
            }
        })
    });
    for caller in join_all(callers.collect::<Vec<_>>()).await {
        caller.unwrap();
    }
    assert!(pool.coalesced_reads() > 0 && failed.load(Ordering::Relaxed) > 0, "{} {failed:?}", pool.coalesced_reads());
    within(PATIENCE, async || (pool.status().open == pool.status().idle).then_some(())).await;
    assert_eq!(pool.status().waiting, 0);
    drop(pool);
    admin.batch_execute(&format!("drop owned by {login}; drop role {login}")).await.unwrap();
    drop(admin);
    scratch.drop().await;
}

/// Three connections that are held: the first knows two reads as quick.
struct Held {
    pool: Pool,
    first: PooledConnection,
    others: Vec<PooledConnection>,
}

const FREE: &str = "select 'free ' || count(*) from free";
const LOCKED: &str = "select 'locked ' || count(*) from locked";

impl Held {
    async fn new(scratch: &Scratch) -> Self {
        let pool = scratch.plain_pool(settings(3));
        let mut first = pool.checkout().await.unwrap();
        for text in ["create table free ()", "create table locked ()"] {
            one(&mut first, text).await.unwrap();
        }
        drop(first);
        for text in [FREE, LOCKED] {
            learn(&pool, &batch(text, &[], &[])).await;
        }
        let first = pool.checkout().await.unwrap();
        let others = vec![pool.checkout().await.unwrap(), pool.checkout().await.unwrap()];
        Self { pool, first, others }
    }

    /// A caller that gets into the queue.
    async fn queue(&self, text: &'static str) -> JoinHandle<Result<String, WireError>> {
        let before = self.pool.status().waiting;
        let pool = self.pool.clone();
        let caller = tokio::spawn(async move { read(&pool, &batch(text, &[], &[])).await });
        within(PATIENCE, async || (self.pool.status().waiting > before).then_some(())).await;
        caller
    }
}

#[tokio::test]
async fn who_has_a_connection_takes_along_those_who_wait() {
    let scratch = Scratch::new().await;
    let held = Held::new(&scratch).await;
    let mut callers = Vec::new();
    for text in [FREE, LOCKED, FREE, FREE, LOCKED] {
        callers.push((text, held.queue(text).await));
    }
    // A statement that the connection does not know waits for its turn
    let unknown = held.queue("select 'unknown'").await;
    let Held { pool, first, others } = held;
    drop(first);
    for (text, caller) in callers {
        assert_eq!(caller.await.unwrap().unwrap(), if text == FREE { "free 0" } else { "locked 0" });
    }
    assert_eq!(pool.coalesced_reads(), 4);
    assert_eq!(unknown.await.unwrap().unwrap(), "unknown");
    assert_eq!(pool.coalesced_reads(), 4);
    drop((others, pool));
    scratch.drop().await;
}

#[tokio::test]
async fn who_changes_the_session_changes_it_for_nobody_else() {
    const TAMPER: &str = "select set_config('lock_timeout', '7s', false)";
    const ZONE: &str = "select current_setting('lock_timeout')";
    let scratch = Scratch::new().await;
    let pool = scratch.plain_pool(settings(1));
    for text in [TAMPER, ZONE] {
        learn(&pool, &batch(text, &[], &[])).await;
    }
    let held = Held { first: pool.checkout().await.unwrap(), others: Vec::new(), pool };
    let driver = held.queue(ZONE).await;
    let tamperer = held.queue(TAMPER).await;
    let rider = held.queue(ZONE).await;
    let Held { pool, first, .. } = held;
    drop(first);
    assert_eq!(tamperer.await.unwrap().unwrap(), "7s");
    assert_eq!(driver.await.unwrap().unwrap(), "0");
    assert_eq!(rider.await.unwrap().unwrap(), "0");
    assert_eq!(pool.coalesced_reads(), 2);
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn a_connection_that_does_not_know_the_driver_s_read_learns_it_before_others_come_along() {
    let scratch = Scratch::new().await;
    let pool = scratch.plain_pool(settings(2));
    const READ: &str = "select 'read'";
    learn(&pool, &batch(READ, &[], &[])).await;
    let knows = pool.checkout().await.unwrap();
    let held = Held { first: pool.checkout().await.unwrap(), others: vec![knows], pool };
    let (driver, other) = (held.queue(READ).await, held.queue(READ).await);
    let Held { pool, first, others } = held;
    drop(first);
    for caller in [driver, other] {
        assert_eq!(caller.await.unwrap().unwrap(), "read");
    }
    assert_eq!(pool.coalesced_reads(), 0);
    let held = Held { first: pool.checkout().await.unwrap(), others, pool };
    let (driver, other) = (held.queue(READ).await, held.queue(READ).await);
    let Held { pool, first, others } = held;
    drop(first);
    for caller in [driver, other] {
        assert_eq!(caller.await.unwrap().unwrap(), "read");
    }
    assert_eq!(pool.coalesced_reads(), 1);
    drop((others, pool));
    scratch.drop().await;
}

/// Something between us and the server, which says once, when it is told to, that the server is ready though it is not.
async fn confused(scratch: &Scratch, folder: &Path) -> (Endpoint, Arc<AtomicBool>) {
    let Host::Socket(real) = scratch.endpoint.host() else { panic!("the tests' cluster has a socket") };
    let file = format!(".s.PGSQL.{}", scratch.endpoint.port());
    let (real, listener) = (real.join(&file), UnixListener::bind(folder.join(&file)).unwrap());
    let confuse = Arc::new(AtomicBool::new(false));
    let told = confuse.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (told, server) = (told.clone(), UnixStream::connect(&real).await.unwrap());
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut chunk = [0; 4096];
                loop {
                    let length = from_server.read(&mut chunk).await.unwrap_or(0);
                    if told.swap(false, Ordering::SeqCst) {
                        to_client.write_all(b"Z\0\0\0\x05I").await.unwrap();
                    }
                    if length == 0 || to_client.write_all(&chunk[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    let endpoint = Endpoint::socket(folder, scratch.endpoint.port(), "supabase_admin", scratch.endpoint.database());
    (endpoint, confuse)
}

#[tokio::test]
async fn nobody_gets_another_s_answer_though_the_server_seems_confused() {
    let scratch = Scratch::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, confuse) = confused(&scratch, folder.path()).await;
    let pool = Pool::open(&endpoint, "supabase_admin", settings(1)).unwrap();
    pool.set_function_traits(PLAIN);
    const READS: [&str; 4] = ["select 'a'", "select 'b'", "select 'c'", "select 'd'"];
    for text in READS {
        learn(&pool, &batch(text, &[], &[])).await;
    }
    let held = Held { first: pool.checkout().await.unwrap(), others: Vec::new(), pool };
    let mut callers = Vec::new();
    for text in READS {
        callers.push((text, held.queue(text).await));
    }
    let Held { pool, first, .. } = held;
    confuse.store(true, Ordering::SeqCst);
    drop(first);
    for (text, caller) in callers {
        assert_eq!(format!("select '{}'", caller.await.unwrap().unwrap()), text);
    }
    assert_eq!(pool.coalesced_reads(), 3);
    assert!(!confuse.load(Ordering::SeqCst), "it was confused");
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn nobody_is_kept_by_company_that_turns_out_to_be_slow() {
    let scratch = Scratch::new().await;
    let held = Held::new(&scratch).await;
    let mut admin = connect(&scratch.endpoint).await.unwrap();
    let lock = admin.transaction().await.unwrap();
    lock.batch_execute("lock table locked").await.unwrap();
    let driver = held.queue(FREE).await;
    let slow = held.queue(LOCKED).await;
    let quick = held.queue(FREE).await;
    let Held { pool, first, others } = held;
    drop(first);
    // All three travel together, and one stands still. The others are let go, and go on elsewhere
    within(PATIENCE, async || (pool.coalesced_reads() == 2).then_some(())).await;
    drop(others);
    assert_eq!(quick.await.unwrap().unwrap(), "free 0");
    assert_eq!(driver.await.unwrap().unwrap(), "free 0");
    assert_eq!(pool.coalesced_reads(), 2);
    assert!(!slow.is_finished());
    lock.rollback().await.unwrap();
    assert_eq!(slow.await.unwrap().unwrap(), "locked 0");
    within(PATIENCE, async || (pool.status().open == pool.status().idle).then_some(())).await;
    let status = pool.status();
    assert!(status.open == status.idle, "{status:?}");
    drop((admin, pool));
    scratch.drop().await;
}

#[tokio::test]
async fn who_was_coalesced_reads_gets_an_answer_though_the_driver_goes_away() {
    let scratch = Scratch::new().await;
    let held = Held::new(&scratch).await;
    let mut admin = connect(&scratch.endpoint).await.unwrap();
    let lock = admin.transaction().await.unwrap();
    lock.batch_execute("lock table locked").await.unwrap();
    let driver = held.queue(FREE).await;
    let slow = held.queue(LOCKED).await;
    let quick = held.queue(FREE).await;
    let Held { pool, first, others } = held;
    drop(first);
    within(PATIENCE, async || (pool.coalesced_reads() == 2).then_some(())).await;
    driver.abort();
    assert!(driver.await.unwrap_err().is_cancelled());
    drop(others);
    assert_eq!(quick.await.unwrap().unwrap(), "free 0");
    lock.rollback().await.unwrap();
    assert_eq!(slow.await.unwrap().unwrap(), "locked 0");
    within(PATIENCE, async || (pool.status().open == pool.status().idle).then_some(())).await;
    drop((admin, pool));
    scratch.drop().await;
}

#[tokio::test]
async fn slow_reads_and_large_ones_travel_alone() {
    let scratch = Scratch::new().await;
    let pool = scratch.plain_pool(WirePoolSettings { quick_read_limit: Duration::from_millis(5), ..settings(1) });
    let (slow, large) = ("select 'slow' || pg_sleep(0.01)", "select length($1)::text");
    let value = vec![b'x'; 20 * 1024];
    let params = [Some(&value[..])];
    learn(&pool, &batch(slow, &[], &[])).await;
    learn(&pool, &batch(large, &params, &[])).await;
    let lease = pool.checkout().await.unwrap();
    let callers = (0..6_usize).map(|caller| {
        let (pool, value) = (pool.clone(), value.clone());
        tokio::spawn(async move {
            let params = [Some(&value[..])];
            match caller % 2 {
                0 => read(&pool, &batch(slow, &[], &[])).await,
                _ => read(&pool, &batch(large, &params, &[])).await,
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    within(PATIENCE, async || (pool.status().waiting == 6).then_some(())).await;
    drop(lease);
    for (at, caller) in callers.into_iter().enumerate() {
        assert_eq!(caller.await.unwrap().unwrap(), if at % 2 == 0 { "slow" } else { "20480" });
    }
    assert_eq!(pool.coalesced_reads(), 0);
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn quick_reads_that_are_held_up_hold_up_nobody() {
    let scratch = Scratch::new().await;
    let pool = scratch.plain_pool(WirePoolSettings { max_quick_reads: 1, ..settings(3) });
    let mut lease = pool.checkout().await.unwrap();
    for text in ["create table free ()", "create table locked ()"] {
        one(&mut lease, text).await.unwrap();
    }
    drop(lease);
    for text in [FREE, LOCKED] {
        learn(&pool, &batch(text, &[], &[])).await;
    }
    let mut admin = connect(&scratch.endpoint).await.unwrap();
    let lock = admin.transaction().await.unwrap();
    lock.batch_execute("lock table locked").await.unwrap();
    let reading = |text: &'static str| {
        let pool = pool.clone();
        tokio::spawn(async move { read(&pool, &batch(text, &[], &[])).await })
    };
    let blocked = reading(LOCKED);
    within(PATIENCE, async || (pool.status().open > pool.status().idle).then_some(())).await;
    // It has the one connection for quick reads. Others wait for it, but not for long; whoever is not quick does not wait at all
    let others = [reading(FREE), reading(FREE), reading(FREE)];
    assert_eq!(read(&pool, &batch("select 'new'", &[], &[])).await.unwrap(), "new");
    for other in others {
        assert_eq!(other.await.unwrap().unwrap(), "free 0");
    }
    assert!(!blocked.is_finished());
    lock.rollback().await.unwrap();
    assert_eq!(blocked.await.unwrap().unwrap(), "locked 0");
    assert!(pool.status().open == pool.status().idle);
    // Everybody gave back what he had
    let leases = join_all((0..3).map(|_| pool.checkout())).await;
    assert!(leases.iter().all(Result::is_ok));
    assert!(read(&pool, &batch(FREE, &[], &[])).now_or_never().is_none());
    drop(leases);
    assert_eq!(read(&pool, &batch(FREE, &[], &[])).await.unwrap(), "free 0");
    drop((admin, pool));
    scratch.drop().await;
}
