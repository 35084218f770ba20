//! The fence on servers of others, where the login is a superuser: attacks from the sessions in
//! which SQL of a project runs, and through what a project attaches to the services' tables.

use portico_database::wire::{Access, Batch, Pool, Statement, WirePoolSettings};
use portico_database::{BootstrapSettings, Database, connect};
use tokio_postgres::Client;

use super::bootstrap::{column, majors, value};
use super::external::{set_up, start};
use super::fence::{PAYLOAD, STRIKES};
use super::fence_bootstrap::{PARTITIONS, TABLES};

use crate::AUTH;

/// Fails when an attack went through.
async fn holds(admin: &Client, attack: &str) {
    let superusers = "select rolname from pg_catalog.pg_roles where rolsuper and rolcanlogin order by 1";
    assert_eq!(column(admin, superusers).await, ["postgres", "supabase_admin"], "{attack}");
    assert_eq!(value(admin, STRIKES).await, "0", "{attack}");
}

/// Ways out of a role, each of which any function can run.
const WAYS_OUT: [&str; 8] = [
    "reset role",
    "set role none",
    "reset session authorization",
    "set session authorization default",
    "set session authorization postgres",
    "select set_config('role', 'none', false)",
    "select set_config('session_authorization', 'default', false)",
    "discard all",
];

async fn attacks(client: &Client, admin: &Client, what: &str) {
    for way in WAYS_OUT {
        let _ = client.batch_execute(way).await;
        client.batch_execute("select public.payload()").await.unwrap();
        let escape = format!("do $$ begin execute $way${way}$way$; perform public.strike(); end $$");
        let _ = client.batch_execute(&escape).await;
        holds(admin, &format!("{way} {what}")).await;
    }
    let mighty = "select bool_or(rolsuper or rolreplication) from pg_roles where rolname = session_user";
    assert_eq!(value(client, mighty).await, "f", "{what}");
    for statement in [
        "create temporary table t (x text); copy t from program 'id'",
        "select pg_read_file('/etc/passwd')",
        "grant pg_execute_server_program to current_user",
        "alter role postgres password 'mine'",
        "grant postgres to portico_owner",
        "select * from portico.vault_key",
        "select portico.read_vault_key()",
        "select rolpassword from pg_authid",
    ] {
        client.batch_execute(statement).await.expect_err(&format!("{statement} {what}"));
    }
    holds(admin, what).await;
}

async fn attacked(database: &Database, admin: &Client, major: u32) {
    let mut session = database.migrations().await.unwrap();
    session.batch(PAYLOAD).await.unwrap();
    session.batch("grant usage on schema public to supabase_auth_admin").await.unwrap();
    attacks(&database.acting_as("authenticator").await.unwrap(), admin, &format!("in a session of the API on {major}"))
        .await;
    attacks(&database.pool(AUTH).client().await.unwrap(), admin, &format!("in the auth service on {major}")).await;
    attacks(session.client(), admin, &format!("in a migration on {major}")).await;
    // The data API's own client
    let pool = Pool::open(database.endpoint(), "authenticator", WirePoolSettings::default()).unwrap();
    for way in WAYS_OUT {
        let mut connection = pool.checkout().await.unwrap();
        let escape = format!("do $$ begin execute $way${way}$way$; perform public.strike(); end $$");
        for sql in [&*escape, "select public.payload()"] {
            let batch = Batch::new().statement(Statement::unnamed(sql, &[]));
            let _ = connection.run(&batch.ending(Access::ReadWrite)).await;
        }
        drop(connection);
        holds(admin, &format!("{way} in a request on {major}")).await;
    }
    pool.close();
}

#[tokio::test]
async fn no_session_of_a_project_returns_to_a_superuser() {
    for major in majors() {
        let server = start(major).await;
        let admin = connect(&server.superuser("postgres")).await.unwrap();
        admin.batch_execute("create database fenced template template0").await.unwrap();
        let admin = connect(&server.superuser("fenced")).await.unwrap();
        let database = set_up(&server.superuser("fenced"), &format!("on {major}")).await;
        attacked(&database, &admin, major).await;
    }
}

#[tokio::test]
async fn the_bootstrap_of_a_server_of_others_runs_nothing_of_a_project_as_superuser() {
    for major in majors() {
        let server = start(major).await;
        let admin = connect(&server.superuser("postgres")).await.unwrap();
        admin.batch_execute("create database fenced template template0").await.unwrap();
        let admin = connect(&server.superuser("fenced")).await.unwrap();
        let database = set_up(&server.superuser("fenced"), &format!("on {major}")).await;
        let mut session = database.migrations().await.unwrap();
        session.batch(PAYLOAD).await.unwrap();
        for traps in [TABLES, PARTITIONS] {
            session.batch(traps).await.unwrap();
            admin.batch_execute("delete from portico.bootstrap").await.unwrap();
            let outcome = database.bootstrap(&BootstrapSettings::default()).await;
            holds(&admin, &format!("the bootstrap on {major}: {outcome:?}")).await;
            let outcome = database.maintain_message_partitions().await;
            holds(&admin, &format!("the partitions on {major}: {outcome:?}")).await;
        }
    }
}

/// A server whose rules know the superuser only.
#[tokio::test]
async fn a_server_that_refuses_our_logins_is_named_with_the_remedy() {
    let server = start(18).await;
    let admin = connect(&server.superuser("postgres")).await.unwrap();
    admin.batch_execute("create database closed template template0").await.unwrap();
    server.set_rules("host all postgres 127.0.0.1/32 scram-sha-256\n").await.unwrap();
    admin.batch_execute("create role anybody login password 'x'").await.unwrap();
    let is_open = async || connect(&server.login("anybody", "x", "closed")).await.is_ok();
    super::cluster::within(std::time::Duration::from_secs(60), async || (!is_open().await).then_some(())).await;
    let endpoint = server.superuser("closed");
    let database = set_up(&endpoint, "without rules for us").await;
    let missing = database.limitations();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].effect.contains("reset role") && missing[0].why.contains("pg_hba"), "{missing:?}");
    let rule = missing[0].remedy.lines().find_map(|line| line.strip_prefix("--   ")).unwrap().to_owned();
    // It works, without the fence
    assert_eq!(value(database.migrations().await.unwrap().client(), "select current_user").await, "portico_owner");
    drop(database.pool(AUTH).client().await.unwrap());
    let acting = database.acting_as("authenticator").await.unwrap();
    assert_eq!(value(&acting, "reset role; select current_user").await, "postgres");

    // With the rule that was named, the next start needs nothing more
    server.set_rules(&format!("{rule}\nhost all all 127.0.0.1/32 scram-sha-256\n")).await.unwrap();
    super::cluster::within(std::time::Duration::from_secs(60), async || is_open().await.then_some(())).await;
    assert_eq!(set_up(&endpoint, "with the rule").await.limitations(), []);
}
