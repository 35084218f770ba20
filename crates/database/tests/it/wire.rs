//! Batches of the wire client: their results, and their effects when they fail.

use std::time::Duration;

use portico_database::wire::{
    Access, Batch, FunctionTraits, Pool, PooledConnection, ResultSets, Statement, WireError, WirePoolSettings,
};
use portico_database::{Endpoint, scratch};

/// The longest wait for what happens soon: long enough for a machine under load.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the settings of a pool in which no checkout times out while the machine is busy.
pub fn pool_settings(max_connections: usize) -> WirePoolSettings {
    WirePoolSettings { max_connections, checkout_timeout: PATIENCE, ..WirePoolSettings::default() }
}

/// Creates an empty list of functions with traits.
pub const NO_TRAITS: &str = "
    create schema portico_session; create table portico_session.noted (bit int);
    grant usage on schema portico_session to public; grant select on portico_session.noted to public;";

/// A database of its own on the shared cluster, with a pool that acts as the superuser.
pub struct Scratch {
    pub endpoint: Endpoint,
    admin: Endpoint,
}

impl Scratch {
    pub async fn new() -> Self {
        let admin = scratch::shared_cluster().await.unwrap().endpoint();
        let endpoint = scratch::clone_database(&admin, "template0", &scratch::fresh_name()).await.unwrap();
        portico_database::connect(&endpoint).await.unwrap().batch_execute(NO_TRAITS).await.unwrap();
        Self { endpoint, admin }
    }

    pub fn pool(&self, settings: WirePoolSettings) -> Pool {
        Pool::open(&self.endpoint, "supabase_admin", settings).unwrap()
    }

    /// Opens a [`pool`](Self::pool) on a database that is known to have no function that affects
    /// sessions.
    pub fn plain_pool(&self, settings: WirePoolSettings) -> Pool {
        let pool = self.pool(settings);
        pool.set_function_traits(FunctionTraits::NONE);
        pool
    }

    pub async fn drop(self) {
        scratch::drop_database(&self.admin, self.endpoint.database()).await.unwrap();
    }
}

/// Runs one statement as a transaction of its own.
pub async fn one(connection: &mut PooledConnection, text: &str) -> Result<ResultSets, WireError> {
    connection.run(&Batch::new().statement(Statement::named(text, &[])).ending(Access::ReadWrite)).await
}

/// Returns the single value of a statement.
pub async fn value(connection: &mut PooledConnection, text: &str) -> String {
    one(connection, text).await.unwrap().row(0).unwrap().text(0).unwrap().to_owned()
}

/// Returns how many prepared statements the server keeps for the connection, without preparing
/// another one.
async fn prepared_statements(connection: &mut PooledConnection) -> usize {
    let count = Statement::unnamed("select count(*) from pg_prepared_statements", &[]);
    let results = connection.run(&Batch::new().statement(count)).await.unwrap();
    results.row(0).unwrap().text(0).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_batch_has_a_result_for_each_statement() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings::default());
    let mut connection = pool.checkout().await.unwrap();
    one(&mut connection, "create table items (id int primary key, name text)").await.unwrap();
    let params = [Some(&b"1"[..]), Some("zürich".as_bytes()), Some(b"2"), None];
    for _ in 0..3 {
        let batch = Batch::new()
            .statement(Statement::named("select set_config('app.who', $1, true)", &[Some(b"me")]))
            .statement(Statement::named("delete from items", &[]))
            .statement(Statement::named("insert into items values ($1, $2), ($3, $4)", &params).scope("anon"))
            .statement(Statement::named("", &[]))
            .statement(Statement::unnamed("select id, name, current_setting('app.who') from items order by id", &[]));
        let results = connection.run(&batch).await.unwrap();
        assert_eq!(results.len(), 5);
        assert_eq!(results.tag(2), "INSERT 0 2");
        assert_eq!(results.affected(2), Some(2));
        assert_eq!((results.tag(3), results.rows(3).len()), ("", 0));
        let rows = results.rows(4);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].text(0), rows[0].text(1), rows[0].text(2)), (Some("1"), Some("zürich"), Some("me")));
        assert_eq!((rows[1].len(), rows[1].get(1), rows[1].get(7)), (3, None, None));
        assert!(!results.in_transaction() && !connection.in_transaction());
        assert_eq!(
            value(&mut connection, "select coalesce(current_setting('app.who', true), '')").await,
            "",
            "only within the batch"
        );
    }
    assert_eq!(
        prepared_statements(&mut connection).await,
        11,
        "each named statement once, and those of the session reset"
    );
    assert!(connection.run(&Batch::new()).await.unwrap().is_empty());
    let results = one(&mut connection, "do $$ begin raise notice 'hear'; raise warning 'hear'; end $$").await.unwrap();
    assert_eq!(results.notices(), 2);
    drop((results, connection));
    scratch.drop().await;
}

#[tokio::test]
async fn an_error_rolls_the_batch_back_and_names_its_subject() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings::default());
    let mut connection = pool.checkout().await.unwrap();
    one(&mut connection, "create table items (id int constraint items_key primary key, up int references items (id) deferrable initially deferred)")
        .await
        .unwrap();
    let insert = "insert into items (id) values (1)";
    for _ in 0..2 {
        let batch = Batch::new()
            .statement(Statement::named(insert, &[]))
            .statement(Statement::named(insert, &[]))
            .statement(Statement::named("select 'never parsed'", &[]));
        let error = connection.run(&batch).await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("23505"));
        assert!(!error.is_unavailable());
        let error = error.postgres().unwrap();
        assert_eq!((error.table.as_deref(), error.constraint.as_deref()), (Some("items"), Some("items_key")));
        assert_eq!(error.detail.as_deref(), Some("Key (id)=(1) already exists."));
        assert_eq!(value(&mut connection, "select count(*) from items").await, "0");
    }
    assert_eq!(value(&mut connection, "select 'never parsed'").await, "never parsed");

    // Deferred constraints fail after the result of the last statement
    let dangling = "insert into items values (2, 3)";
    for _ in 0..2 {
        assert_eq!(one(&mut connection, dangling).await.unwrap_err().sqlstate(), Some("23503"));
        assert!(!connection.in_transaction() && !connection.is_broken());
    }
    let error = one(&mut connection, "selct 1").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.postgres().unwrap().position), (Some("42601"), Some(1)));
    let hinted = "do $$ begin raise exception 'no' using errcode = 'PT402', detail = 'why', hint = 'pay'; end $$";
    let error = one(&mut connection, hinted).await.unwrap_err();
    assert_eq!(error.to_string(), "no (PT402): why (hint: pay)");

    assert!(matches!(one(&mut connection, "select '\0'").await, Err(WireError::ZeroByte)));
    let many = vec![None; 70_000];
    let batch = Batch::new().statement(Statement::named("select 1", &many));
    assert!(matches!(connection.run(&batch).await, Err(WireError::TooLarge(_))));
    let zero = Batch::new().statement(Statement::named("select $1::text", &[Some(b"a\0b")]));
    assert_eq!(connection.run(&zero).await.unwrap_err().sqlstate(), Some("22021"));
    assert_eq!(value(&mut connection, "select 'still here'").await, "still here");
    drop(connection);
    scratch.drop().await;
}

#[tokio::test]
async fn a_transaction_over_two_batches_ends_with_the_second() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() });
    let mut connection = pool.checkout().await.unwrap();
    one(&mut connection, "create table items (id int primary key)").await.unwrap();
    let begin = || Statement::named("begin isolation level read committed read write", &[]);
    let insert = || Statement::named("insert into items values (1)", &[]);
    for (end, left) in [("rollback", "0"), ("commit", "1")] {
        let results = connection.run(&Batch::new().statement(begin()).statement(insert())).await.unwrap();
        assert!(results.in_transaction() && connection.in_transaction());
        assert!(!one(&mut connection, end).await.unwrap().in_transaction());
        assert_eq!(value(&mut connection, "select count(*) from items").await, left);
    }

    // An open transaction, failed or not, is rolled back before the next caller gets the connection
    let process = connection.process();
    let failing =
        Batch::new().statement(begin()).statement(Statement::named("delete from items", &[])).statement(insert());
    connection.run(&failing).await.unwrap();
    assert_eq!(connection.run(&failing).await.unwrap().len(), 3, "begin within a transaction is a warning");
    assert_eq!(one(&mut connection, "insert into items values (1)").await.unwrap_err().sqlstate(), Some("23505"));
    assert!(connection.in_transaction());
    assert_eq!(one(&mut connection, "select 1").await.unwrap_err().sqlstate(), Some("25P02"));
    drop(connection);
    let mut connection = pool.checkout().await.unwrap();
    assert!(!connection.in_transaction());
    assert_eq!(
        (connection.process(), value(&mut connection, "select count(*) from items").await),
        (process, "1".to_owned())
    );
    one(&mut connection, "begin").await.unwrap();
    one(&mut connection, "delete from items").await.unwrap();
    drop(connection);
    let mut connection = pool.checkout().await.unwrap();
    assert_eq!(value(&mut connection, "select count(*) from items").await, "1");
    drop(connection);
    scratch.drop().await;
}

#[tokio::test]
async fn a_statement_that_no_longer_fits_the_schema_is_parsed_anew() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 2, ..WirePoolSettings::default() });
    let (mut connection, mut other) = (pool.checkout().await.unwrap(), pool.checkout().await.unwrap());
    one(&mut other, "create table items (id int, name int)").await.unwrap();
    one(&mut other, "insert into items values (1, 7)").await.unwrap();
    let by_name = |value: &'static [Option<&'static [u8]>]| {
        Batch::new()
            .statement(Statement::named("select set_config('role', 'supabase_admin', true)", &[]))
            .statement(Statement::named("select * from items where name = $1", value).scope("anon"))
    };
    let names: &[Option<&[u8]>] = &[Some(b"7")];
    assert_eq!(connection.run(&by_name(names)).await.unwrap().rows(1).len(), 1);

    // Another result type, another type of the value, one more column; a deallocated statement
    for change in [
        "alter table items alter column name type text",
        "alter table items add column more int default 3",
        "alter table items rename column more to evermore",
        "alter table items alter column name type int using name::int",
    ] {
        one(&mut other, change).await.unwrap();
        let results = connection.run(&by_name(names)).await.unwrap_or_else(|error| panic!("{change}: {error}"));
        assert_eq!(results.rows(1).len(), 1, "{change}");
    }
    one(&mut other, "alter table items alter column name type text").await.unwrap();
    let results = connection.run(&by_name(&[Some(b"seven")])).await.unwrap();
    assert_eq!(results.rows(1).len(), 0, "seven is not a number, and the column is text again");
    for command in ["deallocate all", "discard all"] {
        let _ = connection.run(&Batch::new().statement(Statement::unnamed(command, &[]))).await.unwrap();
        assert_eq!(connection.run(&by_name(names)).await.unwrap().rows(1).len(), 1, "{command}");
    }

    // A batch that began its own transaction is retried too; in a transaction that was already
    // open, the caller has to retry
    let in_transaction = Batch::new()
        .statement(Statement::named("begin read write", &[]))
        .statement(Statement::named("select * from items", &[]));
    connection.run(&in_transaction).await.unwrap();
    one(&mut connection, "rollback").await.unwrap();
    one(&mut other, "alter table items drop column evermore").await.unwrap();
    assert_eq!(connection.run(&in_transaction).await.unwrap().rows(1)[0].len(), 2);
    one(&mut connection, "rollback").await.unwrap();
    one(&mut connection, "begin").await.unwrap();
    one(&mut other, "alter table items add column last int").await.unwrap();
    assert_eq!(one(&mut connection, "select * from items").await.unwrap_err().sqlstate(), Some("0A000"));
    one(&mut connection, "rollback").await.unwrap();
    assert_eq!(one(&mut connection, "select * from items").await.unwrap().row(0).unwrap().len(), 3);

    // A real error is reported, and later batches work
    one(&mut other, "drop table items").await.unwrap();
    assert_eq!(connection.run(&by_name(names)).await.unwrap_err().sqlstate(), Some("42P01"));
    one(&mut other, "create table items (id int, name text)").await.unwrap();
    assert_eq!(connection.run(&by_name(names)).await.unwrap().rows(1).len(), 0);
    drop((connection, other));
    scratch.drop().await;
}

#[tokio::test]
async fn prepared_statements_are_limited_and_none_are_kept_when_turned_off() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { statements_per_connection: 4, ..WirePoolSettings::default() });
    let mut connection = pool.checkout().await.unwrap();
    for number in 0..50 {
        let texts = [number, number + 1, number % 3].map(|number| format!("select {number}"));
        let batch = texts.iter().fold(Batch::new(), |batch, text| batch.statement(Statement::named(text, &[])));
        let results = connection.run(&batch).await.unwrap();
        assert_eq!(results.row(2).unwrap().text(0).unwrap(), (number % 3).to_string());
    }
    assert!(prepared_statements(&mut connection).await <= 4);
    // More than the limit in one batch, with an error at its end
    let texts: Vec<String> = (100..110).map(|number| format!("select 1 / ({number} - 109)")).collect();
    let batch = texts.iter().fold(Batch::new(), |batch, text| batch.statement(Statement::named(text, &[])));
    for _ in 0..3 {
        assert_eq!(connection.run(&batch).await.unwrap_err().sqlstate(), Some("22012"));
    }
    assert!(prepared_statements(&mut connection).await <= 4);
    drop(connection);

    pool.set_prepared(false);
    pool.renew();
    let mut connection = pool.checkout().await.unwrap();
    for _ in 0..3 {
        assert_eq!(value(&mut connection, "select 1").await, "1");
    }
    assert_eq!(prepared_statements(&mut connection).await, 0);
    drop(connection);
    scratch.drop().await;
}

#[tokio::test]
async fn large_values_and_rows_arrive_unchanged() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings::default());
    let mut connection = pool.checkout().await.unwrap();
    let large: Vec<u8> = (0..20_u32 << 20).map(|at| b'a' + u8::try_from(at % 26).unwrap()).collect();
    for length in [20 << 20, 100, 32 * 1024 - 1, 32 * 1024, 70_000] {
        let sent = &large[..length];
        let params = [Some(sent), Some(b"small"), Some(&sent[..length / 2])];
        let batch = Batch::new()
            .statement(Statement::named("select $1::text", &params[..1]))
            .statement(Statement::named("select $1::text, $2::text, $3::text", &params));
        let results = connection.run(&batch).await.unwrap();
        assert!(results.row(0).unwrap().get(0).unwrap() == sent, "{length}");
        let row = results.row(1).unwrap();
        assert!(row.get(0).unwrap() == sent && row.text(1) == Some("small"), "{length}");
        assert!(row.get(2).unwrap() == sent[..length / 2], "{length}");
    }
    // Results arrive while the batch is still being sent: neither side may block the other forever
    let params = [Some(&large[..])];
    let mut batch = Batch::new();
    for _ in 0..3 {
        batch.push(Statement::named("select repeat('x', 5000000)", &[]));
        batch.push(Statement::named("select length($1)", &params));
    }
    let results = connection.run(&batch).await.unwrap();
    for statement in [0, 2, 4] {
        assert_eq!(results.row(statement).unwrap().get(0).unwrap().len(), 5_000_000);
        assert_eq!(results.row(statement + 1).unwrap().text(0), Some("20971520"));
    }
    let results =
        one(&mut connection, "select n, repeat('y', n % 5000) from generate_series(1, 5000) as n").await.unwrap();
    for (number, row) in (1..).zip(results.rows(0)) {
        assert_eq!((row.text(0).unwrap(), row.bytes(1).unwrap().len()), (&*number.to_string(), number % 5000));
    }
    assert_eq!(results.rows(0).len(), 5000);
    drop((results, connection));
    scratch.drop().await;
}

#[tokio::test]
async fn copy_is_rejected_and_the_connection_closed() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() });
    for copy in ["copy (select 1) to stdout", "copy items from stdin"] {
        let mut connection = pool.checkout().await.unwrap();
        one(&mut connection, "create table if not exists items (id int)").await.unwrap();
        let error = one(&mut connection, copy).await.unwrap_err();
        assert!(matches!(error, WireError::Protocol(_)), "{error}");
        assert!(one(&mut connection, "select 1").await.is_err());
    }
    assert_eq!(value(&mut pool.checkout().await.unwrap(), "select 1").await, "1");
    scratch.drop().await;
}
