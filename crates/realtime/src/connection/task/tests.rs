//! The task of a socket, with a client of bytes and a clock that advances when all tasks wait.

use tokio::io::DuplexStream;

use super::*;
use crate::fixture::TestService;
use crate::settings::{RealtimeLimits, RealtimeSettings};

/// Masked with zeroes.
const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
const PONG: [u8; 2] = [0x8a, 0];
/// The close frame with code 1000.
const NORMAL_CLOSURE: [u8; 4] = [0x88, 2, 0x03, 0xe8];
/// As often as an official client sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(25);

/// More than the library writes at once.
const LARGE: usize = 2 * WRITE_THRESHOLD;

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

    /// Joins a room, and broadcasts a large message that it receives itself. It reads nothing.
    async fn broadcasts_to_itself(&mut self, topic: &str) {
        let config = r#"{"config":{"broadcast":{"self":true}}}"#;
        self.send_text(&format!(r#"["1","1","realtime:{topic}","phx_join",{config}]"#)).await;
        let payload = format!(r#"{{"type":"broadcast","event":"e","payload":"{}"}}"#, "x".repeat(LARGE));
        self.send_text(&format!(r#"["1","2","realtime:{topic}","broadcast",{payload}]"#)).await;
    }

    async fn send_text(&mut self, text: &str) {
        let length = match u8::try_from(text.len()) {
            Ok(length @ ..126) => vec![0x80 | length],
            _ => [&[0x80 | 127][..], &(text.len() as u64).to_be_bytes()].concat(),
        };
        self.send(&[&[0x81][..], &length, &[0; 4], text.as_bytes()].concat()).await;
    }

    /// Receives a text frame of fewer than 126 bytes.
    async fn receive_text(&mut self) -> String {
        let [opcode, length] = self.receive().await;
        assert_eq!(opcode, 0x81);
        let mut text = vec![0; usize::from(length)];
        self.io.read_exact(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
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

/// Waits until `count` sockets are open, for less time than a client may read nothing.
async fn wait_for_sockets(test: &TestService, count: usize) {
    let reached = async {
        while test.service.open_sockets() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(STALL_TIMEOUT / 2, reached).await.expect("so many sockets");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_disconnected_and_a_slow_one_is_not() {
    let test = TestService::without_database(RealtimeSettings::default());
    let mut client = TestClient::open(&test, 1024);
    client.broadcasts_to_itself("a").await;
    for _ in 0..3 {
        tokio::time::sleep(STALL_TIMEOUT - Duration::from_secs(1)).await;
        assert_eq!(test.service.open_sockets(), 1);
        client.receive::<512>().await;
    }
    tokio::time::sleep(STALL_TIMEOUT + Duration::from_secs(1)).await;
    assert_eq!(test.service.open_sockets(), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_that_read_nothing_are_disconnected_when_too_much_waits_for_all() {
    let limits = RealtimeLimits { max_all_waiting_bytes: LARGE + LARGE / 2, ..RealtimeLimits::default() };
    let test = TestService::without_database(RealtimeSettings { limits, ..RealtimeSettings::default() });
    let (mut first, mut second) = (TestClient::open(&test, 1024), TestClient::open(&test, 1024));
    wait_for_sockets(&test, 2).await;
    first.broadcasts_to_itself("a").await;
    // It reads its join reply and goes on, so that its message waits before the other one
    first.receive::<64>().await;
    second.broadcasts_to_itself("b").await;
    wait_for_sockets(&test, 1).await;
    assert!(second.io.write_all(&PING).await.is_err());
    assert!(first.io.write_all(&PING).await.is_ok());
}

/// Joins a channel with a new socket.
async fn joined(test: &TestService) -> TestClient {
    let mut client = TestClient::open(test, 64 * 1024);
    client.send_text(r#"["1","1","realtime:a","phx_join",{"config":{}}]"#).await;
    let reply = r#"["1","1","realtime:a","phx_reply",{"status":"ok","response":{"postgres_changes":[]}}]"#;
    assert_eq!(client.receive_text().await, reply);
    client
}

const DISCONNECT: &str =
    r#"[null,null,"realtime:a","system",{"extension":"system","status":"ok","message":"Server requested disconnect"}]"#;

/// Receives the close frame with code 1012, and returns its time.
async fn receive_restart(client: &mut TestClient) -> Instant {
    let [opcode, length, code @ ..] = client.receive::<4>().await;
    assert_eq!((opcode, u16::from_be_bytes(code)), (0x88, 1012));
    let mut reason = vec![0; usize::from(length) - 2];
    client.io.read_exact(&mut reason).await.unwrap();
    Instant::now()
}

/// Returns the number of different times.
fn distinct(times: &[Instant]) -> usize {
    times.iter().collect::<std::collections::HashSet<_>>().len()
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_closes_sockets_one_after_another_within_its_time() {
    let test = TestService::without_database(RealtimeSettings::default());
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(joined(&test).await);
    }
    let (begun, within) = (Instant::now(), Duration::from_millis(25));
    assert_eq!(test.service.close(within), within);
    let closes = clients.into_iter().map(|mut client| async move {
        assert_eq!(client.receive_text().await, DISCONNECT);
        receive_restart(&mut client).await
    });
    let times = futures_util::future::join_all(closes).await;
    assert!(times.iter().all(|time| *time <= begun + within), "all are closed in time");
    assert!(distinct(&times) >= 20, "{} times", distinct(&times));
    assert_eq!(test.service.close(Duration::from_secs(9)), Duration::ZERO, "it has begun before");
}

#[tokio::test(start_paused = true)]
async fn a_channel_works_until_the_close_of_its_socket() {
    let test = TestService::without_database(RealtimeSettings::default());
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(joined(&test).await);
    }
    test.service.close(Duration::from_secs(1));
    let answers = clients.into_iter().map(|mut client| async move {
        client.send_text(r#"[null,"2","phoenix","heartbeat",{}]"#).await;
        let answered = client.receive_text().await.contains("phx_reply");
        if answered {
            assert_eq!(client.receive_text().await, DISCONNECT);
        }
        receive_restart(&mut client).await;
        answered
    });
    let answered = futures_util::future::join_all(answers).await;
    assert!(answered.iter().filter(|answered| **answered).count() >= 40);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_ends_all_channels_at_once_and_closes_their_sockets_one_after_another() {
    let test = TestService::without_database(RealtimeSettings::default());
    let service = Arc::clone(&test.service);
    tokio::spawn(async move { service.maintain().await });
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(joined(&test).await);
    }
    test.replace_key();
    let ends = clients.into_iter().map(|mut client| async move {
        assert_eq!(client.receive_text().await, DISCONNECT);
        let ended = Instant::now();
        // The channel receives nothing of this, and the client no reply
        client.send_text(r#"["1","2","realtime:a","phx_join",{"config":{}}]"#).await;
        (ended, receive_restart(&mut client).await)
    });
    let (ended, closed): (Vec<_>, Vec<_>) = futures_util::future::join_all(ends).await.into_iter().unzip();
    assert_eq!(distinct(&ended), 1);
    assert!(distinct(&closed) >= 40, "{} times", distinct(&closed));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_of_the_socket_restarts_it_instead_of_ending_its_channels_for_good() {
    let test = TestService::without_database(RealtimeSettings::default());
    let service = Arc::clone(&test.service);
    tokio::spawn(async move { service.maintain().await });
    let mut client = joined(&test).await;
    test.replace_key();
    assert_eq!(client.receive_text().await, DISCONNECT);
    receive_restart(&mut client).await;
}
