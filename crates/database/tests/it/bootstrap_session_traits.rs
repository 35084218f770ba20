//! The lists of functions that decide how much of a session is taken back (`wire::session`).

use portico_database::wire::FunctionTraits;
use tokio_postgres::Client;

use super::bootstrap::{majors, ready};

const NONE: FunctionTraits = FunctionTraits { folds: false, prepares: false };

/// The functions in a list, by name.
async fn listed(client: &Client, list: &str) -> Vec<String> {
    let text =
        format!("select p.proname::text from portico_session.{list} join pg_proc as p on p.oid = function order by 1");
    client.query(&text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn functions_are_listed_in_the_transaction_that_changes_them() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        // None of our own functions counts
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), NONE, "{major}");
        client
            .batch_execute(
                "begin;
                 create function plain() returns int stable language sql as 'select 1';
                 create function folded() returns int immutable language sql as 'select 1';
                 create function dynamic(text) returns void language plpgsql as $$ begin execute $1; end $$;
                 create aggregate summed(int) (sfunc = int4pl, stype = int)",
            )
            .await
            .unwrap();
        assert_eq!(listed(&client, "folding").await, ["folded"], "{major}");
        assert_eq!(listed(&client, "preparing").await, ["dynamic"], "{major}");
        client.batch_execute("commit").await.unwrap();
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), FunctionTraits::UNKNOWN, "{major}");
        client
            .batch_execute(
                "alter function plain() immutable;
                 alter function folded() stable;
                 create or replace function dynamic(text) returns void language plpgsql as $$ begin perform 1; end $$",
            )
            .await
            .unwrap();
        assert_eq!(listed(&client, "folding").await, ["plain"], "{major}");
        assert!(listed(&client, "preparing").await.is_empty(), "{major}");
        // Also what a superuser does where a replica switches other event triggers off
        client
            .batch_execute(
                "set session_replication_role = replica;
                 create function storage.foldername(int) returns int immutable language sql as 'select 1';
                 reset session_replication_role; drop function plain()",
            )
            .await
            .unwrap();
        assert_eq!(listed(&client, "folding").await, ["foldername"], "{major}");
        client.batch_execute("drop function storage.foldername(int)").await.unwrap();
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), NONE, "{major}");
        // The functions of an extension, which its script makes
        client.batch_execute("create extension earthdistance schema public cascade").await.unwrap();
        assert!(listed(&client, "folding").await.contains(&"earth".to_owned()), "{major}");
        client.batch_execute("drop extension earthdistance").await.unwrap();
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), NONE, "{major}");
    }
}

#[tokio::test]
async fn without_event_triggers_nothing_is_taken_for_granted() {
    let database = ready(18).await;
    let client = database.administrator().await.unwrap();
    client.batch_execute("drop event trigger portico_functions_dropped").await.unwrap();
    assert_eq!(FunctionTraits::load(&client).await.unwrap(), FunctionTraits::UNKNOWN);
}

#[tokio::test]
async fn a_role_of_the_project_cannot_change_the_lists() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        client
            .batch_execute("create function folded() returns int immutable language sql as 'select 1'")
            .await
            .unwrap();
        client.batch_execute("set session authorization postgres").await.unwrap();
        for attempt in [
            "delete from portico_session.folding",
            "insert into portico_session.reviewed values ('public.folded', md5('select 1'))",
            "drop event trigger portico_functions_changed",
            "alter event trigger portico_functions_changed disable",
            "alter schema portico_session rename to other",
            "create or replace function portico_session.watch_functions() returns event_trigger language plpgsql as 'begin end'",
            "drop view portico_session.traits",
        ] {
            let error = client.batch_execute(attempt).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{major} {attempt}: {error:?}");
        }
        assert_eq!(listed(&client, "folding").await, ["folded"], "{major}");
    }
}
