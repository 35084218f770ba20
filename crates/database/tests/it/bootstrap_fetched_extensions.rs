//! The extensions that PostgreSQL's npm package lacks and `scripts/extensions` fetches, and what a
//! created extension belongs to.

use std::fs;
use std::path::Path;

use portico_database::cluster::{Cluster, Durability};
use portico_database::scratch::ClusterFolder;
use portico_database::{BootstrapSettings, connect};
use tokio_postgres::Client;

use super::bootstrap::{column, open, ready, refusal, value};
use super::cluster::reachable;

/// Returns a client of the project, not of the session that runs migrations.
async fn plain(database: &portico_database::Database) -> Client {
    connect(&database.endpoint().with_user("postgres", None)).await.unwrap()
}

/// Fails with an explanation where the extensions are not there.
async fn require(client: &Client, name: &str) {
    let available = format!("select count(*) from pg_available_extensions where name = '{name}'");
    assert_eq!(value(client, &available).await, "1", "{name} is missing: run `make extensions`");
}

#[tokio::test]
async fn vectors_are_stored_indexed_and_searched() {
    let database = ready(18).await;
    let client = plain(&database).await;
    require(&client, "vector").await;
    client
        .batch_execute(
            "create extension vector with schema extensions;
             set search_path = public, extensions;
             create table items (id int primary key, embedding extensions.vector(3));
             insert into items select n, format('[%s,%s,1]', n, 100 - n)::vector from generate_series(1, 100) as n;
             create index items_hnsw on items using hnsw (embedding vector_l2_ops);
             create index items_ivfflat on items using ivfflat (embedding vector_cosine_ops) with (lists = 4);
             set ivfflat.probes = 4; set enable_seqscan = off; set enable_sort = off",
        )
        .await
        .unwrap();
    for (operator, index) in [("<->", "items_hnsw"), ("<=>", "items_ivfflat")] {
        let nearest = format!("select id from items order by embedding {operator} '[42,58,1]' limit 1");
        assert_eq!(value(&client, &nearest).await, "42");
        let plan = column(&client, &format!("explain {nearest}")).await.join("\n");
        assert!(plan.contains(index), "{plan}");
    }
}

#[tokio::test]
async fn a_migration_that_asks_for_a_version_gets_the_one_that_is_there() {
    let database = ready(18).await;
    let mut session = database.migrations().await.unwrap();
    require(session.client(), "vector").await;
    for statement in [
        "create extension if not exists \"vector\" with schema \"public\" version '0.4.0';",
        "create extension if not exists pg_trgm version '0.1' schema extensions cascade",
        "create extension moddatetime version \"9\" with schema extensions",
    ] {
        session.batch(statement).await.unwrap_or_else(|error| panic!("{statement}\n{error:?}"));
    }
    assert_eq!(
        value(session.client(), "select count(*) from pg_extension where extname in ('vector', 'pg_trgm')").await,
        "2"
    );
}

#[tokio::test]
async fn a_test_file_of_pgtap_runs() {
    let database = ready(18).await;
    let client = plain(&database).await;
    require(&client, "pgtap").await;
    let file = "begin;
        create extension if not exists pgtap with schema extensions;
        set local search_path = public, extensions;
        create table public.notes (id bigint primary key, owner uuid);
        alter table public.notes enable row level security;
        select plan(4);
        select has_table('public', 'notes', 'notes exist');
        select col_is_pk('notes', 'id');
        select policies_are('public', 'notes', array[]::name[]);
        set local role authenticated;
        set local request.jwt.claims to '{\"sub\":\"11111111-1111-4111-8111-111111111111\",\"role\":\"authenticated\"}';
        select throws_ok('insert into public.notes values (1)', '42501');
        reset role;
        select * from finish();
        rollback;";
    let lines: Vec<String> =
        column(&client, file).await.into_iter().filter(|line| line.contains("ok ") || line.contains("..")).collect();
    assert_eq!(
        lines.iter().map(|line| &line[..4]).collect::<Vec<_>>(),
        ["1..4", "ok 1", "ok 2", "ok 3", "ok 4"],
        "{lines:?}"
    );
}

#[tokio::test]
async fn queues_of_pgmq_work() {
    let database = ready(18).await;
    let client = plain(&database).await;
    require(&client, "pgmq").await;
    client.batch_execute("create extension pgmq; select pgmq.create('jobs')").await.unwrap();
    client.batch_execute("select pgmq.send('jobs', '{\"n\": 1}')").await.unwrap();
    assert_eq!(value(&client, "select message ->> 'n' from pgmq.read('jobs', 30, 1)").await, "1");
}

#[tokio::test]
async fn statements_are_counted() {
    let database = ready(18).await;
    let client = plain(&database).await;
    client.batch_execute("select extensions.pg_stat_statements_reset()").await.unwrap();
    client.batch_execute("select 1 as a_column_of_this_test").await.unwrap();
    let calls = "select calls from extensions.pg_stat_statements where query like '%a\\_column\\_of\\_this\\_test%' and query not like '%calls%'";
    assert_eq!(value(&client, calls).await, "1");
}

#[tokio::test]
async fn the_objects_of_an_extension_belong_to_the_superuser_and_are_granted_to_the_project() {
    let database = ready(18).await;
    let client = plain(&database).await;
    require(&client, "vector").await;
    client
        .batch_execute(
            "create extension vector; create extension pg_trgm with schema extensions; create extension moddatetime with schema extensions;
             create extension pgjwt with schema extensions; create extension pg_cron; create extension pgtap with schema extensions",
        )
        .await
        .unwrap();
    // Of the extensions that exist from the start as well
    let owners = "select distinct e.extname || ' ' || p.proowner::regrole
                    from pg_extension as e join pg_depend as d on d.refobjid = e.oid and d.deptype = 'e' and d.classid = 'pg_proc'::regclass
                    join pg_proc as p on p.oid = d.objid
                   where e.extname in ('vector', 'pg_trgm', 'moddatetime', 'pgcrypto', 'uuid-ossp', 'pg_stat_statements',
                                       'pgjwt', 'pg_cron', 'pg_net', 'supabase_vault', 'pgtap') order by 1";
    assert_eq!(
        column(&client, owners).await,
        [
            "moddatetime supabase_admin",
            "pg_cron supabase_admin",
            "pg_net supabase_admin",
            "pg_stat_statements supabase_admin",
            "pg_trgm supabase_admin",
            "pgcrypto supabase_admin",
            "pgjwt supabase_admin",
            // Its script does not run with a superuser's rights
            "pgtap postgres",
            // The role whose only rights are those on the vault
            "supabase_vault portico_vault",
            "supabase_vault supabase_admin",
            "uuid-ossp supabase_admin",
            "vector supabase_admin"
        ]
    );
    for role in ["anon", "authenticated", "service_role"] {
        let distance = format!("set role {role}; select '[1,2]'::vector <-> '[1,3]'; reset role");
        assert_eq!(value(&client, &distance).await, "1", "{role}");
    }
    // The extension itself is the project's to drop
    client.batch_execute("drop extension vector; drop extension moddatetime").await.unwrap();
    assert_eq!(refusal(&client, "alter function extensions.similarity(text, text) volatile").await.0, "42501");
}

/// Returns a server that has extensions which the hosted service offers and PostgreSQL's
/// distribution lacks.
async fn with_system_extensions(folder: &Path) -> (Cluster, portico_database::Database) {
    let extensions = folder.join("system/extension");
    fs::create_dir_all(&extensions).unwrap();
    for (name, control, script) in [
        (
            "http",
            "",
            "create function http_get(text) returns text language sql as 'select $1'; select http_get('x'::varchar);",
        ),
        (
            "postgis",
            "schema = 'gis'",
            "create type geometry; create function version() returns text language sql return 'v'",
        ),
        ("pgrouting", "requires = 'postgis'", "create function route() returns int language sql return 1"),
        ("file_reader", "", "select 1"),
    ] {
        fs::write(extensions.join(format!("{name}.control")), format!("default_version = '1'\n{control}\n")).unwrap();
        fs::write(extensions.join(format!("{name}--1.sql")), script).unwrap();
    }
    let places = format!("{}:$system", folder.join("system").display());
    let cluster = reachable(folder, |settings| {
        settings.durability = Durability::Off;
        settings.parameters = vec![("extension_control_path".into(), places.clone())];
    })
    .await;
    let database = open(&cluster.endpoint());
    database.bootstrap(&BootstrapSettings::default()).await.unwrap();
    (cluster, database)
}

#[tokio::test]
async fn extensions_of_the_system_are_created_where_the_project_has_put_nothing() {
    let folder = ClusterFolder::new();
    let (cluster, database) = with_system_extensions(folder.path()).await;
    let mut session = database.migrations().await.unwrap();
    // A function that the script would prefer, with a superuser's rights
    session
        .batch(
            "create schema taken; create function taken.http_get(varchar) returns text language plpgsql as
             $$ begin alter role postgres superuser; return ''; end $$",
        )
        .await
        .unwrap();
    for (statement, expected) in [
        ("create extension http with schema taken", "extension \"http\" cannot be created beside "),
        ("create extension pgrouting", "extension \"pgrouting\" requires the extension \"postgis\""),
        ("create extension file_reader", "permission denied to create extension \"file_reader\""),
        ("create extension plv8", "extension \"plv8\" is not available"),
        // There is no script that could find the function
        ("create extension plv8 with schema taken", "extension \"plv8\" is not available"),
    ] {
        let error = session.batch(statement).await.expect_err(statement);
        let message = error.as_db_error().unwrap().message();
        assert!(message.starts_with(expected), "{message}");
    }
    // The advice names a schema that is free
    for (schema, advice) in [
        ("taken", "create extension http with schema extensions"),
        ("extensions", "create schema http; create extension http with schema http"),
    ] {
        session.batch("begin").await.unwrap();
        session.batch("create function extensions.of_project() returns int language sql return 1").await.unwrap();
        let error = session.batch(&format!("create extension http with schema {schema}")).await.unwrap_err();
        let hint = error.as_db_error().unwrap().hint().unwrap().to_owned();
        assert!(hint.ends_with(&format!("Choose another schema: {advice};")), "{hint}");
        session.batch("rollback").await.unwrap();
    }
    for statement in [
        "create extension if not exists http with schema extensions version '1.6'",
        "create extension postgis",
        "create extension pgrouting with schema extensions cascade",
        "drop extension pgrouting",
        "create extension pgrouting",
        "create extension if not exists postgis with schema public",
        "drop extension http",
    ] {
        session.batch(statement).await.unwrap_or_else(|error| panic!("{statement}\n{error:?}"));
    }
    // A check of an older state of the catalog could miss what another session has added since
    let (code, _) =
        refusal(session.client(), "begin isolation level repeatable read; select portico.run('create extension http')")
            .await;
    assert_eq!(code, "25001");
    session.client().batch_execute("rollback").await.unwrap();
    let owner = "select proowner::regrole from pg_proc where proname = 'route'";
    assert_eq!(value(session.client(), owner).await, "supabase_admin");
    assert_eq!(value(session.client(), "select rolsuper from pg_roles where rolname = 'postgres'").await, "f");
    drop(session);
    cluster.stop().await;
}
