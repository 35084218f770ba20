//! Batches over the lean client: what comes back, and what remains when one fails.

use portico_database::wire::{
    Access, Batch, FunctionTraits, Pool, PooledConnection, ResultSets, Statement, WireError, WirePoolSettings,
};
use portico_database::{Endpoint, scratch};

/// Makes the list of functions with traits, which is empty.
pub const NO_TRAITS: &str = "
    create schema portico_session; create table portico_session.noted (bit int);
    grant usage on schema portico_session to public; grant select on portico_session.noted to public;";

/// A database of its own on the shared cluster, with the superuser as the role.
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

    /// As [`pool`](Self::pool), in a database that is known to have no function that decides about sessions.
    pub fn plain_pool(&self, settings: WirePoolSettings) -> Pool {
        let pool = self.pool(settings);
        pool.set_function_traits(FunctionTraits::NONE);
        pool
    }

    pub async fn drop(self) {
        scratch::drop_database(&self.admin, self.endpoint.database()).await.unwrap();
    }
}

/// Runs one statement by itself, as a transaction of its own.
pub async fn one(lease: &mut PooledConnection, text: &str) -> Result<ResultSets, WireError> {
    lease.run(&Batch::new().statement(Statement::named(text, &[])).ending(Access::ReadWrite)).await
}

/// The single value of a statement.
pub async fn value(lease: &mut PooledConnection, text: &str) -> String {
    one(lease, text).await.unwrap().row(0).unwrap().text(0).unwrap().to_owned()
}

/// How many statements the server keeps for the connection. Asked without leaving one behind.
async fn kept(lease: &mut PooledConnection) -> usize {
    let count = Statement::unnamed("select count(*) from pg_prepared_statements", &[]);
    let answers = lease.run(&Batch::new().statement(count)).await.unwrap();
    answers.row(0).unwrap().text(0).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_batch_is_answered_statement_by_statement() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings::default());
    let mut lease = pool.checkout().await.unwrap();
    one(&mut lease, "create table items (id int primary key, name text)").await.unwrap();
    let params = [Some(&b"1"[..]), Some("zürich".as_bytes()), Some(b"2"), None];
    for _ in 0..3 {
        let batch = Batch::new()
            .statement(Statement::named("select set_config('app.who', $1, true)", &[Some(b"me")]))
            .statement(Statement::named("delete from items", &[]))
            .statement(Statement::named("insert into items values ($1, $2), ($3, $4)", &params).scope("anon"))
            .statement(Statement::named("", &[]))
            .statement(Statement::unnamed("select id, name, current_setting('app.who') from items order by id", &[]));
        let answers = lease.run(&batch).await.unwrap();
        assert_eq!(answers.len(), 5);
        assert_eq!(answers.tag(2), "INSERT 0 2");
        assert_eq!(answers.affected(2), Some(2));
        assert_eq!((answers.tag(3), answers.rows(3).len()), ("", 0));
        let rows = answers.rows(4);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].text(0), rows[0].text(1), rows[0].text(2)), (Some("1"), Some("zürich"), Some("me")));
        assert_eq!((rows[1].len(), rows[1].get(1), rows[1].get(7)), (3, None, None));
        assert!(!answers.in_transaction() && !lease.in_transaction());
        assert_eq!(value(&mut lease, "select coalesce(current_setting('app.who', true), '')").await, "", "only within");
    }
    assert_eq!(kept(&mut lease).await, 11, "each named statement once, and those that take the session back");
    assert!(lease.run(&Batch::new()).await.unwrap().is_empty());
    let answers = one(&mut lease, "do $$ begin raise notice 'hear'; raise warning 'hear'; end $$").await.unwrap();
    assert_eq!(answers.notices(), 2);
    drop((answers, lease));
    scratch.drop().await;
}

#[tokio::test]
async fn an_error_undoes_the_batch_and_names_what_it_is_about() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings::default());
    let mut lease = pool.checkout().await.unwrap();
    one(&mut lease, "create table items (id int constraint items_key primary key, up int references items (id) deferrable initially deferred)")
        .await
        .unwrap();
    let insert = "insert into items (id) values (1)";
    for _ in 0..2 {
        let batch = Batch::new()
            .statement(Statement::named(insert, &[]))
            .statement(Statement::named(insert, &[]))
            .statement(Statement::named("select 'never parsed'", &[]));
        let error = lease.run(&batch).await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("23505"));
        assert!(!error.is_unavailable());
        let error = error.postgres().unwrap();
        assert_eq!((error.table.as_deref(), error.constraint.as_deref()), (Some("items"), Some("items_key")));
        assert_eq!(error.detail.as_deref(), Some("Key (id)=(1) already exists."));
        assert_eq!(value(&mut lease, "select count(*) from items").await, "0");
    }
    assert_eq!(value(&mut lease, "select 'never parsed'").await, "never parsed");

    // Deferred constraints speak up after the last statement's answer.
    let dangling = "insert into items values (2, 3)";
    for _ in 0..2 {
        assert_eq!(one(&mut lease, dangling).await.unwrap_err().sqlstate(), Some("23503"));
        assert!(!lease.in_transaction() && !lease.is_broken());
    }
    let error = one(&mut lease, "selct 1").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.postgres().unwrap().position), (Some("42601"), Some(1)));
    let hinted = "do $$ begin raise exception 'no' using errcode = 'PT402', detail = 'why', hint = 'pay'; end $$";
    let error = one(&mut lease, hinted).await.unwrap_err();
    assert_eq!(error.to_string(), "no (PT402): why (hint: pay)");

    assert!(matches!(one(&mut lease, "select '\0'").await, Err(WireError::ZeroByte)));
    let many = vec![None; 70_000];
    let batch = Batch::new().statement(Statement::named("select 1", &many));
    assert!(matches!(lease.run(&batch).await, Err(WireError::TooLarge(_))));
    let zero = Batch::new().statement(Statement::named("select $1::text", &[Some(b"a\0b")]));
    assert_eq!(lease.run(&zero).await.unwrap_err().sqlstate(), Some("22021"));
    assert_eq!(value(&mut lease, "select 'still here'").await, "still here");
    drop(lease);
    scratch.drop().await;
}

#[tokio::test]
async fn a_transaction_over_two_batches_ends_as_the_second_says() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() });
    let mut lease = pool.checkout().await.unwrap();
    one(&mut lease, "create table items (id int primary key)").await.unwrap();
    let begin = || Statement::named("begin isolation level read committed read write", &[]);
    let insert = || Statement::named("insert into items values (1)", &[]);
    for (end, left) in [("rollback", "0"), ("commit", "1")] {
        let answers = lease.run(&Batch::new().statement(begin()).statement(insert())).await.unwrap();
        assert!(answers.in_transaction() && lease.in_transaction());
        assert!(!one(&mut lease, end).await.unwrap().in_transaction());
        assert_eq!(value(&mut lease, "select count(*) from items").await, left);
    }

    // Left open, be it after an error or not, it is rolled back before the next caller gets the connection.
    let process = lease.process();
    let failing =
        Batch::new().statement(begin()).statement(Statement::named("delete from items", &[])).statement(insert());
    lease.run(&failing).await.unwrap();
    assert_eq!(lease.run(&failing).await.unwrap().len(), 3, "begin within a transaction is a warning");
    assert_eq!(one(&mut lease, "insert into items values (1)").await.unwrap_err().sqlstate(), Some("23505"));
    assert!(lease.in_transaction());
    assert_eq!(one(&mut lease, "select 1").await.unwrap_err().sqlstate(), Some("25P02"));
    drop(lease);
    let mut lease = pool.checkout().await.unwrap();
    assert!(!lease.in_transaction());
    assert_eq!((lease.process(), value(&mut lease, "select count(*) from items").await), (process, "1".to_owned()));
    one(&mut lease, "begin").await.unwrap();
    one(&mut lease, "delete from items").await.unwrap();
    drop(lease);
    let mut lease = pool.checkout().await.unwrap();
    assert_eq!(value(&mut lease, "select count(*) from items").await, "1");
    drop(lease);
    scratch.drop().await;
}

#[tokio::test]
async fn a_statement_that_no_longer_fits_the_schema_is_parsed_anew() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 2, ..WirePoolSettings::default() });
    let (mut lease, mut other) = (pool.checkout().await.unwrap(), pool.checkout().await.unwrap());
    one(&mut other, "create table items (id int, name int)").await.unwrap();
    one(&mut other, "insert into items values (1, 7)").await.unwrap();
    let by_name = |value: &'static [Option<&'static [u8]>]| {
        Batch::new()
            .statement(Statement::named("select set_config('role', 'supabase_admin', true)", &[]))
            .statement(Statement::named("select * from items where name = $1", value).scope("anon"))
    };
    let names: &[Option<&[u8]>] = &[Some(b"7")];
    assert_eq!(lease.run(&by_name(names)).await.unwrap().rows(1).len(), 1);

    // Another result, another type of the value, one more column; the statement gone by itself.
    for change in [
        "alter table items alter column name type text",
        "alter table items add column more int default 3",
        "alter table items rename column more to evermore",
        "alter table items alter column name type int using name::int",
    ] {
        one(&mut other, change).await.unwrap();
        let answers = lease.run(&by_name(names)).await.unwrap_or_else(|error| panic!("{change}: {error}"));
        assert_eq!(answers.rows(1).len(), 1, "{change}");
    }
    one(&mut other, "alter table items alter column name type text").await.unwrap();
    let answers = lease.run(&by_name(&[Some(b"seven")])).await.unwrap();
    assert_eq!(answers.rows(1).len(), 0, "seven is no number, but is none any more");
    for forget in ["deallocate all", "discard all"] {
        let _ = lease.run(&Batch::new().statement(Statement::unnamed(forget, &[]))).await.unwrap();
        assert_eq!(lease.run(&by_name(names)).await.unwrap().rows(1).len(), 1, "{forget}");
    }

    // A batch that began its own transaction, too; in one that was open before, it is the caller's to begin again.
    let in_transaction = Batch::new()
        .statement(Statement::named("begin read write", &[]))
        .statement(Statement::named("select * from items", &[]));
    lease.run(&in_transaction).await.unwrap();
    one(&mut lease, "rollback").await.unwrap();
    one(&mut other, "alter table items drop column evermore").await.unwrap();
    assert_eq!(lease.run(&in_transaction).await.unwrap().rows(1)[0].len(), 2);
    one(&mut lease, "rollback").await.unwrap();
    one(&mut lease, "begin").await.unwrap();
    one(&mut other, "alter table items add column last int").await.unwrap();
    assert_eq!(one(&mut lease, "select * from items").await.unwrap_err().sqlstate(), Some("0A000"));
    one(&mut lease, "rollback").await.unwrap();
    assert_eq!(one(&mut lease, "select * from items").await.unwrap().row(0).unwrap().len(), 3);

    // What is really wrong stays wrong, and the rest goes on.
    one(&mut other, "drop table items").await.unwrap();
    assert_eq!(lease.run(&by_name(names)).await.unwrap_err().sqlstate(), Some("42P01"));
    one(&mut other, "create table items (id int, name text)").await.unwrap();
    assert_eq!(lease.run(&by_name(names)).await.unwrap().rows(1).len(), 0);
    drop((lease, other));
    scratch.drop().await;
}

#[tokio::test]
async fn the_statements_kept_are_bounded_and_none_without_preparing() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { statements_per_connection: 4, ..WirePoolSettings::default() });
    let mut lease = pool.checkout().await.unwrap();
    for number in 0..50 {
        let texts = [number, number + 1, number % 3].map(|number| format!("select {number}"));
        let batch = texts.iter().fold(Batch::new(), |batch, text| batch.statement(Statement::named(text, &[])));
        let answers = lease.run(&batch).await.unwrap();
        assert_eq!(answers.row(2).unwrap().text(0).unwrap(), (number % 3).to_string());
    }
    assert!(kept(&mut lease).await <= 4);
    // More than fit, in one batch, with an error at its end.
    let texts: Vec<String> = (100..110).map(|number| format!("select 1 / ({number} - 109)")).collect();
    let batch = texts.iter().fold(Batch::new(), |batch, text| batch.statement(Statement::named(text, &[])));
    for _ in 0..3 {
        assert_eq!(lease.run(&batch).await.unwrap_err().sqlstate(), Some("22012"));
    }
    assert!(kept(&mut lease).await <= 4);
    drop(lease);

    pool.set_prepared(false);
    pool.renew();
    let mut lease = pool.checkout().await.unwrap();
    for _ in 0..3 {
        assert_eq!(value(&mut lease, "select 1").await, "1");
    }
    assert_eq!(kept(&mut lease).await, 0);
    drop(lease);
    scratch.drop().await;
}

#[tokio::test]
async fn large_values_and_rows_arrive_as_they_were_sent() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings::default());
    let mut lease = pool.checkout().await.unwrap();
    let large: Vec<u8> = (0..20_u32 << 20).map(|at| b'a' + u8::try_from(at % 26).unwrap()).collect();
    for length in [20 << 20, 100, 32 * 1024 - 1, 32 * 1024, 70_000] {
        let sent = &large[..length];
        let params = [Some(sent), Some(b"small"), Some(&sent[..length / 2])];
        let batch = Batch::new()
            .statement(Statement::named("select $1::text", &params[..1]))
            .statement(Statement::named("select $1::text, $2::text, $3::text", &params));
        let answers = lease.run(&batch).await.unwrap();
        assert!(answers.row(0).unwrap().get(0).unwrap() == sent, "{length}");
        let row = answers.row(1).unwrap();
        assert!(row.get(0).unwrap() == sent && row.text(1) == Some("small"), "{length}");
        assert!(row.get(2).unwrap() == sent[..length / 2], "{length}");
    }
    // Answers while the question is still on its way: neither side may wait for the other for ever.
    let params = [Some(&large[..])];
    let mut batch = Batch::new();
    for _ in 0..3 {
        batch.push(Statement::named("select repeat('x', 5000000)", &[]));
        batch.push(Statement::named("select length($1)", &params));
    }
    let answers = lease.run(&batch).await.unwrap();
    for statement in [0, 2, 4] {
        assert_eq!(answers.row(statement).unwrap().get(0).unwrap().len(), 5_000_000);
        assert_eq!(answers.row(statement + 1).unwrap().text(0), Some("20971520"));
    }
    let answers = one(&mut lease, "select n, repeat('y', n % 5000) from generate_series(1, 5000) as n").await.unwrap();
    for (number, row) in (1..).zip(answers.rows(0)) {
        assert_eq!((row.text(0).unwrap(), row.bytes(1).unwrap().len()), (&*number.to_string(), number % 5000));
    }
    assert_eq!(answers.rows(0).len(), 5000);
    drop((answers, lease));
    scratch.drop().await;
}

#[tokio::test]
async fn copy_is_refused_and_the_connection_given_up() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() });
    for copy in ["copy (select 1) to stdout", "copy items from stdin"] {
        let mut lease = pool.checkout().await.unwrap();
        one(&mut lease, "create table if not exists items (id int)").await.unwrap();
        let error = one(&mut lease, copy).await.unwrap_err();
        assert!(matches!(error, WireError::Protocol(_)), "{error}");
        assert!(one(&mut lease, "select 1").await.is_err());
    }
    assert_eq!(value(&mut pool.checkout().await.unwrap(), "select 1").await, "1");
    scratch.drop().await;
}
