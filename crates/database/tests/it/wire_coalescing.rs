//! Read coalescing: reads of waiting callers in the write of a caller that has a connection.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use portico_database::wire::{
    Access, Batch, CoalescingSettings, FunctionTraits, Pool, PooledConnection, ReadCoalescer, Row, RowSeparators,
    Statement, WireError,
};
use portico_database::{Endpoint, Host, connect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::cluster::within;
use crate::wire::{PATIENCE, Scratch, one, pool_settings};

/// Selects the caller, as the session shows it; divided by a number, so that it can fail.
const CALLER: &str =
    "select current_user || ' ' || current_setting('app.who') || ' ' || current_setting('statement_timeout')
    || ' ' || (60 / $1::int)";

/// Coalesces all reads, however busy the machine is.
fn coalescing() -> CoalescingSettings {
    CoalescingSettings { quick_read_limit: PATIENCE, ..CoalescingSettings::default() }
}

/// Returns a coalescer on a pool, in a database that is known to have no function that affects
/// sessions.
fn coalescer(pool: Pool) -> ReadCoalescer {
    pool.set_function_traits(FunctionTraits::NONE);
    ReadCoalescer::new(pool, &coalescing())
}

/// A read in settings of its own.
struct TestRead<'a> {
    text: &'a str,
    params: &'a [Option<&'a [u8]>],
    settings: &'a [(&'a str, &'a str)],
}

fn test_read<'a>(text: &'a str, params: &'a [Option<&'a [u8]>], settings: &'a [(&'a str, &'a str)]) -> TestRead<'a> {
    TestRead { text, params, settings }
}

async fn run(reads: &ReadCoalescer, read: &TestRead<'_>) -> Result<String, WireError> {
    let role = read.settings.iter().find(|(name, _)| *name == "role").map_or("", |(_, role)| role);
    let each = (0..read.settings.len()).map(|at| format!("set_config(${}, ${}, true)", 2 * at + 1, 2 * at + 2));
    let set = format!("select {}", each.collect::<Vec<_>>().join(", "));
    let values: Vec<_> =
        read.settings.iter().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect();
    let batch = Batch::new()
        .statement(Statement::named("begin read only", &[]))
        .statement(Statement::named(&set, &values))
        .statement(Statement::named(read.text, read.params).scope(role).binary().joined(RowSeparators::default()))
        .statement(Statement::named("commit", &[]))
        .ending(Access::ReadOnly);
    let mut results = reads.run(&batch).await?;
    assert_eq!(results.len(), 4);
    let joined = results.take_joined_rows().unwrap();
    assert_eq!(joined.rows, 1);
    Ok(String::from_utf8(joined.pieces.concat()).unwrap())
}

/// Lets the only connection of the pool prepare a read and learn that it is quick.
async fn learn(reads: &ReadCoalescer, read: &TestRead<'_>) {
    for _ in 0..2 {
        let _ = run(reads, read).await.unwrap();
    }
}

const fn caller_settings<'a>(role: &'a str, who: &'a str, timeout: &'a str) -> [(&'a str, &'a str); 3] {
    [("statement_timeout", timeout), ("role", role), ("app.who", who)]
}

/// Creates a role to log in that is not a superuser.
async fn login(scratch: &Scratch) -> (Client, String) {
    let admin = connect(&scratch.endpoint).await.unwrap();
    let login = format!("{}_login", scratch.endpoint.database());
    admin.batch_execute(&format!("create role {login} login in role pg_monitor, pg_read_all_data; grant usage on schema portico_session to {login}; grant select on all tables in schema portico_session to {login}")).await.unwrap();
    (admin, login)
}

#[tokio::test]
async fn coalesced_reads_have_settings_of_their_own() {
    let scratch = Scratch::new().await;
    let (admin, login) = login(&scratch).await;
    let reads = coalescer(Pool::open(&scratch.endpoint, &login, pool_settings(1)).unwrap());
    const MINE: [(&str, &str); 3] = caller_settings("pg_monitor", "me", "30s");
    const OTHER: [(&str, &str); 3] = caller_settings("pg_monitor", "other", "30s");
    const ROLE: [(&str, &str); 3] = caller_settings("pg_read_all_data", "me", "30s");
    const TIME: [(&str, &str); 3] = caller_settings("pg_monitor", "me", "20s");
    let who = |settings: &'static [(&str, &str); 3]| {
        let reads = reads.clone();
        async move { run(&reads, &test_read(CALLER, &[Some(b"1")], settings)).await.unwrap() }
    };
    for settings in [&ROLE, &MINE, &MINE] {
        who(settings).await;
    }
    let first = reads.pool().checkout().await.unwrap();
    let callers = [&MINE, &OTHER, &ROLE, &TIME, &MINE].map(|settings| tokio::spawn(who(settings)));
    within(PATIENCE, async || (reads.pool().status().waiting == callers.len()).then_some(())).await;
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
    assert_eq!(reads.coalesced_reads(), 4);
    drop(reads);
    admin.batch_execute(&format!("drop owned by {login}; drop role {login}")).await.unwrap();
    drop(admin);
    scratch.drop().await;
}

#[tokio::test]
async fn reads_of_several_columns_are_coalesced_too() {
    let scratch = Scratch::new().await;
    let reads = coalescer(Pool::open(&scratch.endpoint, "postgres", pool_settings(1)).unwrap());
    let numbers = |first: &'static str| {
        let reads = reads.clone();
        async move {
            let text = "select n, n + 1 from generate_series($1::int, $1::int + 1) as n";
            let values = [Some(first.as_bytes())];
            let batch = Batch::new()
                .statement(Statement::named("begin read only", &[]))
                .statement(Statement::named(text, &values).binary().main())
                .statement(Statement::named("commit", &[]))
                .ending(Access::ReadOnly);
            let results = reads.run(&batch).await.unwrap();
            let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().unwrap());
            let row = |row: &Row| (number(row.bytes(0).unwrap()), number(row.bytes(1).unwrap()));
            results.rows(1).iter().map(row).collect::<Vec<_>>()
        }
    };
    for _ in 0..2 {
        numbers("1").await;
    }
    let first = reads.pool().checkout().await.unwrap();
    let callers = ["10", "20", "30"].map(|first| tokio::spawn(numbers(first)));
    within(PATIENCE, async || (reads.pool().status().waiting == callers.len()).then_some(())).await;
    drop(first);
    for (caller, first) in callers.into_iter().zip([10, 20, 30]) {
        assert_eq!(caller.await.unwrap(), [(first, first + 1), (first + 1, first + 2)]);
    }
    assert_eq!(reads.coalesced_reads(), 2);
    drop(reads);
    scratch.drop().await;
}

/// The number of coalesced reads makes no difference, nor that some of them fail or are cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coalesced_reads_see_their_own_settings_among_failures_and_cancellations() {
    let scratch = Scratch::new().await;
    let (admin, login) = login(&scratch).await;
    let reads = coalescer(Pool::open(&scratch.endpoint, &login, pool_settings(2)).unwrap());
    let failed = Arc::new(AtomicU64::new(0));
    let callers = (0..24_usize).map(|caller| {
        let (reads, failed, login) = (reads.clone(), failed.clone(), login.clone());
        tokio::spawn(async move {
            // Mostly one role, so that many are coalesced
            let role = if caller % 8 == 7 { "pg_monitor" } else { "pg_read_all_data" };
            let timeout = if caller % 12 == 5 { "40s" } else { "30s" };
            for round in 0..60_usize {
                let who = format!("{caller}-{}", round / 3);
                let settings = caller_settings(role, &who, timeout);
                let divisor = ["1", "2", "0", "3"][(caller + round) % 4];
                let params = [Some(divisor.as_bytes())];
                let read = test_read(CALLER, &params, &settings);
                if (caller + round) % 11 == 0 {
                    // Cancelled at some point
                    let cancelled = run(&reads, &read);
                    drop(tokio::time::timeout(Duration::from_micros(100 * (round as u64 % 20)), cancelled).await);
                    continue;
                }
                match run(&reads, &read).await {
                    Ok(seen) => {
                        assert_eq!(seen, format!("{role} {who} {timeout} {}", 60 / divisor.parse::<i32>().unwrap()));
                    }
                    Err(error) => {
                        assert_eq!((divisor, error.sqlstate()), ("0", Some("22012")), "{error}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if round % 10 == caller % 10 {
                    // Other statements use the connections too
                    let mut connection = reads.pool().checkout().await.unwrap();
                    let results = connection
                        .run(
                            &Batch::new()
                                .statement(Statement::named("select set_config('app.who', 'another', false)", &[]))
                                .statement(Statement::named("select current_user || current_setting('app.who')", &[])),
                        )
                        .await
                        .unwrap();
                    assert_eq!(results.row(1).unwrap().text(0), Some(&*format!("{login}another")));
                }
            }
        })
    });
    for caller in join_all(callers.collect::<Vec<_>>()).await {
        caller.unwrap();
    }
    assert!(
        reads.coalesced_reads() > 0 && failed.load(Ordering::Relaxed) > 0,
        "{} {failed:?}",
        reads.coalesced_reads()
    );
    within(PATIENCE, async || (reads.pool().status().open == reads.pool().status().idle).then_some(())).await;
    assert_eq!(reads.pool().status().waiting, 0);
    drop(reads);
    admin.batch_execute(&format!("drop owned by {login}; drop role {login}")).await.unwrap();
    drop(admin);
    scratch.drop().await;
}

/// Three connections that are checked out. The first has prepared two reads, which are known to be
/// quick.
struct HeldConnections {
    reads: ReadCoalescer,
    first: PooledConnection,
    others: Vec<PooledConnection>,
}

const FREE: &str = "select 'free ' || count(*) from free";
const LOCKED: &str = "select 'locked ' || count(*) from locked";

impl HeldConnections {
    async fn new(scratch: &Scratch) -> Self {
        let reads = coalescer(scratch.pool(pool_settings(3)));
        let mut first = reads.pool().checkout().await.unwrap();
        for text in ["create table free ()", "create table locked ()"] {
            one(&mut first, text).await.unwrap();
        }
        drop(first);
        for text in [FREE, LOCKED] {
            learn(&reads, &test_read(text, &[], &[])).await;
        }
        let first = reads.pool().checkout().await.unwrap();
        let others = vec![reads.pool().checkout().await.unwrap(), reads.pool().checkout().await.unwrap()];
        Self { reads, first, others }
    }

    /// Starts a caller and waits until it is queued.
    async fn queue(&self, text: &'static str) -> JoinHandle<Result<String, WireError>> {
        let before = self.reads.pool().status().waiting;
        let reads = self.reads.clone();
        let caller = tokio::spawn(async move { run(&reads, &test_read(text, &[], &[])).await });
        within(PATIENCE, async || (self.reads.pool().status().waiting > before).then_some(())).await;
        caller
    }
}

#[tokio::test]
async fn waiting_reads_are_coalesced() {
    let scratch = Scratch::new().await;
    let held = HeldConnections::new(&scratch).await;
    let mut callers = Vec::new();
    for text in [FREE, LOCKED, FREE, FREE, LOCKED] {
        callers.push((text, held.queue(text).await));
    }
    // A statement that the connection has not prepared waits for a connection
    let unknown = held.queue("select 'unknown'").await;
    let HeldConnections { reads, first, others } = held;
    drop(first);
    for (text, caller) in callers {
        assert_eq!(caller.await.unwrap().unwrap(), if text == FREE { "free 0" } else { "locked 0" });
    }
    assert_eq!(reads.coalesced_reads(), 4);
    assert_eq!(unknown.await.unwrap().unwrap(), "unknown");
    assert_eq!(reads.coalesced_reads(), 4);
    drop((others, reads));
    scratch.drop().await;
}

#[tokio::test]
async fn a_read_that_changes_the_session_does_not_affect_other_reads() {
    const TAMPER: &str = "select set_config('lock_timeout', '7s', false)";
    const ZONE: &str = "select current_setting('lock_timeout')";
    let scratch = Scratch::new().await;
    let reads = coalescer(scratch.pool(pool_settings(1)));
    for text in [TAMPER, ZONE] {
        learn(&reads, &test_read(text, &[], &[])).await;
    }
    let held = HeldConnections { first: reads.pool().checkout().await.unwrap(), others: Vec::new(), reads };
    let sender = held.queue(ZONE).await;
    let tamperer = held.queue(TAMPER).await;
    let follower = held.queue(ZONE).await;
    let HeldConnections { reads, first, .. } = held;
    drop(first);
    assert_eq!(tamperer.await.unwrap().unwrap(), "7s");
    assert_eq!(sender.await.unwrap().unwrap(), "0");
    assert_eq!(follower.await.unwrap().unwrap(), "0");
    assert_eq!(reads.coalesced_reads(), 2);
    drop(reads);
    scratch.drop().await;
}

#[tokio::test]
async fn a_connection_prepares_the_read_of_its_caller_before_it_coalesces_others() {
    let scratch = Scratch::new().await;
    let reads = coalescer(scratch.pool(pool_settings(2)));
    const READ: &str = "select 'read'";
    learn(&reads, &test_read(READ, &[], &[])).await;
    let knows = reads.pool().checkout().await.unwrap();
    let held = HeldConnections { first: reads.pool().checkout().await.unwrap(), others: vec![knows], reads };
    let (first_read, second_read) = (held.queue(READ).await, held.queue(READ).await);
    let HeldConnections { reads, first, others } = held;
    drop(first);
    for caller in [first_read, second_read] {
        assert_eq!(caller.await.unwrap().unwrap(), "read");
    }
    assert_eq!(reads.coalesced_reads(), 0);
    let held = HeldConnections { first: reads.pool().checkout().await.unwrap(), others, reads };
    let (first_read, second_read) = (held.queue(READ).await, held.queue(READ).await);
    let HeldConnections { reads, first, others } = held;
    drop(first);
    for caller in [first_read, second_read] {
        assert_eq!(caller.await.unwrap().unwrap(), "read");
    }
    assert_eq!(reads.coalesced_reads(), 1);
    drop((others, reads));
    scratch.drop().await;
}

/// Starts a proxy before the server. When its flag is set, it inserts one false `ReadyForQuery`
/// before the responses to the next write with several transactions.
async fn confusing_proxy(scratch: &Scratch, folder: &Path) -> (Endpoint, Arc<AtomicBool>) {
    const SYNC: &[u8] = b"S\0\0\0\x04";
    let Host::Socket(real) = scratch.endpoint.host() else { panic!("the tests' cluster has a socket") };
    let file = format!(".s.PGSQL.{}", scratch.endpoint.port());
    let (real, listener) = (real.join(&file), UnixListener::bind(folder.join(&file)).unwrap());
    let confuse = Arc::new(AtomicBool::new(false));
    let flag = confuse.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (flag, server) = (flag.clone(), UnixStream::connect(&real).await.unwrap());
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            let has_several = Arc::new(AtomicBool::new(false));
            let several = has_several.clone();
            tokio::spawn(async move {
                let mut chunk = [0; 16 * 1024];
                loop {
                    let length = from_client.read(&mut chunk).await.unwrap_or(0);
                    let transactions = chunk[..length].windows(SYNC.len()).filter(|bytes| *bytes == SYNC).count();
                    if transactions > 1 && flag.swap(false, Ordering::SeqCst) {
                        several.store(true, Ordering::SeqCst);
                    }
                    if length == 0 || to_server.write_all(&chunk[..length]).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move {
                let mut chunk = [0; 4096];
                loop {
                    let length = from_server.read(&mut chunk).await.unwrap_or(0);
                    if has_several.swap(false, Ordering::SeqCst) {
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
async fn results_reach_their_own_callers_although_the_server_responds_out_of_order() {
    let scratch = Scratch::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, confuse) = confusing_proxy(&scratch, folder.path()).await;
    let reads = coalescer(Pool::open(&endpoint, "supabase_admin", pool_settings(1)).unwrap());
    const READS: [&str; 4] = ["select 'a'", "select 'b'", "select 'c'", "select 'd'"];
    for text in READS {
        learn(&reads, &test_read(text, &[], &[])).await;
    }
    let held = HeldConnections { first: reads.pool().checkout().await.unwrap(), others: Vec::new(), reads };
    let mut callers = Vec::new();
    for text in READS {
        callers.push((text, held.queue(text).await));
    }
    let HeldConnections { reads, first, .. } = held;
    confuse.store(true, Ordering::SeqCst);
    drop(first);
    for (text, caller) in callers {
        assert_eq!(format!("select '{}'", caller.await.unwrap().unwrap()), text);
    }
    assert_eq!(reads.coalesced_reads(), 3);
    assert!(!confuse.load(Ordering::SeqCst), "the false message was sent");
    drop(reads);
    scratch.drop().await;
}

#[tokio::test]
async fn a_slow_read_does_not_delay_the_reads_coalesced_with_it() {
    let scratch = Scratch::new().await;
    let held = HeldConnections::new(&scratch).await;
    let mut admin = connect(&scratch.endpoint).await.unwrap();
    let lock = admin.transaction().await.unwrap();
    lock.batch_execute("lock table locked").await.unwrap();
    let sender = held.queue(FREE).await;
    let slow = held.queue(LOCKED).await;
    let quick = held.queue(FREE).await;
    let HeldConnections { reads, first, others } = held;
    drop(first);
    // All three are coalesced, and one is blocked. The others are released, and run on other
    // connections
    within(PATIENCE, async || (reads.coalesced_reads() == 2).then_some(())).await;
    drop(others);
    assert_eq!(quick.await.unwrap().unwrap(), "free 0");
    assert_eq!(sender.await.unwrap().unwrap(), "free 0");
    assert_eq!(reads.coalesced_reads(), 2);
    assert!(!slow.is_finished());
    lock.rollback().await.unwrap();
    assert_eq!(slow.await.unwrap().unwrap(), "locked 0");
    within(PATIENCE, async || (reads.pool().status().open == reads.pool().status().idle).then_some(())).await;
    let status = reads.pool().status();
    assert!(status.open == status.idle, "{status:?}");
    drop((admin, reads));
    scratch.drop().await;
}

#[tokio::test]
async fn a_coalesced_read_is_answered_although_the_sending_caller_is_cancelled() {
    let scratch = Scratch::new().await;
    let held = HeldConnections::new(&scratch).await;
    let mut admin = connect(&scratch.endpoint).await.unwrap();
    let lock = admin.transaction().await.unwrap();
    lock.batch_execute("lock table locked").await.unwrap();
    let sender = held.queue(FREE).await;
    let slow = held.queue(LOCKED).await;
    let quick = held.queue(FREE).await;
    let HeldConnections { reads, first, others } = held;
    drop(first);
    within(PATIENCE, async || (reads.coalesced_reads() == 2).then_some(())).await;
    sender.abort();
    assert!(sender.await.unwrap_err().is_cancelled());
    drop(others);
    assert_eq!(quick.await.unwrap().unwrap(), "free 0");
    lock.rollback().await.unwrap();
    assert_eq!(slow.await.unwrap().unwrap(), "locked 0");
    within(PATIENCE, async || (reads.pool().status().open == reads.pool().status().idle).then_some(())).await;
    drop((admin, reads));
    scratch.drop().await;
}

#[tokio::test]
async fn slow_and_large_reads_are_not_coalesced() {
    let scratch = Scratch::new().await;
    let settings = CoalescingSettings { quick_read_limit: Duration::from_millis(5), ..CoalescingSettings::default() };
    let reads = ReadCoalescer::new(scratch.plain_pool(pool_settings(1)), &settings);
    let (slow, large) = ("select 'slow' || pg_sleep(0.01)", "select length($1)::text");
    let value = vec![b'x'; 20 * 1024];
    let params = [Some(&value[..])];
    learn(&reads, &test_read(slow, &[], &[])).await;
    learn(&reads, &test_read(large, &params, &[])).await;
    let connection = reads.pool().checkout().await.unwrap();
    let callers = (0..6_usize).map(|caller| {
        let (reads, value) = (reads.clone(), value.clone());
        tokio::spawn(async move {
            let params = [Some(&value[..])];
            match caller % 2 {
                0 => run(&reads, &test_read(slow, &[], &[])).await,
                _ => run(&reads, &test_read(large, &params, &[])).await,
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    within(PATIENCE, async || (reads.pool().status().waiting == 6).then_some(())).await;
    drop(connection);
    for (at, caller) in callers.into_iter().enumerate() {
        assert_eq!(caller.await.unwrap().unwrap(), if at % 2 == 0 { "slow" } else { "20480" });
    }
    assert_eq!(reads.coalesced_reads(), 0);
    drop(reads);
    scratch.drop().await;
}

#[tokio::test]
async fn blocked_quick_reads_delay_no_other_reads() {
    let scratch = Scratch::new().await;
    let settings = CoalescingSettings { max_quick_reads: Some(NonZero::<usize>::MIN), ..coalescing() };
    let reads = ReadCoalescer::new(scratch.plain_pool(pool_settings(3)), &settings);
    let mut connection = reads.pool().checkout().await.unwrap();
    for text in ["create table free ()", "create table locked ()"] {
        one(&mut connection, text).await.unwrap();
    }
    drop(connection);
    for text in [FREE, LOCKED] {
        learn(&reads, &test_read(text, &[], &[])).await;
    }
    let mut admin = connect(&scratch.endpoint).await.unwrap();
    let lock = admin.transaction().await.unwrap();
    lock.batch_execute("lock table locked").await.unwrap();
    let reading = |text: &'static str| {
        let reads = reads.clone();
        tokio::spawn(async move { run(&reads, &test_read(text, &[], &[])).await })
    };
    let blocked = reading(LOCKED);
    within(PATIENCE, async || (reads.pool().status().open > reads.pool().status().idle).then_some(())).await;
    // It uses the only connection for quick reads. Others wait for it, but not for long; a read
    // that is not known to be quick does not wait at all
    let others = [reading(FREE), reading(FREE), reading(FREE)];
    assert_eq!(run(&reads, &test_read("select 'new'", &[], &[])).await.unwrap(), "new");
    for other in others {
        assert_eq!(other.await.unwrap().unwrap(), "free 0");
    }
    assert!(!blocked.is_finished());
    lock.rollback().await.unwrap();
    assert_eq!(blocked.await.unwrap().unwrap(), "locked 0");
    assert!(reads.pool().status().open == reads.pool().status().idle);
    // All checkouts were returned
    let connections = join_all((0..3).map(|_| reads.pool().checkout())).await;
    assert!(connections.iter().all(Result::is_ok));
    assert!(run(&reads, &test_read(FREE, &[], &[])).now_or_never().is_none());
    drop(connections);
    assert_eq!(run(&reads, &test_read(FREE, &[], &[])).await.unwrap(), "free 0");
    drop((admin, reads));
    scratch.drop().await;
}
