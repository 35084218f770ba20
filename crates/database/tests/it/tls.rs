//! TLS to a PostgreSQL elsewhere, in every mode, with certificates made for the test.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use portico_database::cluster::{Cluster, ClusterSettings, Durability};
use portico_database::replication::{ReplicationSettings, ReplicationStream, WalMessage};
use portico_database::scratch::{ClusterFolder, start_cluster};
use portico_database::wire::{Batch, Pool, Statement, WirePoolSettings};
use portico_database::{DatabaseError, Endpoint, connect};

use crate::cluster::reachable;

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Writes an authority, the server's certificate for the name `localhost` signed by it, and an
/// authority that signed nothing.
fn make_certificates(folder: &Path) {
    const EC: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for name in ["authority", "stranger"] {
        openssl(folder, &format!("req -x509 {EC} -subj /CN={name} -keyout {name}.key -out {name}.crt"));
    }
    openssl(folder, &format!("req {EC} -subj /CN=localhost -keyout server.key -out server.csr"));
    fs::write(folder.join("server.ext"), "subjectAltName = DNS:localhost\nbasicConstraints = CA:FALSE\n").unwrap();
    openssl(
        folder,
        "x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 2 -extfile server.ext -out server.crt",
    );
}

async fn visit(port: u16, host: &str, parameters: &str) -> Result<bool, DatabaseError> {
    let url = format!("postgresql://visitor:secret@{host}:{port}/postgres?connect_timeout=20&{parameters}");
    let endpoint = Endpoint::parse(&url).unwrap();
    let client = connect(&endpoint).await;
    // The lean client comes to the same end.
    let lean = visit_lean(&endpoint).await;
    assert_eq!(lean.is_ok(), client.is_ok(), "{parameters}: {lean:?} {:?}", client.err());
    let row = client?.query_one("select ssl from pg_stat_ssl where pid = pg_backend_pid()", &[]).await?;
    assert_eq!(lean.ok(), Some(row.get(0)), "{parameters}");
    Ok(row.get(0))
}

async fn visit_lean(endpoint: &Endpoint) -> Result<bool, String> {
    let pool = Pool::open(endpoint, "visitor", WirePoolSettings::default()).map_err(|error| error.to_string())?;
    let mut connection = pool.checkout().await.map_err(|error| error.to_string())?;
    // More than one record of TLS, both ways.
    let long = "x".repeat(200_000);
    let params = [Some(long.as_bytes())];
    let batch = Batch::new()
        .statement(Statement::named("select ssl from pg_stat_ssl where pid = pg_backend_pid()", &[]))
        .statement(Statement::named("select $1::text", &params));
    let results = connection.run(&batch).await.map_err(|error| error.to_string())?;
    assert_eq!(results.row(1).unwrap().text(0), Some(&*long));
    drop(connection);
    let results = pool.checkout().await.unwrap().run(&batch).await.unwrap();
    Ok(results.row(0).unwrap().text(0) == Some("t"))
}

#[tokio::test]
async fn every_mode_protects_as_far_as_it_says() {
    let folder = ClusterFolder::new();
    let data = folder.path().join("database");
    let plain =
        start_cluster(ClusterSettings { durability: Durability::Off, ..ClusterSettings::new(&data) }).await.unwrap();
    connect(&plain.endpoint())
        .await
        .unwrap()
        .batch_execute("create role visitor login password 'secret'")
        .await
        .unwrap();
    plain.stop().await;
    make_certificates(folder.path());
    let owner = fs::metadata(data.join("pgdata")).unwrap();
    for name in ["server.crt", "server.key"] {
        let installed = data.join("pgdata").join(name);
        fs::copy(folder.path().join(name), &installed).unwrap();
        fs::set_permissions(&installed, Permissions::from_mode(0o600)).unwrap();
        chown(&installed, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    let cluster = reachable(&data, |settings| {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        settings.parameters =
            vec![setting("ssl", "on"), setting("ssl_cert_file", "server.crt"), setting("ssl_key_file", "server.key")];
    })
    .await;
    let port = cluster.tcp_port().unwrap();
    let authority = format!("sslrootcert={}", folder.path().join("authority.crt").display());
    let stranger = format!("sslrootcert={}", folder.path().join("stranger.crt").display());
    let itself = format!("sslrootcert={}", folder.path().join("server.crt").display());

    assert!(!visit(port, "localhost", "sslmode=disable").await.unwrap());
    for protected in [
        "sslmode=prefer".to_owned(),
        "sslmode=require".to_owned(),
        "sslmode=require&channel_binding=require".to_owned(),
        format!("sslmode=verify-ca&{authority}"),
        format!("sslmode=verify-full&{authority}"),
        format!("sslmode=verify-full&{authority}&channel_binding=require"),
        format!("sslmode=verify-full&{itself}"),
    ] {
        assert!(visit(port, "localhost", &protected).await.unwrap(), "{protected}");
    }
    // By its address the server is not the one that the certificate names: only `verify-full`
    // minds.
    assert!(visit(port, "127.0.0.1", &format!("sslmode=verify-ca&{authority}")).await.unwrap());
    for (host, refused) in [
        ("127.0.0.1", format!("sslmode=verify-full&{authority}")),
        ("localhost", format!("sslmode=verify-ca&{stranger}")),
        ("localhost", format!("sslmode=verify-full&{stranger}")),
        ("localhost", format!("sslmode=require&{stranger}")),
        ("localhost", "sslmode=verify-full".to_owned()),
        ("localhost", "sslmode=disable&channel_binding=require".to_owned()),
    ] {
        let error = visit(port, host, &refused).await.unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let error = visit(port, "localhost", "sslmode=verify-full&sslrootcert=/does/not/exist").await.unwrap_err();
    assert!(error.to_string().contains("/does/not/exist"), "{error}");
    replicate(&cluster, &format!("sslmode=verify-full&{authority}&channel_binding=require")).await;
}

/// Receives a change through a protected connection, in more than one record of TLS.
async fn replicate(cluster: &Cluster, parameters: &str) {
    let admin = connect(&cluster.endpoint()).await.unwrap();
    let set_up = "alter role visitor replication; create table items (text text); create publication p for table items";
    for statement in set_up.split("; ") {
        admin.batch_execute(statement).await.unwrap();
    }
    let port = cluster.tcp_port().unwrap();
    let url = format!("postgresql://visitor:secret@localhost:{port}/postgres?connect_timeout=20&{parameters}");
    let settings = ReplicationSettings { publications: vec!["p".into()], ..crate::replication::settings("protected") };
    let mut stream = ReplicationStream::open(&Endpoint::parse(&url).unwrap(), &settings).await.unwrap();
    admin.batch_execute("insert into items values (repeat('x', 200000))").await.unwrap();
    let mut messages = Vec::new();
    while !messages.iter().any(|message: &WalMessage| message.transaction_end().is_some()) {
        stream.next_batch(&mut messages).await.unwrap();
    }
    assert!(messages.iter().any(|message| message.body.len() > 200_000));
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let folder = ClusterFolder::new();
    let cluster = reachable(folder.path(), |_| {}).await;
    connect(&cluster.endpoint())
        .await
        .unwrap()
        .batch_execute("create role visitor login password 'secret'")
        .await
        .unwrap();
    let port = cluster.tcp_port().unwrap();
    assert!(!visit(port, "localhost", "sslmode=prefer").await.unwrap());
    let error = visit(port, "localhost", "sslmode=require").await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}
