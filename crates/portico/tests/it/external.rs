//! The whole program on an external PostgreSQL, as a system installs it: with the login of a
//! superuser and with one that may only create roles and databases.

use std::path::Path;
use std::time::Duration;

use portico_database::cluster::Binaries;
use portico_database::connect;
use portico_database::scratch::{OrdinaryServer, PoolerMode, TestPooler, older_binaries};
use reqwest::Method;
use serde_json::json;

use crate::program::{Program, finished, portico};

/// Starts a server for one test: roles belong to the whole server.
pub async fn system_server(major: u32) -> OrdinaryServer {
    let folder = match major {
        18 => Binaries::find(None).unwrap().folder().to_owned(),
        _ => older_binaries().expect("an older PostgreSQL").folder().to_owned(),
    };
    OrdinaryServer::start(&folder).await.unwrap()
}

/// Returns the embedded version and, if one is installed, an older one.
#[allow(clippy::print_stderr)]
fn majors() -> impl Iterator<Item = u32> {
    let older = older_binaries();
    if older.is_none() {
        eprintln!("PostgreSQL 15 is not installed (scripts/setup test does that): only 18 is tested");
    }
    [Some(18), older.map(|older| older.major())].into_iter().flatten()
}

/// A migration as the hosted service's tools dump it: with the owner's name.
const NOTES: &str = r#"
    create table "public"."notes" ("id" int primary key, "owner" uuid default auth.uid() references auth.users (id), "title" text);
    ALTER TABLE "public"."notes" OWNER TO "postgres";
    alter table public.notes enable row level security;
    create policy own on public.notes to authenticated using (owner = (select auth.uid()));
    grant all on public.notes to postgres, anon, authenticated, service_role;
    create function public.escape() returns text language plpgsql as $$
    begin
      begin execute 'reset role'; exception when others then null; end;
      begin execute 'reset session authorization'; exception when others then null; end;
      begin execute 'set role none'; exception when others then null; end;
      return (select session_user || ' ' || rolsuper || ' ' || rolcreaterole from pg_roles where rolname = current_user);
    end $$;
    grant execute on function public.escape() to anon;
"#;

fn serve(folder: &Path, url: &str) -> Program {
    let mut serve = portico(folder, &["serve"]);
    serve.env("PORTICO_SERVER_PUBLIC_URL", "http://127.0.0.1:54321").env("DATABASE_URL", url);
    Program::ready(serve)
}

/// Takes a project through its first start, sign-ups, a migration and another start. Returns the
/// output of the first start.
async fn project_life(folder: &Path, url: &str, what: &str) -> String {
    let migrations = folder.join("supabase/migrations");
    std::fs::create_dir_all(&migrations).unwrap();
    std::fs::write(migrations.join("20260101000000_notes.sql"), NOTES).unwrap();
    let program = serve(folder, url);
    let first = program.printed();
    program.token("/auth/v1/signup", "one@example.com").await;
    let one = program.token("/auth/v1/token?grant_type=password", "one@example.com").await;
    let other = program.token("/auth/v1/signup", "other@example.com").await;
    let note = json!({ "id": 1, "title": "mine" });
    let (status, response) = program.call(Method::POST, "/rest/v1/notes", Some(&one), Some(note)).await;
    assert_eq!(status, 201, "{what}: {response}\n{first}");
    for (token, count) in [(&one, 1), (&other, 0)] {
        let (status, rows) = program.call(Method::GET, "/rest/v1/notes?select=title", Some(token), None).await;
        assert_eq!((status, rows.as_array().map(Vec::len)), (200, Some(count)), "{what}: {rows}");
    }
    // A function that leaves the role of the request gets a login without any right
    let (_, escaped) = program.call(Method::POST, "/rest/v1/rpc/escape", None, None).await;
    let escaped = escaped.as_str().unwrap().to_owned();
    assert!(escaped.starts_with("portico_") && escaped.ends_with("_api false false"), "{what}: {escaped}");

    // A migration beside the running server, which reloads its schema
    std::fs::write(migrations.join("20260102000000_more.sql"), "create table public.more (id int); alter table public.more owner to postgres; grant select on public.more to anon; notify pgrst").unwrap();
    let (succeeded, printed) = finished(portico(folder, &["migration", "up", "--db-url", url]));
    assert!(succeeded, "{what}: {printed}");
    let patience = tokio::time::Instant::now() + Duration::from_secs(60);
    while program.call(Method::GET, "/rest/v1/more", None, None).await.0 != 200 {
        assert!(tokio::time::Instant::now() < patience, "{what}: the table is never found");
    }
    assert!(program.stop().success());

    // The next start finds the same state
    let program = serve(folder, url);
    let one = program.token("/auth/v1/token?grant_type=password", "one@example.com").await;
    let (_, rows) = program.call(Method::GET, "/rest/v1/notes?select=title", Some(&one), None).await;
    assert_eq!(rows, json!([{ "title": "mine" }]), "{what}");
    assert!(program.stop().success());
    first
}

/// Creates a login that may only create roles and databases, with its own database.
async fn unprivileged_login(server: &OrdinaryServer, name: &str) -> String {
    let admin = server.administrator().await;
    admin.batch_execute(&format!("create role {name} login createrole createdb password 'it''s'")).await.unwrap();
    admin.batch_execute(&format!("create database {name} owner {name}")).await.unwrap();
    server.url(name, "it's", name)
}

/// Returns the SQL for an administrator from the output.
fn requests(printed: &str) -> String {
    let is_ours = |line: &&str| !line.starts_with("-- The database login");
    // A line of the log, or the panel, ends them
    let is_sql = |line: &&str| !line.contains('●') && !line.starts_with('{');
    let lines = printed.lines().skip_while(is_ours).take_while(is_sql);
    lines.map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn the_program_works_on_a_system_server_as_its_superuser() {
    for major in majors() {
        let server = system_server(major).await;
        server.administrator().await.batch_execute("create database mighty").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let printed =
            project_life(folder.path(), &server.superuser_url("mighty"), &format!("as a superuser on {major}")).await;
        assert_eq!(requests(&printed), "", "on {major}");
    }
}

#[tokio::test]
async fn the_program_works_on_a_system_server_as_an_unprivileged_login() {
    for major in majors() {
        let server = system_server(major).await;
        let url = unprivileged_login(&server, "plain").await;
        let folder = tempfile::tempdir().unwrap();
        let printed = project_life(folder.path(), &url, &format!("as a plain login on {major}")).await;
        // The missing rights are one list of SQL, which the superuser can run unchanged
        let list = requests(&printed);
        assert!(list.contains("alter role service_role bypassrls;"), "on {major}: {printed}");
        let superuser = connect(&server.superuser("plain")).await.unwrap();
        superuser.batch_execute(&list).await.unwrap_or_else(|error| panic!("on {major}: {error:?}\n{list}"));
        assert_eq!(requests(&serve(folder.path(), &url).printed()), "", "on {major}");
    }
}

#[tokio::test]
async fn the_program_works_beside_another_project_on_the_same_server() {
    for major in majors() {
        let server = system_server(major).await;
        let folder = tempfile::tempdir().unwrap();
        project_life(folder.path(), &unprivileged_login(&server, "first").await, &format!("as the first on {major}"))
            .await;
        let url = unprivileged_login(&server, "second").await;
        let folder = tempfile::tempdir().unwrap();
        let list = requests(&serve(folder.path(), &url).printed());
        // Since 16 the roles of the requests can only be granted by the roles that created them
        assert_eq!(list.contains("grant anon to portico_authenticator"), major >= 16, "on {major}: {list}");
        let superuser = connect(&server.superuser("second")).await.unwrap();
        superuser.batch_execute(&list).await.unwrap_or_else(|error| panic!("on {major}: {error:?}\n{list}"));
        let printed = project_life(folder.path(), &url, &format!("as the second on {major}")).await;
        assert_eq!(requests(&printed), "", "on {major}");
    }
}

/// Returns the output of the program that rejects a way past the pooler.
fn refused(folder: &Path, url: &str, direct: &str) -> String {
    let mut serve = portico(folder, &["serve"]);
    serve.env("PORTICO_SERVER_PUBLIC_URL", "http://127.0.0.1:54321");
    serve.env("DATABASE_URL", url).env("DIRECT_URL", direct);
    let (succeeded, printed) = finished(serve);
    assert!(!succeeded, "{printed}");
    printed
}

/// The pooler runs while the test waits for the program.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_works_behind_a_pooler_and_past_it_with_a_direct_url() {
    let server = system_server(18).await;
    let direct = unprivileged_login(&server, "pooled").await;
    // The pooler passes no password on
    server.set_rules("host pooled all 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n").await.unwrap();
    let login = server.login("pooled", "", "pooled");
    let trusted = async { while connect(&login).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), trusted).await.unwrap();
    let pooler = TestPooler::start(([127, 0, 0, 1], login.port()).into(), PoolerMode::Transaction).await.unwrap();
    let url = format!("postgresql://pooled@{}/pooled", pooler.address());
    let folder = tempfile::tempdir().unwrap();
    let program = serve(folder.path(), &url);
    assert!(program.printed().contains("no way past it is set (DIRECT_URL, or [database] direct_url)"));
    program.token("/auth/v1/signup", "one@example.com").await;
    assert!(program.stop().success());

    let mut past = portico(folder.path(), &["serve"]);
    past.env("PORTICO_SERVER_PUBLIC_URL", "http://127.0.0.1:54321").env("DATABASE_URL", &url);
    past.env("DIRECT_URL", &direct);
    let program = Program::ready(past);
    assert!(!program.printed().contains("no way past it is set"), "{}", program.printed());
    program.token("/auth/v1/token?grant_type=password", "one@example.com").await;
    // Notifications arrive on a session of their own, which a pooler does not lend
    let administrator = connect(&server.superuser("pooled")).await.unwrap();
    let listening = "select count(*) from pg_stat_activity where datname = 'pooled' and query ilike 'listen %'";
    let listens = async { while administrator.query_one(listening, &[]).await.unwrap().get::<_, i64>(0) == 0 {} };
    tokio::time::timeout(Duration::from_secs(60), listens).await.unwrap();
    assert!(program.stop().success());

    let elsewhere = refused(folder.path(), &url, &server.superuser_url("postgres"));
    assert!(elsewhere.contains("DIRECT_URL leads to another database (postgres at "), "{elsewhere}");
    let nonsense = refused(folder.path(), &url, "nonsense");
    assert!(nonsense.contains("DIRECT_URL") && nonsense.contains("not a PostgreSQL URL"), "{nonsense}");
}

/// Development on an external server: the published secrets of development must not open that
/// server.
#[tokio::test]
async fn a_development_server_publishes_no_password_of_an_external_server() {
    for major in majors() {
        let server = system_server(major).await;
        server.administrator().await.batch_execute("create database developed").await.unwrap();
        let url = server.superuser_url("developed");
        let folder = tempfile::tempdir().unwrap();
        let migrations = folder.path().join("supabase/migrations");
        std::fs::create_dir_all(&migrations).unwrap();
        std::fs::write(folder.path().join("supabase/config.toml"), "[api]\nport = 0\n[inbucket]\nport = 0\n").unwrap();
        std::fs::write(folder.path().join("supabase/portico.toml"), format!("[database]\nurl = {url:?}\n")).unwrap();
        std::fs::write(migrations.join("20260101000000_notes.sql"), NOTES).unwrap();
        let program = Program::ready(portico(folder.path(), &["dev"]));
        // The commands of the folder find the database of its server
        std::fs::write(migrations.join("20260102000000_more.sql"), "create table public.more (id int)").unwrap();
        let (succeeded, printed) = finished(portico(folder.path(), &["migration", "up"]));
        assert!(succeeded, "on {major}: {printed}");
        let superuser = connect(&server.superuser("developed")).await.unwrap();
        let logins = "select count(*) from pg_authid where rolpassword is not null and rolname !~ '^portico_[0-9a-f]{8}_(api|auth|owner)$'";
        let others: i64 = superuser.query_one(logins, &[]).await.unwrap().get(0);
        assert_eq!(others, 1, "on {major}: only the superuser's own password is set");
        let owner = "select pg_get_userbyid(relowner)::text from pg_class where oid = 'public.more'::regclass";
        assert_eq!(superuser.query_one(owner, &[]).await.unwrap().get::<_, String>(0), "portico_owner");
        drop(program);
    }
}

/// A token of ES256 with the key id `invented`.
const INVENTED_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImludmVudGVkIn0.eyJzdWIiOiJ4In0.\
    eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eA";

/// A transaction pooler delivers no notification: the server reads the keys by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn signing_keys_are_rotated_behind_a_transaction_pooler() {
    let server = system_server(18).await;
    let admin = server.administrator().await;
    admin.batch_execute("create role tenant login createrole createdb").await.unwrap();
    admin.batch_execute("create database pooled owner tenant").await.unwrap();
    server.set_rules("host all all 127.0.0.1/32 trust\n").await.unwrap();
    let direct = server.login("tenant", "", "pooled");
    let patience = tokio::time::Instant::now() + Duration::from_secs(60);
    while connect(&direct).await.is_err() {
        assert!(tokio::time::Instant::now() < patience, "the server does not trust its clients");
    }
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], direct.port()));
    let pooler = TestPooler::start(address, PoolerMode::Transaction).await.unwrap();
    let url = format!("postgresql://tenant@{}/pooled", pooler.address());
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("supabase")).unwrap();
    let program = serve(folder.path(), &url);
    let keys = |action: &str| {
        let (succeeded, printed) =
            finished(portico(folder.path(), &["keys", action, "--production", "--database-url", &url]));
        assert!(succeeded, "{printed}");
    };
    let kid = |token: &str| portico_tokens::TokenHeader::read(token).unwrap().key_id;

    let old = program.token("/auth/v1/signup", "ada@example.com").await;
    assert_eq!(kid(&old), None, "the secret signs at first");
    keys("create");
    keys("rotate");
    // Such a token has the server read the keys at once
    let (status, _) = program.call(Method::GET, "/auth/v1/user", Some(INVENTED_TOKEN), None).await;
    assert_eq!(status, 403);
    let new = program.token("/auth/v1/token?grant_type=password", "ada@example.com").await;
    assert!(kid(&new).is_some(), "the new key signs");
    for token in [&old, &new] {
        assert_eq!(program.call(Method::GET, "/auth/v1/user", Some(token), None).await.0, 200);
    }
    assert!(program.stop().success());
}
