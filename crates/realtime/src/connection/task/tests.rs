//! The task of a socket, with a client of bytes and a clock that advances when all tasks wait.

use tokio::io::DuplexStream;

use super::*;
use crate::fixture::TestService;
use crate::settings::RealtimeSettings;

/// Masked with zeroes.
const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
const PONG: [u8; 2] = [0x8a, 0];
/// The close frame with code 1000.
const NORMAL_CLOSURE: [u8; 4] = [0x88, 2, 0x03, 0xe8];
/// As often as an official client sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(25);

/// The client of a socket.
struct TestClient {
    io: DuplexStream,
}

impl TestClient {
    /// Opens a socket whose system buffers have `buffer` bytes.
    fn open(test: &TestService, buffer: usize) -> Self {
        let head = SocketHead {
            version: Version::V2,
            token: test.token("anon").into(),
            headers: "{}".into(),
            may_be_privileged: false,
        };
        let (io, server) = tokio::io::duplex(buffer);
        tokio::spawn(serve(Arc::clone(&test.service), head, server));
        Self { io }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
    }

    async fn receive<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.io.read_exact(&mut bytes).await.unwrap();
        bytes
    }
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_never_has_a_channel_is_closed() {
    let test = TestService::without_database(RealtimeSettings::default());
    let mut client = TestClient::open(&test, 1024);
    let begun = Instant::now();
    let closed = loop {
        client.send(&PING).await;
        assert_eq!(client.receive().await, PONG);
        match tokio::time::timeout(HEARTBEAT, client.receive()).await {
            Ok(closed) => break closed,
            Err(_) => assert!(begun.elapsed() < NO_CHANNEL_TIMEOUT + Duration::from_secs(60)),
        }
    };
    assert_eq!((closed, begun.elapsed() >= NO_CHANNEL_TIMEOUT), (NORMAL_CLOSURE, true));
}
