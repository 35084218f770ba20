//! Reads of the program's own, as a role of its own.

use std::time::Duration;

use futures_util::future::join_all;
use portico_database::wire::FixedRead;
use portico_database::{Endpoint, connect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::cluster::within;
use crate::wire::{PATIENCE, Scratch};

/// Selects the keys and what the session begins with.
const SESSION: &str = "select pg_catalog.concat_ws(' ', wanted.key, pg_catalog.current_setting('row_security'), \
    pg_catalog.current_setting('transaction_read_only'), pg_catalog.current_setting('search_path')) \
    from pg_catalog.unnest($1::pg_catalog.text[]) with ordinality as wanted (key, place) order by wanted.place";

/// Finds the names of a table. PostgreSQL finds none of another name.
const NAMES: &str = "select (select m.name from public.missing as m where m.name = wanted.key) \
    from pg_catalog.unnest($1::pg_catalog.text[]) with ordinality as wanted (key, place) order by wanted.place";

/// Counts the keys of the batch.
const COUNT: &str = "select (pg_catalog.count(*) over ())::pg_catalog.text \
    from pg_catalog.unnest($1::pg_catalog.text[]) with ordinality as wanted (key, place) order by wanted.place";

async fn text(read: &FixedRead<1>, key: &str) -> Option<String> {
    Some(read.run([key]).await?.text(0).unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_gets_the_row_of_its_own_key() {
    let scratch = Scratch::new().await;
    let administrator = connect(&scratch.endpoint).await.unwrap();
    // A login as the role would begin with these
    let role = format!("{}_owner", scratch.endpoint.database());
    let set = "set row_security = on; alter role {} set search_path = public";
    administrator.batch_execute(&format!("create role {role} login")).await.unwrap();
    administrator.batch_execute(&set.replace("{}", &role)).await.unwrap();
    let read = FixedRead::open(&scratch.endpoint, role.clone().leak(), SESSION, PATIENCE).unwrap();
    for round in 0..20 {
        // More than fit into the batches of both threads, and syntax of arrays
        let reads = (0..200).map(|caller| {
            let (read, key) = (read.clone(), format!("{{{round},\"{caller}\\"));
            tokio::spawn(async move { (text(&read, &key).await, key) })
        });
        for outcome in join_all(reads).await {
            let (found, key) = outcome.unwrap();
            assert_eq!(found, Some(format!("{key} off on pg_catalog, pg_temp")));
        }
    }
    read.close();
    administrator.batch_execute(&format!("drop role {role}")).await.unwrap();
    drop((read, administrator));
    scratch.drop().await;
}

#[tokio::test]
async fn keys_without_a_row_have_no_value_and_neither_has_any_key_if_a_row_is_missing() {
    let scratch = Scratch::new().await;
    let administrator = connect(&scratch.endpoint).await.unwrap();
    administrator
        .batch_execute("create table public.missing (name text); insert into public.missing values ('a'), ('c')")
        .await
        .unwrap();
    let open = |text| FixedRead::<1>::open(&scratch.endpoint, "supabase_admin", text, PATIENCE).unwrap();
    let names = open(NAMES);
    let found = join_all(["a", "b", "c"].map(|key| text(&names, key))).await;
    assert_eq!(found, [Some("a".into()), None, Some("c".into())]);
    // The rows of this statement do not say which key they belong to
    let incomplete = open("select m.name from public.missing as m where m.name = any ($1::pg_catalog.text[])");
    let found = join_all(["b", "c"].map(|key| text(&incomplete, key))).await;
    assert_eq!(found, [None, None]);
    assert_eq!(text(&incomplete, "c").await.as_deref(), Some("c"));
    assert!(names.run([&"a".repeat(10_000)]).await.is_none());
    drop((names, incomplete, administrator));
    scratch.drop().await;
}

#[tokio::test]
async fn a_batch_has_the_keys_of_all_that_has_arrived() {
    let scratch = Scratch::new().await;
    let read = FixedRead::<1>::open(&scratch.endpoint, "supabase_admin", COUNT, PATIENCE).unwrap();
    assert_eq!(text(&read, "alone").await.as_deref(), Some("1"));
    let (mut client, mut server) = UnixStream::pair().unwrap();
    let (waits, is_waiting) = oneshot::channel();
    let other = tokio::spawn({
        let read = read.clone();
        async move {
            waits.send(()).unwrap();
            server.read_u8().await.unwrap();
            text(&read, "other").await
        }
    });
    is_waiting.await.unwrap();
    // The runtime knows nothing of the request yet when it has the first key
    client.write_u8(0).await.unwrap();
    assert_eq!(text(&read, "one").await.as_deref(), Some("2"));
    assert_eq!(other.await.unwrap().as_deref(), Some("2"));
    drop(read);
    scratch.drop().await;
}

#[tokio::test]
async fn a_caller_that_is_cancelled_leaves_the_others_their_values() {
    let scratch = Scratch::new().await;
    let read = FixedRead::<1>::open(&scratch.endpoint, "supabase_admin", SESSION, PATIENCE).unwrap();
    let mut first = Box::pin(read.run(["first"]));
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    let second = tokio::spawn({
        let read = read.clone();
        async move { text(&read, "second").await }
    });
    drop(first);
    assert_eq!(second.await.unwrap().as_deref(), Some("second off on pg_catalog, pg_temp"));
    drop(read);
    scratch.drop().await;
}

#[tokio::test]
async fn a_read_that_postgresql_rejects_is_left_to_another_way() {
    let scratch = Scratch::new().await;
    let open = |endpoint: &Endpoint, role, text| FixedRead::open(endpoint, role, text, PATIENCE).unwrap();
    let missing = open(&scratch.endpoint, "supabase_admin", NAMES);
    assert_eq!(text(&missing, "a").await, None);
    // It is not tried again at once
    let administrator = connect(&scratch.endpoint).await.unwrap();
    administrator
        .batch_execute("create table public.missing (name text); insert into public.missing values ('a')")
        .await
        .unwrap();
    assert_eq!(text(&missing, "a").await, None);
    let found = open(&scratch.endpoint, "supabase_admin", NAMES);
    assert_eq!(text(&found, "a").await.as_deref(), Some("a"));
    administrator
        .batch_execute("alter table public.missing rename to behind; create view public.missing as table public.behind")
        .await
        .unwrap();
    assert_eq!(text(&found, "a").await, None);
    let no_login = open(&scratch.endpoint, "anon", SESSION);
    assert_eq!(text(&no_login, "a").await, None);
    // The session of another login could return to the rights of that login
    let elsewhere = Endpoint::parse("postgres://someone@127.0.0.1:1/database").unwrap();
    assert_eq!(text(&open(&elsewhere, "supabase_admin", SESSION), "a").await, None);
    drop((missing, found, no_login, administrator));
    scratch.drop().await;
}

#[tokio::test]
async fn a_batch_that_waits_for_a_lock_delays_no_other_caller() {
    let scratch = Scratch::new().await;
    let mut administrator = connect(&scratch.endpoint).await.unwrap();
    administrator
        .batch_execute("create table public.missing (name text); insert into public.missing values ('a'), ('b')")
        .await
        .unwrap();
    let names = FixedRead::<1>::open(&scratch.endpoint, "supabase_admin", NAMES, Duration::from_millis(20)).unwrap();
    let lock = administrator.transaction().await.unwrap();
    lock.batch_execute("lock table public.missing").await.unwrap();
    let waiting = "select count(*) from pg_locks where relation = 'public.missing'::regclass and not granted";
    for _ in 0..3 {
        within(PATIENCE, async || {
            let found = join_all(["a", "b"].map(|key| text(&names, key))).await;
            assert_eq!(found, [None, None]);
            // Both callers are gone, and the batch of the first one still waits
            (lock.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 1).then_some(())
        })
        .await;
    }
    lock.rollback().await.unwrap();
    // The batch ends, and the next ones are as before
    assert_eq!(within(PATIENCE, async || text(&names, "b").await).await, "b");
    drop((names, administrator));
    scratch.drop().await;
}

#[tokio::test]
async fn a_key_that_postgresql_rejects_leaves_the_read_to_others() {
    let scratch = Scratch::new().await;
    let read = FixedRead::<1>::open(&scratch.endpoint, "supabase_admin", SESSION, PATIENCE).unwrap();
    assert_eq!(text(&read, "\0").await, None);
    assert_eq!(text(&read, "a").await.as_deref(), Some("a off on pg_catalog, pg_temp"));
    drop(read);
    scratch.drop().await;
}
