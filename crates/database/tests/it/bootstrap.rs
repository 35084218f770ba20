//! The bootstrap as a whole: what it costs, that it can be repeated, that it takes over what is
//! there, and its settings.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use portico_database::cluster::{Cluster, ClusterSettings, Durability};
use portico_database::scratch::{ClusterFolder, start_cluster};
use portico_database::{
    BootstrapSettings, Database, DatabaseError, Endpoint, Password, PoolSettings, connect, scratch,
};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::AUTH;

/// A server with a template database that the bootstrap has filled once.
struct Server {
    cluster: Cluster,
    _folder: ClusterFolder,
}

static NEWEST: OnceCell<Server> = OnceCell::const_new();
static OLDEST: OnceCell<Server> = OnceCell::const_new();
/// Roles belong to the whole server: what changes them has servers of its own.
static NEWEST_APART: OnceCell<Server> = OnceCell::const_new();
static OLDEST_APART: OnceCell<Server> = OnceCell::const_new();
static NEXT: AtomicUsize = AtomicUsize::new(0);
const TEMPLATE: &str = "bootstrapped";

/// Returns the version that we embed and, where one is installed, an older one.
#[allow(clippy::print_stderr)]
pub(crate) fn majors() -> impl Iterator<Item = u32> {
    let older = scratch::older_binaries();
    if older.is_none() {
        eprintln!("PostgreSQL 15 is not installed (scripts/setup test does that): only 18 is tested");
    }
    [Some(18), older.map(|older| older.major())].into_iter().flatten()
}

pub(crate) fn old_binaries() -> PathBuf {
    scratch::older_binaries().expect("an older PostgreSQL").folder().to_owned()
}

async fn server(major: u32) -> &'static Server {
    started(if major == 18 { &NEWEST } else { &OLDEST }, major).await
}

async fn started(cell: &'static OnceCell<Server>, major: u32) -> &'static Server {
    let binaries = (major != 18).then(old_binaries);
    cell.get_or_init(|| async move {
        let folder = ClusterFolder::new();
        let settings = ClusterSettings {
            binaries,
            durability: Durability::Off,
            ..ClusterSettings::new(folder.path().join("database"))
        };
        let cluster = start_cluster(settings).await.unwrap();
        assert_eq!(cluster.major_version(), major);
        let server = Server { cluster, _folder: folder };
        let template = empty_on(&server, TEMPLATE).await;
        open(&template).bootstrap(&BootstrapSettings::default()).await.unwrap();
        server
    })
    .await
}

async fn empty_on(server: &Server, name: &str) -> Endpoint {
    let admin = connect(&server.cluster.endpoint()).await.unwrap();
    admin.batch_execute(&format!("create database {name} template template0")).await.unwrap();
    server.cluster.endpoint().with_database(name)
}

fn unique_name() -> String {
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn open(endpoint: &Endpoint) -> Database {
    Database::open(endpoint, PoolSettings::default()).unwrap()
}

/// Returns a database without objects of Portico.
pub(crate) async fn empty(major: u32) -> Database {
    open(&empty_on(server(major).await, &unique_name()).await)
}

/// Returns a database that the bootstrap has filled.
pub(crate) async fn ready(major: u32) -> Database {
    let admin = server(major).await.cluster.endpoint();
    open(&scratch::clone_database(&admin, TEMPLATE, &unique_name()).await.unwrap())
}

/// Held while a test grants or sets a role of the servers of `ready_apart`: roles belong to the
/// whole server, and PostgreSQL fails one of two sessions that change one at the same moment.
pub(crate) static ROLES_APART: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Like [`ready`], but on a server whose roles no other test looks at.
pub(crate) async fn ready_apart(major: u32) -> Database {
    let admin = started(if major == 18 { &NEWEST_APART } else { &OLDEST_APART }, major).await.cluster.endpoint();
    open(&scratch::clone_database(&admin, TEMPLATE, &unique_name()).await.unwrap())
}

/// Returns the first column of the rows of the last statement that has any, as text.
pub(crate) async fn column(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("<null>").to_owned()),
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}

/// Returns the one value of a query, as text.
pub(crate) async fn value(client: &Client, sql: &str) -> String {
    let rows = column(client, sql).await;
    assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
    rows[0].clone()
}

/// Returns the SQLSTATE and message of a statement that must fail.
pub(crate) async fn refusal(client: &Client, sql: &str) -> (String, String) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}\n{error:?}"));
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Returns everything that the bootstrap can have an influence on, one line an object.
async fn catalog(client: &Client) -> Vec<String> {
    column(client, concat!("set search_path = ''; ", include_str!("contract/catalog.sql"))).await
}

fn difference(left: &[String], right: &[String]) -> Vec<String> {
    let without = |these: &[String], those: &[String], sign| {
        these.iter().filter(|line| !those.contains(line)).map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [without(left, right, "-"), without(right, left, "+")].concat()
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        let before = catalog(&client).await;
        assert!(before.len() > 500, "only {} lines", before.len());
        client.batch_execute("delete from portico.bootstrap").await.unwrap();
        database.bootstrap(&BootstrapSettings::default()).await.unwrap();
        let after = catalog(&client).await;
        assert_eq!(difference(&before, &after), Vec::<String>::new(), "on {major}");
    }
}

#[tokio::test]
async fn a_warm_start_writes_nothing() {
    let database = ready(18).await;
    let client = database.administrator().await.unwrap();
    let before = value(&client, "select pg_current_wal_insert_lsn()::text || done_at from portico.bootstrap").await;
    // Any statement that changes the catalog would be refused
    client
        .batch_execute(&format!(
            "alter database {} set default_transaction_read_only = on",
            database.endpoint().database()
        ))
        .await
        .unwrap();
    database.bootstrap(&BootstrapSettings::default()).await.unwrap();
    let done_at = value(&client, "select done_at::text from portico.bootstrap").await;
    assert!(before.ends_with(&done_at));
}

#[tokio::test]
async fn bootstraps_that_meet_all_succeed() {
    for major in majors() {
        let (one, other) = (empty(major).await, empty(major).await);
        let settings = BootstrapSettings::default();
        let (a, b, c, d) = tokio::join!(
            one.bootstrap(&settings),
            one.bootstrap(&settings),
            other.bootstrap(&settings),
            other.bootstrap(&settings),
        );
        for outcome in [a, b, c, d] {
            outcome.unwrap_or_else(|error| panic!("on {major}: {error}"));
        }
    }
}

/// A database of an older version or of the hosted service: old columns, missing objects, rows.
const OLDER: &str = r#"
    create schema auth authorization supabase_admin;
    grant all on schema auth to supabase_auth_admin;
    set role supabase_auth_admin;
    create type auth.factor_type as enum ('totp', 'webauthn');
    create table auth.schema_migrations (version varchar(255) not null primary key);
    insert into auth.schema_migrations values ('20171026211738'), ('20230116124310');
    create table auth.users (
      instance_id uuid, id uuid not null unique, aud varchar(255), role varchar(255), email varchar(255) unique,
      encrypted_password varchar(255), raw_user_meta_data jsonb, created_at timestamptz, updated_at timestamptz,
      constraint users_pkey primary key (id));
    insert into auth.users (id, email) values ('11111111-1111-4111-8111-111111111111', 'old@example.com');
    create function auth.uid() returns uuid language sql stable as 'select null::uuid';
    reset role;
    alter function auth.uid() owner to postgres;
    create schema storage authorization supabase_admin;
    create function storage.search(prefix text, bucketname text, limits int default 100, levels int default 1, offsets int default 0)
      returns table (name text) language sql as 'select null';
    create function storage.get_size_by_bucket() returns table (size numeric, bucket_id text) language sql as 'select 1.0, null';
    create function storage.extension(path text) returns text language sql as 'select path';
    create table storage.objects (id uuid primary key default gen_random_uuid(), bucket_id text, name text, owner uuid, level int);
    create policy kept on storage.objects for select using (auth.uid() is not null);
    create publication supabase_realtime;
    create table public.own (id int primary key, who uuid references auth.users (id));
    insert into public.own values (1, '11111111-1111-4111-8111-111111111111');
    alter publication supabase_realtime add table public.own;
    grant all on public.own to anon;
"#;

#[tokio::test]
async fn existing_objects_are_adopted_and_kept() {
    for major in majors() {
        let database = empty(major).await;
        let client = database.administrator().await.unwrap();
        client.batch_execute(OLDER).await.unwrap();
        database.bootstrap(&BootstrapSettings::default()).await.unwrap_or_else(|error| panic!("on {major}: {error}"));
        assert_eq!(
            value(&client, "select email || ' ' || is_anonymous || ' ' || phone_change from auth.users").await,
            "old@example.com false "
        );
        assert_eq!(value(&client, "select count(*) from public.own join auth.users on who = auth.users.id").await, "1");
        assert_eq!(
            value(
                &client,
                "select string_agg(tablename, ',') from pg_publication_tables where pubname = 'supabase_realtime'"
            )
            .await,
            "own"
        );
        assert_eq!(value(&client, "select enum_range(null::auth.factor_type)::text").await, "{totp,webauthn,phone}");
        assert_eq!(
            value(
                &client,
                "set request.jwt.claims = '{\"sub\":\"11111111-1111-4111-8111-111111111111\"}'; select auth.uid()"
            )
            .await,
            "11111111-1111-4111-8111-111111111111"
        );
        assert_eq!(
            value(&client, "select pg_get_userbyid(relowner) from pg_class where oid = 'storage.objects'::regclass")
                .await,
            "supabase_storage_admin"
        );
        assert_eq!(value(&client, "select count(*) from pg_policy where polname = 'kept'").await, "1");
        assert_eq!(value(&client, "select storage.extension('a.b')").await, "b");
        // Nothing of a fresh database is missing now
        let fresh = ready(major).await;
        let fresh = catalog(&fresh.administrator().await.unwrap()).await;
        let upgraded = catalog(&client).await;
        let missing: Vec<_> = difference(&fresh, &upgraded)
            .into_iter()
            // A column that came later stands further right
            .filter(|line| {
                line.starts_with('-')
                    && !line.starts_with("- column auth.users ")
                    && !line.starts_with("- column storage.objects ")
            })
            .collect();
        assert_eq!(missing, Vec::<String>::new(), "on {major}");
    }
}

#[tokio::test]
async fn changed_migrations_of_our_own_are_refused() {
    let database = ready(18).await;
    let client = database.administrator().await.unwrap();
    client
        .batch_execute("delete from portico.bootstrap; update portico.schema_migrations set checksum = 'x' where name = '0003_mail_outbox'")
        .await
        .unwrap();
    let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err();
    let is_of = |error: &DatabaseError, name: &str, program: &str| matches!(error, DatabaseError::Refused(text) if text.contains(name) && text.contains(program));
    assert!(is_of(&error, "0003_mail_outbox", "unreleased program"), "{error}");
    client
        .batch_execute("delete from portico.schema_migrations where name = '0003_mail_outbox'; insert into portico.schema_migrations values ('9999_future', 'x')")
        .await
        .unwrap();
    let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err();
    assert!(is_of(&error, "9999_future", "newer version"), "{error}");
    client
        .batch_execute("update portico.schema_migrations set name = '0002_project' where name = '9999_future'")
        .await
        .unwrap();
    let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err();
    assert!(is_of(&error, "0002_project", "unreleased program"), "{error}");
}

#[tokio::test]
async fn new_tables_are_exposed_or_kept_as_the_project_says() {
    const PRIVILEGES: &str = "select string_agg(privilege, ',' order by privilege) from unnest('{select,insert,update,delete,references,trigger,truncate}'::text[]) as privilege
        where has_table_privilege('anon', 'public.t', privilege)";
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        session.batch("create table public.t (id serial primary key); create function public.f() returns int language sql as 'select 1'").await.unwrap();
        assert_eq!(
            value(session.client(), PRIVILEGES).await,
            "delete,insert,references,select,trigger,truncate,update"
        );
        session.batch("drop table public.t").await.unwrap();
        let kept = BootstrapSettings { auto_expose_new_tables: false, ..BootstrapSettings::default() };
        database.bootstrap(&kept).await.unwrap();
        session.batch("create table public.t (id serial primary key)").await.unwrap();
        assert_eq!(value(session.client(), PRIVILEGES).await, "references,trigger,truncate");
        assert_eq!(
            value(session.client(), "select has_sequence_privilege('anon', 'public.t_id_seq', 'usage')").await,
            "f"
        );
        let (code, _) = refusal(session.client(), "begin; set local role authenticated; select * from public.t").await;
        assert_eq!(code, "42501");
        session.rollback().await.unwrap();
        database.bootstrap(&BootstrapSettings::default()).await.unwrap();
        session.batch("create table public.t2 (id int)").await.unwrap();
        assert_eq!(value(session.client(), "select has_table_privilege('anon', 'public.t2', 'select')").await, "t");
    }
}

#[tokio::test]
async fn settings_reach_the_database() {
    let database = ready_apart(18).await;
    let settings = BootstrapSettings {
        jwt_secret: Some(Password::new("it's a \\ secret")),
        jwt_expiry: std::time::Duration::from_secs(120),
        role_passwords: vec![("pgbouncer".into(), Password::new("pw"))],
        secure_new_tables: true,
        ..BootstrapSettings::default()
    };
    database.bootstrap(&settings).await.unwrap();
    let client = database.administrator().await.unwrap();
    assert_eq!(value(&client, "select current_setting('app.settings.jwt_secret')").await, "it's a \\ secret");
    assert_eq!(value(&client, "select current_setting('app.settings.jwt_exp')").await, "120");
    assert!(
        value(&client, "select rolpassword from pg_authid where rolname = 'pgbouncer'")
            .await
            .starts_with("SCRAM-SHA-256$")
    );
    let mut session = database.migrations().await.unwrap();
    session.batch("create table public.guarded (id int)").await.unwrap();
    assert_eq!(value(&client, "select relrowsecurity from pg_class where oid = 'public.guarded'::regclass").await, "t");
    assert!(!format!("{settings:?}").contains("secret\\"));
}

#[tokio::test]
async fn a_database_is_made_anew() {
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        session.batch("create table public.gone (id int)").await.unwrap();
        let pooled = database.login_client().await.unwrap();
        drop(pooled);
        database.recreate(&BootstrapSettings::default()).await.unwrap();
        let client = database.administrator().await.unwrap();
        assert_eq!(
            value(&client, "select to_regclass('public.gone') is null and to_regclass('auth.users') is not null").await,
            "t"
        );
        assert_eq!(
            value(&client, "select pg_get_userbyid(datdba) from pg_database where datname = current_database()").await,
            "postgres"
        );
        database.login_client().await.unwrap().query("select 1", &[]).await.unwrap();
    }
}

/// Returns a cluster whose roles a test may spoil.
pub(crate) async fn own_cluster(major: u32) -> (Cluster, ClusterFolder) {
    let folder = ClusterFolder::new();
    let settings = ClusterSettings {
        binaries: (major != 18).then(old_binaries),
        durability: Durability::Off,
        ..ClusterSettings::new(folder.path().join("database"))
    };
    (start_cluster(settings).await.unwrap(), folder)
}

/// Lets this process through the socket as `role`, which before PostgreSQL 16 only the roles of the
/// map may.
async fn let_in(cluster: &Cluster, folder: &ClusterFolder, role: &str) {
    let data = folder.path().join("database/pgdata");
    let (rules, map) = (data.join("pg_hba.conf"), data.join("pg_ident.conf"));
    let old = std::fs::read_to_string(&map).unwrap();
    let user = old.split_whitespace().nth(1).unwrap();
    std::fs::write(&map, format!("{old}portico {user} {role}\n")).unwrap();
    let old = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(&rules, format!("local all {role} peer map=portico\n{old}")).unwrap();
    connect(&cluster.endpoint()).await.unwrap().batch_execute("select pg_reload_conf()").await.unwrap();
}

/// A server of one's own, where `postgres` is the superuser, as it usually is.
#[tokio::test]
async fn a_superuser_called_postgres_stays_one() {
    for major in majors() {
        let (cluster, _folder) = own_cluster(major).await;
        let admin = connect(&cluster.endpoint()).await.unwrap();
        admin.batch_execute("create role postgres superuser login").await.unwrap();
        admin.batch_execute("create database app owner postgres template template0").await.unwrap();
        drop(admin);
        let database = open(&cluster.endpoint().with_database("app").with_user("postgres", None));
        database.bootstrap(&BootstrapSettings::default()).await.unwrap_or_else(|error| panic!("on {major}: {error}"));
        let mut session = database.migrations().await.unwrap();
        session.batch("create event trigger t on sql_drop execute function public.rls_auto_enable()").await.unwrap();
        session.batch("create table public.t (id int); drop event trigger t").await.unwrap();
        assert_eq!(value(session.client(), "select rolsuper and has_table_privilege('anon', 'public.t', 'select') from pg_roles where rolname = 'postgres'").await, "t");
        assert_eq!(value(session.client(), "show search_path").await, r#""\$user", public, extensions"#);
        assert_eq!(
            value(
                session.client(),
                "select pg_get_userbyid(relowner) from pg_class where oid = 'auth.users'::regclass"
            )
            .await,
            "supabase_auth_admin"
        );
        cluster.stop().await;
    }
}

/// A managed server: the login may make roles and databases, and is no superuser.
#[tokio::test]
async fn a_login_without_superuser_rights_gets_what_it_may_have() {
    for major in majors() {
        let (cluster, folder) = own_cluster(major).await;
        let admin = connect(&cluster.endpoint()).await.unwrap();
        admin.batch_execute("create role tenant login createrole createdb").await.unwrap();
        admin.batch_execute("create database app owner tenant template template0").await.unwrap();
        drop(admin);
        let_in(&cluster, &folder, "tenant").await;
        let database = open(&Endpoint::parse(&cluster.endpoint().url_for("tenant", "app")).unwrap());
        database.bootstrap(&BootstrapSettings::default()).await.unwrap_or_else(|error| panic!("on {major}: {error}"));
        let client = database.administrator().await.unwrap();
        client.batch_execute("delete from portico.bootstrap").await.unwrap();
        database
            .bootstrap(&BootstrapSettings::default())
            .await
            .unwrap_or_else(|error| panic!("again on {major}: {error}"));
        assert_eq!(
            value(&client, "select pg_get_userbyid(relowner) from pg_class where oid = 'auth.users'::regclass").await,
            "supabase_auth_admin"
        );
        let mut session = database.migrations().await.unwrap();
        assert_eq!(value(session.client(), "select current_user").await, "postgres");
        session.batch("create table public.t (id uuid references auth.users (id))").await.unwrap();
        session.batch("create policy p on storage.objects for select using (true)").await.unwrap();
        assert_eq!(value(session.client(), "select has_table_privilege('anon', 'public.t', 'select')").await, "t");
        assert_eq!(value(&client, "select count(*) from pg_event_trigger").await, "0");
        // The missing rights are those of the warnings
        let denied = session
            .batch("create event trigger t on sql_drop execute function public.rls_auto_enable()")
            .await
            .unwrap_err();
        assert_eq!(denied.code().unwrap().code(), "42501");
        let auth = database.pool(AUTH).client().await.unwrap();
        auth.batch_execute("insert into auth.users (id) values (gen_random_uuid())").await.unwrap();
        drop(auth);
        database
            .recreate(&BootstrapSettings::default())
            .await
            .unwrap_or_else(|error| panic!("anew on {major}: {error}"));
        cluster.stop().await;
    }
}
