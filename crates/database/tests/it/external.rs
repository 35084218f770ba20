//! Servers of others: what a login without a superuser's rights sets up there, and in whose
//! sessions SQL runs.

use portico_database::{BootstrapSettings, Database, Endpoint, connect, scratch::OrdinaryServer};
use tokio::sync::OnceCell;

use super::bootstrap::{column, majors, old_binaries, open, refusal, value};

use crate::AUTH;

const SECRET: &[u8] = b"a secret of the tests";

async fn ordinary(major: u32) -> &'static OrdinaryServer {
    static NEWEST: OnceCell<OrdinaryServer> = OnceCell::const_new();
    static OLDEST: OnceCell<OrdinaryServer> = OnceCell::const_new();
    let cell = if major == 18 { &NEWEST } else { &OLDEST };
    cell.get_or_init(|| start(major)).await
}

pub(crate) async fn start(major: u32) -> OrdinaryServer {
    let newest = || portico_database::cluster::Binaries::find(None).unwrap().folder().to_owned();
    let binaries = if major == 18 { newest() } else { old_binaries() };
    OrdinaryServer::start(&binaries).await.unwrap()
}

/// Makes a login without a superuser's rights and a database of its own.
pub(crate) async fn tenant(server: &OrdinaryServer, name: &str) -> Endpoint {
    let admin = connect(&server.superuser("postgres")).await.unwrap();
    tenant_of(&admin, server, name, name).await
}

async fn tenant_of(admin: &tokio_postgres::Client, server: &OrdinaryServer, name: &str, database: &str) -> Endpoint {
    let role = format!("create role {name} login createrole createdb password 'secret'");
    admin.batch_execute(&role).await.unwrap();
    admin.batch_execute(&format!("create database {database} owner {name} template template0")).await.unwrap();
    server.login(name, "secret", database)
}

pub(crate) async fn set_up(endpoint: &Endpoint, what: &str) -> Database {
    let database = open(&endpoint.with_login_secret(SECRET));
    let outcome = database.bootstrap(&BootstrapSettings::default()).await;
    outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
    database
}

/// Does what projects do, with SQL that names `postgres` as the hosted service's dumps do.
pub(crate) async fn works(database: &Database, what: &str) {
    let mut session = database.migrations().await.unwrap();
    for statement in [
        "create table public.notes (id int primary key, owner uuid default auth.uid() references auth.users (id))",
        "alter table public.notes owner to postgres",
        "alter table public.notes enable row level security",
        "create policy own on public.notes to authenticated using (owner = auth.uid())",
        "create policy p on storage.objects for select to postgres, anon using (true)",
        "alter default privileges for role postgres in schema public grant select on tables to anon",
        "create function public.greet() returns trigger language plpgsql security definer as 'begin return new; end'",
        "create trigger on_sign_up after insert on auth.users for each row execute function public.greet()",
        "grant all on public.notes to postgres, anon, authenticated, service_role",
        "create schema private authorization postgres",
        "reset role",
        "create table public.after_reset (id int)",
        "set role anon",
        "set role postgres",
        "drop table public.after_reset",
    ] {
        session.batch(statement).await.unwrap_or_else(|error| panic!("{what}: {statement}: {error:?}"));
    }
    session.reset().await.unwrap();
    session.batch("drop schema private; drop trigger on_sign_up on auth.users").await.unwrap();
    drop(session);
    let auth = database.pool(AUTH).client().await.unwrap();
    auth.batch_execute("insert into auth.users (id) values ('11111111-1111-4111-8111-111111111111')").await.unwrap();
    let api = database.acting_as("authenticator").await.unwrap();
    let claims = "select set_config('role', 'authenticated', true), set_config('request.jwt.claims', '{\"sub\":\"11111111-1111-4111-8111-111111111111\"}', true)";
    let rows = format!("begin; {claims}; insert into public.notes (id) values (1) returning id; commit");
    // An insert needs no policy of its own: `using` stands for both
    assert_eq!(column(&api, &rows).await.last().map(String::as_str), Some("1"), "{what}");
    assert_eq!(value(&api, "begin; set local role anon; select count(*) from public.notes; ").await, "0", "{what}");
    api.batch_execute("rollback").await.unwrap();
    database.maintain_message_partitions().await.unwrap();
    database.login_client().await.unwrap().query("select name from portico.schema_migrations", &[]).await.unwrap();
}

#[tokio::test]
async fn a_login_without_superuser_rights_sets_up_an_ordinary_server() {
    for major in majors() {
        let server = ordinary(major).await;
        let endpoint = tenant(server, "plain").await;
        let what = format!("as a plain login on {major}");
        let database = set_up(&endpoint, &what).await;
        works(&database, &what).await;
        let admin = connect(&server.superuser("plain")).await.unwrap();
        assert_eq!(
            value(&admin, "select pg_get_userbyid(relowner) from pg_class where oid = 'public.notes'::regclass").await,
            "portico_owner"
        );
        // Each limitation has statements that an administrator can run unchanged
        let missing = database.limitations();
        let listed: Vec<&str> = missing.iter().map(|missing| missing.what.as_str()).collect();
        assert!(listed.contains(&"attribute bypassrls of service_role"), "{what}: {listed:?}");
        assert!(listed.contains(&"settings in SQL"), "{what}: {listed:?}");
        for limitation in &missing {
            assert!(!limitation.effect.is_empty() && !limitation.remedy.is_empty(), "{what}: {limitation:?}");
            admin
                .batch_execute(&limitation.remedy)
                .await
                .unwrap_or_else(|error| panic!("{what}: {limitation:?}: {error:?}"));
        }
        // The next start finds that nothing is missing, and the one after it has nothing to do
        let again = set_up(&endpoint, &what).await;
        assert_eq!(again.limitations(), [], "{what}");
        let done = value(&admin, "select done_at::text from portico.bootstrap").await;
        assert_eq!(set_up(&endpoint, &what).await.limitations(), [], "{what}");
        assert_eq!(value(&admin, "select done_at::text from portico.bootstrap").await, done, "{what}");
        let mut session = again.migrations().await.unwrap();
        session.batch("alter role postgres set pgrst.db_max_rows to '10'").await.unwrap();
        drop((admin, session));
        again.recreate(&BootstrapSettings::default()).await.unwrap_or_else(|error| panic!("{what}, anew: {error}"));
    }
}

/// On managed servers the administrator's login is often called `postgres`, and is no superuser.
#[tokio::test]
async fn a_login_called_postgres_that_is_no_superuser_is_the_owner() {
    for major in majors() {
        let server = start(major).await;
        let what = format!("as a plain postgres on {major}");
        let admin = connect(&server.superuser("postgres")).await.unwrap();
        admin.batch_execute("create role cloud superuser login password 'secret'").await.unwrap();
        drop(admin);
        let admin = connect(&server.login("cloud", "secret", "template1")).await.unwrap();
        admin.batch_execute("alter role postgres rename to cloud_root").await.unwrap();
        let endpoint = tenant_of(&admin, &server, "postgres", "managed").await;
        let database = set_up(&endpoint, &what).await;
        works(&database, &what).await;
        let session = database.migrations().await.unwrap();
        assert_eq!(value(session.client(), "select session_user || ' ' || current_user").await, "postgres postgres");
        let missing = database.limitations();
        assert!(missing.iter().all(|missing| !missing.remedy.is_empty()), "{what}: {missing:?}");
        let admin = connect(&server.login("cloud", "secret", "managed")).await.unwrap();
        for limitation in &missing {
            let outcome = admin.batch_execute(&limitation.remedy).await;
            outcome.unwrap_or_else(|error| panic!("{what}: {limitation:?}: {error:?}"));
        }
        assert_eq!(set_up(&endpoint, &what).await.limitations(), [], "{what}");
    }
}

/// A database of an earlier version: fewer migrations of our own, no list of what is missing, and
/// no logins of our own.
#[tokio::test]
async fn a_database_of_an_earlier_version_is_brought_up_to_date() {
    for major in majors() {
        let server = start(major).await;
        let admin = connect(&server.superuser("postgres")).await.unwrap();
        admin.batch_execute("create database mighty template template0").await.unwrap();
        for endpoint in [server.superuser("mighty"), tenant(&server, "plain").await] {
            let what = format!("as {} on {major}", endpoint.user());
            let database = open(&endpoint);
            database.bootstrap(&BootstrapSettings::default()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let admin = connect(&server.superuser(endpoint.database())).await.unwrap();
            admin
                .batch_execute(
                    "drop table portico.limitations, portico.known_networks;
                     alter table portico.attempts rename to wrong_codes;
                     alter table portico.wrong_codes rename constraint attempts_pkey to wrong_codes_pkey;
                     alter index portico.attempts_full_at_idx rename to wrong_codes_full_at_idx;
                     delete from portico.schema_migrations where name = '0007_attempts';
                     update portico.bootstrap set fingerprint = 'earlier';
                     insert into auth.users (id, email) values (gen_random_uuid(), 'kept@example.com')",
                )
                .await
                .unwrap();
            let database = set_up(&endpoint, &what).await;
            assert_eq!(value(&admin, "select count(*) from auth.users where email = 'kept@example.com'").await, "1");
            works(&database, &what).await;
        }
    }
}

/// Before this version a superuser called `postgres` owned the objects of a project. They are left
/// with it.
#[tokio::test]
async fn an_owner_that_is_a_superuser_stays_the_owner_of_what_it_has() {
    for major in majors() {
        let server = start(major).await;
        let what = format!("with an owner of an earlier version on {major}");
        let admin = connect(&server.superuser("postgres")).await.unwrap();
        admin.batch_execute("create database old template template0").await.unwrap();
        let admin = connect(&server.superuser("old")).await.unwrap();
        admin.batch_execute("create schema supabase_migrations; create table public.mine (id int)").await.unwrap();
        let database = set_up(&server.superuser("old"), &what).await;
        let mut session = database.migrations().await.unwrap();
        session.batch("alter table public.mine add column more int; set role postgres").await.unwrap();
        assert_eq!(value(session.client(), "select current_user").await, "postgres");
        // Requests have sessions of their own nevertheless, and the rest is said
        let api = database.acting_as("authenticator").await.unwrap();
        assert_eq!(
            value(
                &api,
                "reset role; reset session authorization; select rolsuper from pg_roles where rolname = session_user"
            )
            .await,
            "f"
        );
        let missing = database.limitations();
        assert!(
            missing.len() == 1 && missing[0].effect.contains("run with a superuser's rights"),
            "{what}: {missing:?}"
        );
    }
}

/// Roles belong to the whole server: those of another project may have every name that we use.
#[tokio::test]
async fn roles_of_another_project_are_no_obstacle() {
    for major in majors() {
        let server = start(major).await;
        let what = format!("beside another project on {major}");
        let first = set_up(&tenant(&server, "first").await, &what).await;
        works(&first, &what).await;
        let endpoint = tenant(&server, "second").await;
        let second = set_up(&endpoint, &what).await;
        let missing = second.limitations();
        let admin = connect(&server.superuser("second")).await.unwrap();
        for limitation in &missing {
            admin
                .batch_execute(&limitation.remedy)
                .await
                .unwrap_or_else(|error| panic!("{what}: {limitation:?}: {error:?}"));
        }
        let names: Vec<&str> = missing.iter().map(|missing| missing.what.as_str()).collect();
        // Since 16 only those who made a role may grant it
        assert_eq!(major >= 16, names.iter().any(|name| name.ends_with(" in anon")), "{what}: {names:?}");
        let second = set_up(&endpoint, &what).await;
        assert_eq!(second.limitations(), [], "{what}");
        works(&second, &what).await;
        let mut session = second.migrations().await.unwrap();
        session.batch("alter role authenticator set pgrst.db_max_rows to '7'").await.unwrap();
        let set = "select string_agg(rolname, ' ') from pg_roles where rolconfig @> '{pgrst.db_max_rows=7}'";
        assert_eq!(value(&admin, set).await, second.role_for("authenticator"), "{what}");
        works_not_in_other(&second, &admin, &what).await;
    }
}

/// Checks that the owner of one project owns nothing of the other, where the version allows to
/// keep them apart.
async fn works_not_in_other(second: &Database, admin: &tokio_postgres::Client, what: &str) {
    let owner = "select pg_get_userbyid(relowner) from pg_class where oid = 'public.notes'::regclass";
    let name = value(admin, owner).await;
    assert!(name.starts_with("portico_owner"), "{what}: {name}");
    drop(second.pool(AUTH).client().await.unwrap());
}

#[tokio::test]
async fn a_superusers_server_has_an_owner_without_its_rights() {
    for major in majors() {
        let server = start(major).await;
        let what = format!("as a superuser on {major}");
        let admin = connect(&server.superuser("postgres")).await.unwrap();
        admin.batch_execute("create database mighty template template0").await.unwrap();
        let database = set_up(&server.superuser("mighty"), &what).await;
        let listed: Vec<String> = database.limitations().into_iter().map(|missing| missing.what).collect();
        assert_eq!(listed, Vec::<String>::new(), "{what}");
        works(&database, &what).await;
        let mut session = database.migrations().await.unwrap();
        let who =
            "select session_user || ' ' || current_user || ' ' || rolsuper from pg_roles where rolname = current_user";
        assert!(value(session.client(), who).await.ends_with("_owner portico_owner false"), "{what}");
        session.batch("create publication everything for all tables").await.unwrap();
        assert_eq!(value(&admin, "select rolsuper from pg_roles where rolname = 'postgres'").await, "t");
    }
}

#[tokio::test]
async fn the_error_of_a_login_that_may_not_set_up_anything_names_what_it_needs() {
    let server = ordinary(18).await;
    let admin = connect(&server.superuser("postgres")).await.unwrap();
    admin.batch_execute("create role powerless login password 'secret'").await.unwrap();
    admin.batch_execute("create database others template template0").await.unwrap();
    let database = open(&server.login("powerless", "secret", "others"));
    let error = database.bootstrap(&BootstrapSettings::default()).await.unwrap_err().to_string();
    assert!(
        error.contains("alter role \"powerless\" createrole; alter database \"others\" owner to \"powerless\";"),
        "{error}"
    );
    let others = connect(&server.superuser("others")).await.unwrap();
    let (code, _) = refusal(&others, "select * from portico.bootstrap").await;
    assert_eq!(code, "42P01");
}
