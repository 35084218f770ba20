use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;

use super::*;
use crate::fixture::{ScratchDatabase, TestChannel, json_of, room};
use crate::rooms::{Publication, RoomKey, RoomMessage, RoomMessageBody};
use crate::settings::RealtimeLimits;
use crate::socket::frame::{UserBroadcast, UserPayload, Version};
use portico_database::wire::WirePoolSettings;

/// Short, so that a test does not wait; a server that is only slow must not count as gone.
const TIMES: ClusterTimes = ClusterTimes { heartbeat: Duration::from_millis(50), gone_after: Duration::from_secs(5) };
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, as far as its cluster goes.
struct Server {
    rooms: Rooms,
    presence: Presence,
    cluster: Option<ClusterMember>,
}

impl Server {
    fn start(database: &ScratchDatabase, settings: &RealtimeClusterSettings, sockets: u64) -> Self {
        let rooms = Rooms::new(Arc::default(), None);
        let presence = Presence::new(rooms.clone(), &RealtimeLimits::default());
        let foundation = ClusterFoundation {
            database: crate::fixture::open(database.endpoint()),
            pool: database.pool(WirePoolSettings::default()),
            rooms: rooms.clone(),
            presence: presence.clone(),
            clock: Clock::system(),
            sockets: Box::new(move || sockets),
        };
        let cluster = Some(ClusterMember::start(settings, TIMES, foundation));
        Self { rooms, presence, cluster }
    }

    fn join(&self, room: &RoomKey) -> TestChannel {
        let channel = TestChannel::new(room, Version::V2);
        self.rooms.shard().subscribe(Arc::clone(&channel.subscriber));
        channel
    }

    fn track(&self, channel: &TestChannel, key: &str, payload: Value) {
        let Value::Object(payload) = payload else { panic!("{payload}") };
        self.presence.track(&channel.subscriber, key, payload);
    }

    fn state(&self, room: &RoomKey) -> Value {
        serde_json::from_slice(&self.presence.state(room)).unwrap()
    }

    fn remote_sockets(&self) -> u64 {
        self.cluster.as_ref().unwrap().remote_sockets()
    }

    async fn send(&self, room: &RoomKey, payload: UserPayload) {
        let broadcast = UserBroadcast { event: "e".into(), payload };
        let body = RoomMessageBody::UserBroadcast { broadcast, metadata: "".into() };
        let message = RoomMessage::new(&room.topic, body);
        self.rooms.publish(None, Publication { room: room.clone(), message, except: None }).await;
    }
}

/// Waits until a condition is true.
async fn settles(what: &str, is_settled: impl Fn() -> bool) {
    let settled = async {
        while !is_settled() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, settled).await.is_ok(), "{what}");
}

fn settings(transport: RealtimeClusterTransport) -> RealtimeClusterSettings {
    RealtimeClusterSettings { transport, secret: Secret::new("a secret of the servers") }
}

fn text(text: &'static str) -> UserPayload {
    UserPayload::Json(text.into())
}

/// Checks everything that servers share, on any way between them.
async fn servers_share_everything(settings: &RealtimeClusterSettings) {
    let database = ScratchDatabase::new().await;
    let (a, private) = (room(false, "a"), room(true, "a"));
    let one = Server::start(&database, settings, 3);
    let first = one.join(&a);
    one.track(&first, "ann", json!({ "n": 1 }));

    // Entries of several messages of a state
    let crowd: Vec<_> = (0..40).map(|_| one.join(&a)).collect();
    for (number, channel) in crowd.iter().enumerate() {
        one.track(channel, &format!("member {number}"), json!({ "text": "x".repeat(20_000) }));
    }

    // A server that comes later learns what there is
    let mut two = Server::start(&database, settings, 4);
    settles("the state", || two.state(&a) == one.state(&a) && two.state(&a) != json!({})).await;
    settles("the sockets", || one.remote_sockets() == 4 && two.remote_sockets() == 3).await;

    for (number, channel) in crowd.iter().enumerate() {
        one.presence.untrack(&channel.subscriber, &format!("member {number}"));
    }
    settles("ann alone", || two.state(&a).as_object().is_some_and(|state| state.len() == 1)).await;

    // Broadcasts arrive once, in order, and in their room
    let (second, hidden) = (two.join(&a), two.join(&private));
    let large = UserPayload::Binary(vec![7; 300_000].into());
    one.send(&a, text("1")).await;
    one.send(&a, large.clone()).await;
    one.send(&private, text("2")).await;
    one.send(&a, text("3")).await;
    for expected in [text("1"), large, text("3")] {
        let broadcast = UserBroadcast { event: "e".into(), payload: expected };
        let frame = crate::socket::frame::encode_user_broadcast("realtime:a", &broadcast, "").unwrap();
        assert!(second.next().await == frame);
    }
    hidden.next().await;

    // A message of the database reaches each server on a way of its own
    let broadcast = UserBroadcast { event: "e".into(), payload: text("4") };
    let body = RoomMessageBody::UserBroadcast { broadcast, metadata: "".into() };
    let message = RoomMessage::with_id("a", body, Some(uuid::Uuid::from_u128(1)));
    one.rooms.publish(None, Publication { room: a.clone(), message, except: None }).await;

    // Changes of the presence become diffs on every server
    one.track(&first, "ann", json!({ "n": 2 }));
    let diff = json_of(&second.next().await);
    assert_eq!(diff[3], "presence_diff");
    let metas = |side: &str| diff[4][side]["ann"]["metas"][0]["n"].clone();
    assert_eq!((metas("joins"), metas("leaves")), (json!(2), json!(1)));
    two.track(&second, "ann", json!({ "n": 3 }));
    settles("both", || one.state(&a)["ann"]["metas"].as_array().is_some_and(|metas| metas.len() == 2)).await;
    assert_eq!(two.state(&private), json!({}));
    one.presence.untrack(&first.subscriber, "ann");
    settles("the rest", || one.state(&a) == two.state(&a)).await;

    // A server that leaves takes its presence with it, and so does one that vanishes
    two.cluster.take().unwrap().leave().await;
    settles("nothing", || one.state(&a) == json!({}) && one.remote_sockets() == 0).await;
    let third = Server::start(&database, settings, 5);
    let channel = third.join(&a);
    third.track(&channel, "cleo", json!({}));
    settles("cleo", || one.state(&a)["cleo"].is_object()).await;
    drop(third);
    settles("nothing", || one.state(&a) == json!({}) && one.remote_sockets() == 0).await;

    // Another project on the same way
    let other = RealtimeClusterSettings { secret: Secret::new("another secret"), ..settings.clone() };
    let stranger = Server::start(&database, &other, 9);
    let channel = stranger.join(&a);
    stranger.track(&channel, "eve", json!({}));
    let late = Server::start(&database, settings, 6);
    settles("the sockets", || one.remote_sockets() == 6 && late.remote_sockets() == 3).await;
    assert_eq!((one.state(&a), stranger.remote_sockets()), (json!({}), 0));
}

#[tokio::test]
async fn servers_share_through_notifications() {
    servers_share_everything(&settings(RealtimeClusterTransport::Notify)).await;
}

/// A NATS server of its own, with a password. It ends with this.
struct NatsServer {
    _process: tokio::process::Child,
    port: u16,
}

impl NatsServer {
    /// Starts a server on a port, or on a free one (-1).
    async fn start(port: i32) -> Self {
        let port = port.to_string();
        // Debian's package puts it outside of the PATH of some users
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut process = tokio::process::Command::new("nats-server")
            .env("PATH", path)
            .args(["--addr", "127.0.0.1", "--port", &port, "--user", "portico", "--pass", "s3/cret"])
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("nats-server is installed (scripts/setup test does that)");
        let mut lines = tokio::io::BufReader::new(process.stderr.take().unwrap()).lines();
        let mut port = None;
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, address)) = line.split_once("Listening for client connections on 127.0.0.1:") {
                port = Some(address.trim().parse().unwrap());
            }
            if line.contains("Server is ready") {
                break;
            }
        }
        // Its log is read to the end, so that it never waits for room
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { _process: process, port: port.expect("it listens") }
    }

    fn settings(&self) -> RealtimeClusterSettings {
        let url = Secret::new(format!("nats://portico:s3%2Fcret@127.0.0.1:{}", self.port));
        settings(RealtimeClusterTransport::Nats { url })
    }
}

#[tokio::test]
async fn servers_share_through_nats() {
    let nats = NatsServer::start(-1).await;
    servers_share_everything(&nats.settings()).await;
}

#[tokio::test]
async fn servers_find_each_other_again_after_nats_was_down() {
    let nats = NatsServer::start(-1).await;
    let (database, a) = (ScratchDatabase::new().await, room(false, "a"));
    let (one, two) = (Server::start(&database, &nats.settings(), 1), Server::start(&database, &nats.settings(), 1));
    let channel = one.join(&a);
    one.track(&channel, "ann", json!({}));
    settles("the state", || two.state(&a)["ann"].is_object()).await;
    let port = nats.port;
    drop(nats);
    settles("two is alone", || two.state(&a) == json!({})).await;
    one.track(&channel, "ann", json!({ "n": 2 }));
    let _nats = NatsServer::start(port.into()).await;
    settles("the state", || two.state(&a)["ann"]["metas"][0]["n"] == 2).await;
}

/// The connection that listens is ended while the presence changes.
#[tokio::test]
async fn missed_changes_are_made_up_for() {
    let database = ScratchDatabase::new().await;
    let settings = settings(RealtimeClusterTransport::Notify);
    let (one, two) = (Server::start(&database, &settings, 1), Server::start(&database, &settings, 1));
    settles("each other", || one.remote_sockets() == 1 && two.remote_sockets() == 1).await;
    let a = room(false, "a");
    let channels: Vec<_> = (0..10).map(|_| one.join(&a)).collect();
    for round in 0..5 {
        for (index, channel) in channels.iter().enumerate() {
            one.track(channel, &format!("key {index}"), json!({ "round": round }));
            if index == 5 {
                database
                    .run("select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%' and datname = current_database()")
                    .await;
            }
        }
        one.presence.untrack(&channels[round].subscriber, &format!("key {round}"));
        settles("the same state", || two.state(&a) == one.state(&a)).await;
    }
}
