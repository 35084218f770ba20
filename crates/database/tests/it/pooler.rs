//! Connection poolers before the database.

use std::net::SocketAddr;
use std::time::Duration;

use portico_database::scratch::{OrdinaryServer, PoolerMode, TestPooler};
use portico_database::wire::{Access, FunctionTraits, Pool, WirePoolSettings};
use portico_database::{BootstrapSettings, Database, Endpoint, Listener, PoolSettings, connect};

use super::bootstrap::majors;
use super::external::{set_up, start, works};
use super::wire::{one, value as value_of};
use super::wire_session::{LEFTOVERS, next, run, transaction};

use crate::AUTH;

/// The rights of a login that is not a superuser.
const PLAIN: &str = "createrole createdb";
const ONE_LOGIN: PoolerMode = PoolerMode::TransactionOfOneLogin("tenant");

/// Starts a server that trusts its clients, with the login `tenant` and its database `pooled`.
async fn trusting_server(major: u32, rights: &str) -> (OrdinaryServer, SocketAddr) {
    let server = start(major).await;
    let admin = server.administrator().await;
    admin.batch_execute(&format!("create role tenant login {rights}")).await.unwrap();
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
        (18, PoolerMode::Transaction),
        (15, ONE_LOGIN),
        (15, PoolerMode::Session),
        (18, PoolerMode::SessionWithoutSettings),
    ];
    for (major, mode) in modes.into_iter().filter(|(major, _)| majors().any(|installed| installed == *major)) {
        let what = format!("through a pooler with {mode:?} on {major}");
        let (_server, address) = trusting_server(major, PLAIN).await;
        let pooled = through(TestPooler::start(address, mode).await.unwrap().address());
        let database = set_up(&pooled, &what).await;
        assert!(database.is_pooled(), "{what}");
        works(&database, &what).await;
        let limited = database.limitations().iter().any(|missing| missing.what.contains("sessions without"));
        assert_eq!(limited, mode == ONE_LOGIN, "{what}");
        // Another start finds everything as it is
        let again = set_up(&pooled, &what).await;
        again.pool(AUTH).client().await.unwrap().query("select id from users", &[]).await.unwrap();
    }
}

#[tokio::test]
async fn migrations_and_notifications_pass_the_pooler_by() {
    let (server, address) = trusting_server(18, PLAIN).await;
    let pooler = TestPooler::start(address, PoolerMode::Transaction).await.unwrap();
    let pooled = through(pooler.address());
    let other = server.superuser("postgres");
    let mistaken = Database::open(&pooled.with_direct(other), PoolSettings::default()).unwrap();
    let error = mistaken.bootstrap(&BootstrapSettings::default()).await.unwrap_err().to_string();
    assert!(error.contains("DIRECT_URL leads to another database (postgres at "), "{error}");
    let what = "past a pooler";
    let database = set_up(&pooled.with_direct(through(address)), what).await;
    assert!(database.is_pooled() && database.has_direct_endpoint() && database.receives_notifications());
    works(&database, what).await;
    let limited = database.limitations().iter().any(|missing| missing.what.contains("sessions without"));
    assert!(!limited, "the pooler admits the logins");
    // Statements outside of transactions run as the owner
    let mut session = database.migrations().await.unwrap();
    session.batch("create index concurrently notes_of_owner on public.notes (owner)").await.unwrap();
    let process = "select pg_backend_pid()";
    let first: i32 = session.client().query_one(process, &[]).await.unwrap().get(0);
    session.batch("set app.a = 'kept'; create temporary table kept (id int)").await.unwrap();
    assert_eq!(session.client().query_one(process, &[]).await.unwrap().get::<_, i32>(0), first);
    // Notifications arrive, also those that were sent through the pooler
    let mut listener = Listener::open(database.endpoint(), "pgrst").await.unwrap();
    database.pool(AUTH).client().await.unwrap().batch_execute("notify pgrst, 'reload schema'").await.unwrap();
    let received = tokio::time::timeout(Duration::from_secs(60), listener.next()).await.unwrap();
    assert_eq!(received.as_deref(), Some("reload schema"));
    // A second start knows the logins and the names as well
    let again = set_up(&pooled.with_direct(through(address)), what).await;
    again.pool(AUTH).client().await.unwrap().query("select id from users", &[]).await.unwrap();
    assert_eq!(again.role_for("postgres"), "portico_owner");
}

/// Objects by which transactions of the data API leave things behind.
const OBJECTS: &str = "
    create sequence public.numbers;
    create table public.ids (id int unique deferrable initially deferred);
    insert into public.ids values (1);
    grant all on public.numbers, public.ids to authenticator, anon";

/// A transaction of an attacker: its statements, and its declared end.
type Attack = (String, Option<Access>);

/// Returns the attacks through a pooler. One that knows one login differs in the session user and
/// its roles alone.
fn attacks(mode: PoolerMode) -> Vec<Attack> {
    let more = [
        (false, "set role anon"),
        (true, "insert into public.ids values (1); prepare left_over as select 1; select pg_advisory_lock(1)"),
        (true, "create temporary table left_over (id int) on commit drop"),
    ];
    let mut attacks = Vec::new();
    for (writes, sql) in LEFTOVERS.into_iter().chain(more) {
        if mode == ONE_LOGIN && !["role", "authorization", "discard"].iter().any(|word| sql.contains(word)) {
            continue;
        }
        for access in [Access::ReadOnly, Access::ReadWrite] {
            if access == Access::ReadOnly && (writes || mode == ONE_LOGIN) {
                continue;
            }
            let whole = transaction(access, sql);
            let open = whole.trim_end_matches("|commit");
            attacks.push((whole.clone(), Some(access)));
            attacks.push((format!("{open}|select 1 / 0|commit"), Some(access)));
            attacks.push((open.to_owned(), None));
            // The access mode makes no difference to the others
            if access == Access::ReadWrite {
                attacks.push((format!("{open}|rollback"), Some(access)));
                attacks.push((whole.clone(), None));
                attacks.push((sql.to_owned(), None));
            }
        }
    }
    attacks
}

/// A pooler that lends one server session at a time, and the attacks over it.
struct Sequence {
    mode: PoolerMode,
    pooler: TestPooler,
    database: Database,
    attacks: Vec<Attack>,
}

/// Runs attacks, and checks after each one that nothing of it reaches another pool.
async fn run_attacks(Sequence { mode, pooler, database, attacks }: Sequence) {
    let settings = || WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() };
    let open = || Pool::open(database.endpoint(), "authenticator", settings()).unwrap();
    let (attacker, other) = (open(), open());
    pooler.keep_sessions(1).await;
    let (clean, _) = next(&other).await;
    assert!(clean.contains("authenticator"), "{clean}");
    for (texts, ends) in attacks {
        let mut lease = attacker.checkout().await.unwrap();
        let _ = run(&mut lease, &texts, ends).await;
        drop(lease);
        assert_eq!(next(&other).await.0, clean, "{texts} {ends:?} {mode:?}");
    }
    // Another program of the same pooler cannot reach these sessions either
    let plain = through(pooler.address());
    for sql in [
        "prepare q as select 1",
        "set role anon; set app.a = 'left'",
        "create temporary table t (id int)",
        "listen someone",
    ] {
        let _ = connect(&plain).await.unwrap().batch_execute(sql).await;
        assert_eq!(next(&other).await.0, clean, "{sql} {mode:?}");
        database.pool(AUTH).client().await.unwrap().query_one("select 1", &[]).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_that_a_transaction_leaves_in_a_shared_server_session_reaches_the_next_one() {
    let (_server, address) = trusting_server(18, PLAIN).await;
    // They run at once, each through a pooler of its own
    let mut sequences = Vec::new();
    for (mode, count) in [(PoolerMode::Transaction, 2), (ONE_LOGIN, 1)] {
        let attacks = attacks(mode);
        for attacks in attacks.chunks(attacks.len().div_ceil(count)) {
            let pooler = TestPooler::start(address, mode).await.unwrap();
            let database = set_up(&through(pooler.address()), "for attacks").await;
            if sequences.is_empty() {
                database.migrations().await.unwrap().batch(OBJECTS).await.unwrap();
            }
            drop(database.pool(AUTH).client().await.unwrap());
            sequences.push(Sequence { mode, pooler, database, attacks: attacks.to_vec() });
        }
    }
    futures_util::future::join_all(sequences.into_iter().map(run_attacks)).await;
}

#[tokio::test]
async fn a_shared_server_session_ends_with_its_transaction_while_expressions_keep_values() {
    let (_server, address) = trusting_server(18, PLAIN).await;
    let pooler = TestPooler::start(address, PoolerMode::Transaction).await.unwrap();
    let pooled = pooler.address();
    let database = set_up(&through(pooled), "for kept values").await;
    let settings = WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() };
    let pool = Pool::open(database.endpoint(), "authenticator", settings).unwrap();
    pool.set_function_traits(FunctionTraits { keeps: true, ..FunctionTraits::NONE });
    pooler.keep_sessions(1).await;
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

/// A domain whose values PostgreSQL compares with what the immutable function returned first in the
/// session.
const KEEPS_VALUES: &str = "
    create function public.caller() returns text language plpgsql immutable
      as $$ begin return current_setting('app.a', true); end $$;
    create domain public.own as text check (value = public.caller());
    grant execute on function public.caller() to public";

/// Returns the statements of a caller that uses the domain, and tries to hide it.
fn uses_domain(caller: &str) -> String {
    format!("select set_config('app.a', '{caller}', true)|select '{caller}'::public.own|reset portico_session.used")
}

/// The attacks behind which a server session has kept a value of one caller: its transaction fails
/// at its commit, so that no statement behind the commit runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Migration {
    /// Commits before the transaction begins, and the pool does not know of it.
    Before,
    /// Commits while the transaction is open.
    During,
}

/// A server behind a pooler that knows one login and lends one server session at a time.
struct SharedSession {
    server: OrdinaryServer,
    database: Database,
    /// A connection past the pooler.
    direct: tokio_postgres::Client,
    /// The caller whose transaction fails at its commit.
    failing: Pool,
    other: Pool,
}

impl SharedSession {
    /// Starts one in a database without expressions that keep values, for a login with these
    /// rights.
    async fn start(rights: &str, what: &str) -> Self {
        let (server, address) = trusting_server(18, rights).await;
        let pooler = TestPooler::start(address, ONE_LOGIN).await.unwrap();
        let database = set_up(&through(pooler.address()), what).await;
        let direct = connect(&through(address)).await.unwrap();
        direct.batch_execute(OBJECTS).await.unwrap();
        let settings = || WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() };
        let open = || Pool::open(database.endpoint(), "authenticator", settings()).unwrap();
        let shared = Self { server, failing: open(), other: open(), database, direct };
        let before = shared.learn_traits().await;
        assert!(!before.keeps && before.unwatched.is_some() == (rights == PLAIN), "{what}: {before:?}");
        pooler.keep_sessions(1).await;
        shared
    }

    /// Has both callers learn the properties of the functions, as after a reload of the schema.
    async fn learn_traits(&self) -> FunctionTraits {
        let found = FunctionTraits::load(&self.direct).await.unwrap();
        self.database.record_function_traits(found).await.unwrap();
        for pool in [&self.failing, &self.other] {
            pool.set_function_traits(found);
        }
        found
    }

    /// Runs the statements in a transaction of the failing caller, which fails at its commit.
    async fn fail(&self, statements: &str, what: &str) {
        let statements = format!("{statements}|insert into public.ids values (1)|commit");
        let error = run(&mut self.failing.checkout().await.unwrap(), &statements, Some(Access::ReadWrite)).await;
        assert_eq!(error.unwrap_err().sqlstate(), Some("23505"), "{what}");
    }

    /// Runs a transaction of the other caller that uses the domain.
    async fn read_as_other(&self, what: &str) {
        let mut lease = self.other.checkout().await.unwrap();
        let answers = run(&mut lease, &format!("begin|{}|commit", uses_domain("other")), Some(Access::ReadWrite)).await;
        let answers = answers.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(answers.row(2).unwrap().text(0), Some("other"), "{what}");
    }

    /// Runs a transaction that uses the domain in an emulated session.
    async fn read_as_service(&self, what: &str) {
        let service = self.database.acting_as("authenticator").await.unwrap();
        let as_caller = "begin; select set_config('app.a', 'service', true); select 'service'::public.own; rollback";
        service.batch_execute(as_caller).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
}

#[tokio::test]
async fn a_value_that_a_failed_transaction_keeps_reaches_no_other_caller() {
    for (rights, migration, is_known_afterwards) in [
        ("superuser", Migration::Before, false),
        ("superuser", Migration::During, false),
        ("superuser", Migration::During, true),
        // No event triggers
        (PLAIN, Migration::Before, false),
        (PLAIN, Migration::During, true),
    ] {
        let what = format!("{rights} {migration:?} {is_known_afterwards}");
        let shared = SharedSession::start(rights, &what).await;
        let mut lease = shared.failing.checkout().await.unwrap();
        run(&mut lease, "begin|select 1|commit", Some(Access::ReadWrite)).await.unwrap();
        let (first, second) = match migration {
            Migration::Before => ("", format!("begin|{}", uses_domain("failing"))),
            Migration::During => ("begin|select 1", uses_domain("failing")),
        };
        if !first.is_empty() {
            run(&mut lease, first, None).await.unwrap();
        }
        shared.direct.batch_execute(KEEPS_VALUES).await.unwrap();
        let second = format!("{second}|insert into public.ids values (1)|commit");
        let error = run(&mut lease, &second, Some(Access::ReadWrite)).await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("23505"), "{what}: {error}");
        drop(lease);
        shared.read_as_service(&what).await;
        shared.fail(&format!("begin|{}", uses_domain("failing")), &what).await;
        if is_known_afterwards {
            let found = FunctionTraits::load(&shared.direct).await.unwrap();
            assert!(found.keeps, "{what}");
            shared.other.set_function_traits(found);
        }
        shared.read_as_other(&what).await;
    }
}

#[tokio::test]
async fn a_kept_value_reaches_no_other_caller_when_its_expression_is_long_gone() {
    for rights in ["superuser", PLAIN] {
        let shared = SharedSession::start(rights, rights).await;
        // Without such expressions transactions share the session
        const PROCESS: &str = "select pg_backend_pid()";
        let process = value_of(&mut shared.other.checkout().await.unwrap(), PROCESS).await;
        let service = shared.database.acting_as("authenticator").await.unwrap();
        let of_service: i32 = service.query_one(PROCESS, &[]).await.unwrap().get(0);
        assert_eq!(of_service.to_string(), process, "{rights}");
        assert_eq!(value_of(&mut shared.failing.checkout().await.unwrap(), PROCESS).await, process, "{rights}");
        for is_emulated in [false, true] {
            let what = format!("{rights} {is_emulated}");
            shared.direct.batch_execute(KEEPS_VALUES).await.unwrap();
            shared.fail(&format!("begin|{}", uses_domain("failing")), &what).await;
            shared.direct.batch_execute("alter function public.caller() volatile").await.unwrap();
            let admin = shared.server.superuser("pooled");
            super::bootstrap_session_traits::later(&connect(&admin).await.unwrap()).await;
            assert!(!shared.learn_traits().await.keeps, "{what}");
            match is_emulated {
                true => shared.read_as_service(&what).await,
                false => shared.read_as_other(&what).await,
            }
            shared.direct.batch_execute("drop domain public.own; drop function public.caller()").await.unwrap();
        }
    }
}
