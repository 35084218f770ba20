//! Another PostgreSQL, which foreign tables connect to: a server cannot connect to itself.

use std::net::TcpListener;

use portico_database::cluster::{Cluster, ClusterError, ClusterSettings, Durability};
use portico_database::connect;
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// The role `remote` owns the tables, and logs in with its name as the password.
const TABLES: &str = "
    create role remote login password 'remote';
    create schema private authorization remote;
    set role remote;
    create table private.remote_rows (mark text, who text);
    create table private.remote_owners (mark text, who text);
    insert into private.remote_owners (who) values ('-'), ('00000000-0000-4000-8000-00000000000a'),
      ('00000000-0000-4000-8000-00000000000b'), ('00000000-0000-4000-8000-00000000000c')";

static REMOTE: OnceCell<(Cluster, TempDir)> = OnceCell::const_new();

/// Returns the port on the loopback interface. The first call starts the server.
pub async fn port() -> u16 {
    let (cluster, _) = REMOTE.get_or_init(start).await;
    cluster.tcp_port().unwrap()
}

async fn start() -> (Cluster, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = loop {
        // The port was free a moment ago
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let data = folder.path().join("database");
        let settings =
            ClusterSettings { tcp_port: Some(port), durability: Durability::Off, ..ClusterSettings::new(data) };
        match Cluster::start(settings).await {
            Err(ClusterError::PortTaken { .. }) => {}
            outcome => break outcome.unwrap(),
        }
    };
    connect(&cluster.endpoint()).await.unwrap().batch_execute(TABLES).await.unwrap();
    (cluster, folder)
}
