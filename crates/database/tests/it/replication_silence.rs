//! Streams whose connection carries nothing any more, although neither side has closed it.

use std::net::SocketAddr;
use std::time::Duration;

use portico_database::Endpoint;
use portico_database::replication::{ReplicationError, ReplicationSettings, ReplicationStream};
use portico_database::scratch::ClusterFolder;
use portico_database::wire::WireError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::reachable;
use crate::replication::{published, settings};

/// A proxy in front of a server, which forwards until it is stopped, and keeps its connections.
struct StoppableProxy {
    address: SocketAddr,
    is_stopped: watch::Sender<bool>,
}

impl StoppableProxy {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_stopped, stopped) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                let (client, server) = (client.into_split(), server.into_split());
                tokio::spawn(forward(client.0, server.1, stopped.clone()));
                tokio::spawn(forward(server.0, client.1, stopped.clone()));
            }
        });
        Self { address, is_stopped }
    }

    /// Forwards nothing from now on, and closes nothing either.
    fn stop(&self) {
        self.is_stopped.send_replace(true);
    }
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut stopped: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            biased;
            () = async { drop(stopped.wait_for(|stopped| *stopped).await) } => std::future::pending().await,
            read = from.read(&mut bytes) => read,
        };
        let Ok(read @ 1..) = read else { return };
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_connection_that_carries_nothing_any_more_is_lost_at_both_ends() {
    let folder = ClusterFolder::new();
    // The server alone would never close such a connection
    let never = |settings: &mut portico_database::cluster::ClusterSettings| {
        settings.parameters = vec![("wal_sender_timeout".into(), "0".into())];
    };
    let cluster = reachable(folder.path(), never).await;
    let admin = published(&cluster.endpoint()).await;
    admin.batch_execute("create role streamer login replication password 'secret'").await.unwrap();
    let proxy = StoppableProxy::start(([127, 0, 0, 1], cluster.tcp_port().unwrap()).into()).await;
    let url = format!("postgresql://streamer:secret@{}/postgres", proxy.address);
    let settings = ReplicationSettings { silence: Duration::from_secs(2), ..settings("s") };
    let mut stream = ReplicationStream::open(&Endpoint::parse(&url).unwrap(), &settings).await.unwrap();
    admin.batch_execute("insert into items values (1, 'before')").await.unwrap();
    stream.next_batch(&mut Vec::new()).await.unwrap();

    proxy.stop();
    let lost = async {
        loop {
            if let Err(error) = stream.next_batch(&mut Vec::new()).await {
                return error;
            }
        }
    };
    let released = async {
        let slots = "select from pg_catalog.pg_replication_slots";
        while !admin.query(slots, &[]).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let (error, ()) = tokio::join!(lost, released);
    let ReplicationError::Lost(WireError::Lost(error)) = error else { panic!("{error}") };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}
