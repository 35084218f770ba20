//! The embedded cluster: its first start, and its errors when it cannot run.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portico_database::cluster::{Cluster, ClusterError, ClusterSettings, Durability};
use portico_database::scratch::{ClusterFolder, start_cluster};
use portico_database::{DatabaseError, Endpoint, connect, sqlstate};

/// Asks again until there is an answer.
pub async fn within<T>(patience: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "nothing happened within {patience:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns a cluster that other programs can reach, on a port that was free a moment ago.
pub async fn reachable(folder: &Path, change: impl Fn(&mut ClusterSettings)) -> Cluster {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut settings =
            ClusterSettings { tcp_port: Some(port), durability: Durability::Off, ..ClusterSettings::new(folder) };
        change(&mut settings);
        match start_cluster(settings).await {
            Err(ClusterError::PortTaken { .. }) => {}
            outcome => return outcome.unwrap(),
        }
    }
}

/// Returns the programs of the system's own PostgreSQL, as far as the machine has one.
pub fn system_binaries() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    versions
        .map(|version| version.unwrap().path().join("bin"))
        .filter(|folder| folder.join("postgres").is_file())
        .collect()
}

async fn shown(client: &tokio_postgres::Client, setting: &str) -> String {
    client.query_one(&format!("show {setting}"), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_new_cluster_is_as_promised_and_starts_again_with_its_data_and_without_its_database() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ClusterSettings {
        parameters: vec![("work_mem".into(), "5MB".into())],
        ..ClusterSettings::new(folder.path().join("made/on/the way's \"end\", with ünicode"))
    };
    let cluster = Cluster::start(settings.clone()).await.unwrap();
    let client = connect(&cluster.endpoint()).await.unwrap();
    let expected = [
        ("server_encoding", "UTF8"),
        ("data_checksums", "on"),
        ("wal_level", "logical"),
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("listen_addresses", ""),
        ("timezone", "UTC"),
        ("work_mem", "5MB"),
        ("password_encryption", "scram-sha-256"),
    ];
    for (setting, value) in expected {
        assert_eq!(shown(&client, setting).await, value, "{setting}");
    }
    let row = client
        .query_one(
            "select session_user::text, datlocprovider::text,
                    (select rolsuper from pg_roles where rolname = session_user),
                    (select count(*) from pg_hba_file_rules where type <> 'local')
               from pg_database where datname = current_database()",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "supabase_admin");
    assert_eq!(row.get::<_, &str>(1), "i", "ICU");
    assert!(row.get::<_, bool>(2));
    assert_eq!(row.get::<_, i64>(3), 0, "without a port nobody comes in by TCP");
    client.batch_execute("create table kept (n int); insert into kept values (42)").await.unwrap();

    drop(client);
    let elsewhere = connect(&cluster.endpoint().with_database("template1")).await.unwrap();
    elsewhere.batch_execute("create database other template postgres").await.unwrap();
    elsewhere.batch_execute("drop database postgres with (force)").await.unwrap();

    cluster.stop().await;
    let cluster = Cluster::start(settings).await.unwrap();

    let client = connect(&cluster.endpoint().with_database("other")).await.unwrap();
    assert_eq!(client.query_one("select n from kept", &[]).await.unwrap().get::<_, i32>(0), 42);
}

#[tokio::test]
async fn other_programs_come_in_by_the_loopback_port_with_a_password_only() {
    let folder = ClusterFolder::new();
    let cluster = reachable(folder.path(), |_| {}).await;
    let admin = connect(&cluster.endpoint()).await.unwrap();
    admin.batch_execute("create role visitor login password 'let me in/?#'").await.unwrap();
    let port = cluster.tcp_port().unwrap();

    let url = format!("postgresql://visitor:let%20me%20in%2F%3F%23@127.0.0.1:{port}/postgres");
    let client = connect(&Endpoint::parse(&url).unwrap()).await.unwrap();
    assert_eq!(client.query_one("select session_user::text", &[]).await.unwrap().get::<_, &str>(0), "visitor");

    for wrong in ["visitor:wrong@127.0.0.1", "visitor@127.0.0.1", "supabase_admin@localhost"] {
        let error =
            connect(&Endpoint::parse(&format!("postgresql://{wrong}:{port}/postgres")).unwrap()).await.unwrap_err();
        assert!(!wrong.contains("wrong") || error.sqlstate() == Some(&sqlstate::SqlState::INVALID_PASSWORD), "{error}");
        assert!(!error.to_string().contains("let me in"), "{error}");
    }
    // The superuser is refused here even with a password, since SQL can connect to its own server
    admin.batch_execute("alter role supabase_admin password 'postgres'").await.unwrap();
    let superuser =
        Endpoint::parse(&format!("postgresql://supabase_admin:postgres@127.0.0.1:{port}/postgres")).unwrap();
    let error = connect(&superuser).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some(&sqlstate::SqlState::INVALID_AUTHORIZATION_SPECIFICATION), "{error}");
    admin.batch_execute("create extension dblink").await.unwrap();
    let loopback = format!(
        "select dblink_connect('host=127.0.0.1 port={port} user=supabase_admin password=postgres dbname=postgres')"
    );
    assert!(admin.batch_execute(&loopback).await.is_err());
}

/// A data folder of an earlier version, whose socket trusted every process that could open it.
#[tokio::test]
async fn the_rules_of_access_of_an_older_folder_are_replaced() {
    let folder = ClusterFolder::new();
    let settings =
        ClusterSettings { durability: Durability::Off, ..ClusterSettings::new(folder.path().join("database")) };
    start_cluster(settings.clone()).await.unwrap().stop().await;
    let data = folder.path().join("database/pgdata");
    std::fs::write(data.join("pg_hba.conf"), "local all all trust\nlocal replication all trust\n").unwrap();
    std::fs::write(data.join("pg_ident.conf"), "portico nobody all\n").unwrap();
    std::fs::remove_file(folder.path().join("database/vault.key")).unwrap();
    let cluster = Cluster::start(settings).await.unwrap();
    let admin = connect(&cluster.endpoint()).await.unwrap();
    let rules = admin.query("select auth_method, options::text from pg_hba_file_rules", &[]).await.unwrap();
    let rules: Vec<(&str, &str)> = rules.iter().map(|rule| (rule.get(0), rule.get(1))).collect();
    assert_eq!(rules, [("peer", "{map=portico}")]);
    let key: String = admin.query_one("select pg_read_file('../vault.key')", &[]).await.unwrap().get(0);
    assert_eq!(key.len(), 64);
}

/// Two servers of one program. The processes of one are refused by the other, since they run as
/// another user than the program.
#[tokio::test]
async fn a_server_is_not_let_into_another_one() {
    let folder = ClusterFolder::new();
    let start = async |name: &str| {
        let settings =
            ClusterSettings { durability: Durability::Off, ..ClusterSettings::new(folder.path().join(name)) };
        start_cluster(settings).await.unwrap()
    };
    let (one, other) = (start("one").await, start("other").await);
    let admin = connect(&one.endpoint()).await.unwrap();
    admin.batch_execute("create role visitor login; create extension dblink").await.unwrap();
    connect(&other.endpoint()).await.unwrap().batch_execute("create role visitor login password 'x'").await.unwrap();
    let portico_database::Host::Socket(socket) = other.endpoint().host().clone() else { panic!("not a socket") };
    let target = format!("host={} port=5432 dbname=postgres user=", socket.display());
    // Without a superuser's rights a connection from SQL needs a password that the other server
    // asks for
    for login in ["supabase_admin", "visitor", "visitor password=x"] {
        let attempt = format!("set role visitor; select dblink_connect('{target}{login}')");
        assert!(admin.batch_execute(&attempt).await.is_err(), "{login}");
        admin.batch_execute("reset role").await.unwrap();
    }
    // With those rights the system user decides, which differs from ours if this program runs as
    // root
    if rustix::process::geteuid().is_root() {
        let error = admin.batch_execute(&format!("select dblink_connect('{target}supabase_admin')")).await.unwrap_err();
        assert!(format!("{error:?}").contains("Peer authentication failed"), "{error:?}");
    }
}

#[tokio::test]
async fn a_taken_port_is_named_with_the_setting_that_chooses_it() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();

    let settings = ClusterSettings { tcp_port: Some(port), ..ClusterSettings::new(folder.path()) };
    let error = Cluster::start(settings).await.unwrap_err();

    assert!(matches!(error, ClusterError::PortTaken { port: named } if named == port), "{error}");
    assert!(error.to_string().contains("[db] port"), "{error}");
}

#[tokio::test]
async fn data_of_another_major_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pgdata = folder.path().join("pgdata");
    std::fs::create_dir(&pgdata).unwrap();
    std::fs::write(pgdata.join("PG_VERSION"), "13\n").unwrap();

    let error = Cluster::start(ClusterSettings::new(folder.path())).await.unwrap_err();

    assert!(matches!(&error, ClusterError::OtherMajorVersion { found, .. } if found == "13"), "{error}");
    assert_eq!(std::fs::read_dir(&pgdata).unwrap().count(), 1);
}

#[tokio::test]
async fn a_folder_with_other_things_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("pgdata")).unwrap();
    std::fs::write(folder.path().join("pgdata/diary.txt"), "dear diary").unwrap();

    let error = Cluster::start(ClusterSettings::new(folder.path())).await.unwrap_err();

    assert!(matches!(error, ClusterError::Folder { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(folder.path().join("pgdata/diary.txt")).unwrap(), "dear diary");
}

#[tokio::test]
async fn a_file_in_the_folders_place_and_a_setting_that_breaks_the_line_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for data in [file.clone(), file.join("below"), folder.path().join("two\nlines")] {
        let error = Cluster::start(ClusterSettings::new(&data)).await.unwrap_err();
        assert!(matches!(error, ClusterError::Folder { .. }), "{error}");
    }
    let parameters = vec![("work_mem".to_owned(), "1MB'\nfsync = off".to_owned())];
    let error =
        Cluster::start(ClusterSettings { parameters, ..ClusterSettings::new(folder.path()) }).await.unwrap_err();
    assert!(matches!(error, ClusterError::Setting { .. }), "{error}");
}

#[tokio::test]
async fn a_setting_that_postgresql_rejects_is_reported_in_its_words() {
    let folder = ClusterFolder::new();
    let parameters = vec![("shared_buffers".to_owned(), "a lot".to_owned())];
    let error = start_cluster(ClusterSettings { parameters, ..ClusterSettings::new(folder.path()) }).await.unwrap_err();
    assert!(matches!(error, ClusterError::DidNotStart { .. }), "{error}");
    assert!(error.to_string().contains("shared_buffers"), "{error}");
}

#[tokio::test]
async fn a_path_that_is_too_long_for_a_socket_works_all_the_same() {
    let folder = ClusterFolder::new();
    let data = folder.path().join("a-long-name-".repeat(9)).join("database");
    let settings = ClusterSettings { durability: Durability::Off, ..ClusterSettings::new(data) };
    let cluster = start_cluster(settings).await.unwrap();
    let portico_database::Host::Socket(socket) = cluster.endpoint().host().clone() else { panic!("not a socket") };
    assert!(!socket.starts_with(folder.path()));
    connect(&cluster.endpoint()).await.unwrap();
    cluster.stop().await;
    assert!(!socket.exists(), "its folder is cleared away");
}

#[tokio::test]
async fn the_systems_postgresql_serves_as_well() {
    for binaries in system_binaries() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ClusterSettings {
            binaries: Some(binaries),
            durability: Durability::Off,
            ..ClusterSettings::new(folder.path())
        };
        let cluster = Cluster::start(settings).await.unwrap();
        let client = connect(&cluster.endpoint()).await.unwrap();
        let version = shown(&client, "server_version_num").await;
        assert_eq!(version.parse::<u32>().unwrap() / 10_000, cluster.major_version());
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgresql://me:hidden@127.0.0.1:{port}/app?connect_timeout=2");
    let error = connect(&Endpoint::parse(&url).unwrap()).await.unwrap_err();
    assert!(matches!(error, DatabaseError::Unreachable { .. }) && error.is_unavailable(), "{error}");
    assert!(!error.to_string().contains("hidden"), "{error}");
}
