//! Reads of the program's own, as a role of its own.

use futures_util::future::join_all;
use portico_database::wire::FixedRead;
use portico_database::{Endpoint, connect};

use crate::wire::Scratch;

/// Selects the value and what the session begins with.
const SESSION: &str = "select pg_catalog.concat_ws(' ', $1::pg_catalog.text, pg_catalog.current_setting('row_security'), \
    pg_catalog.current_setting('transaction_read_only'), pg_catalog.current_setting('search_path'))";

async fn text(read: &FixedRead, value: &str) -> Option<String> {
    let rows = read.run([value]).await.unwrap()?;
    Some(String::from_utf8(rows.to_bytes().to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_gets_the_rows_of_its_own_values() {
    let scratch = Scratch::new().await;
    let administrator = connect(&scratch.endpoint).await.unwrap();
    // A login as the role would begin with these
    let role = format!("{}_owner", scratch.endpoint.database());
    let set = "set row_security = on; alter role {} set search_path = public";
    administrator.batch_execute(&format!("create role {role} login")).await.unwrap();
    administrator.batch_execute(&set.replace("{}", &role)).await.unwrap();
    let read = FixedRead::open(&scratch.endpoint, role.clone().leak(), SESSION).unwrap();
    for round in 0..20 {
        let reads = (0..40).map(|caller| {
            let (read, value) = (read.clone(), format!("{round}-{caller}"));
            tokio::spawn(async move { (text(&read, &value).await, value) })
        });
        for outcome in join_all(reads).await {
            let (found, value) = outcome.unwrap();
            assert_eq!(found, Some(format!("{value} off on pg_catalog, pg_temp")));
        }
    }
    read.close();
    administrator.batch_execute(&format!("drop role {role}")).await.unwrap();
    drop((read, administrator));
    scratch.drop().await;
}

#[tokio::test]
async fn a_read_that_postgresql_rejects_is_left_to_another_way() {
    let scratch = Scratch::new().await;
    let open = |endpoint: &Endpoint, role, text| FixedRead::open(endpoint, role, text).unwrap();
    let missing = open(&scratch.endpoint, "supabase_admin", "select name from public.missing where name = $1");
    assert_eq!(text(&missing, "a").await, None);
    // It is not tried again at once
    let administrator = connect(&scratch.endpoint).await.unwrap();
    administrator
        .batch_execute("create table public.missing (name text); insert into public.missing values ('a')")
        .await
        .unwrap();
    assert_eq!(text(&missing, "a").await, None);
    let found = open(&scratch.endpoint, "supabase_admin", "select name from public.missing where name = $1");
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
