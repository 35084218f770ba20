//! Runs the realtime service for some minutes under everything that it does, and prints its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Bench;
use super::socket::{Socket, join, token};
use crate::client::PATIENCE;
use crate::server::Server;

/// The rooms, each with as many sockets that stay.
const ROOMS: usize = 30;
const MEMBERS: usize = 10;
/// The sockets that stay and receive database changes.
const SUBSCRIBERS: usize = 50;
/// The tasks that connect, join, speak and leave, over and over.
const VISITORS: usize = 8;
const VISIT_PERIOD: Duration = Duration::from_millis(100);
const BROADCAST_PERIOD: Duration = Duration::from_millis(200);
const WRITE_PERIOD: Duration = Duration::from_millis(100);
/// Sooner than the server takes a silent socket for lost.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(20);
const PRINT_PERIOD: Duration = Duration::from_secs(10);

/// The changes of a subscriber, by filter and by the policy of the table.
const CHANGES: &str = r#"{"event":"*","schema":"public","table":"items","filter":"title=neq.x"},{"event":"DELETE","schema":"public","table":"items"}"#;

/// Counts what has happened so far.
#[derive(Default)]
struct Counts {
    visits: AtomicU64,
    frames: AtomicU64,
    changes: AtomicU64,
}

impl Bench {
    /// Prints the server's resident memory every ten seconds. A task that fails ends the run.
    pub(super) async fn soak(&self, server: &Server, minutes: u64) -> Result<()> {
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        for number in 0..ROOMS * MEMBERS {
            let room = format!("realtime:soak-{}", number % ROOMS);
            let socket = self.member(&room, "{}").await?;
            let is_speaker = number < ROOMS;
            tasks.spawn(stay(socket, is_speaker.then_some(room), Arc::clone(&counts)));
        }
        for number in 0..SUBSCRIBERS {
            let token = token(&self.secret, &format!("person-{}", number % 10));
            let payload = format!(r#"{{"config":{{"postgres_changes":[{CHANGES}]}},"access_token":"{token}"}}"#);
            let socket = self.member("realtime:changes", &payload).await?;
            tasks.spawn(stay(socket, None, Arc::clone(&counts)));
        }
        for number in 0..VISITORS {
            let visitor = Visitor {
                address: self.subject.address.clone(),
                url: self.url(),
                token: token(&self.secret, &format!("person-{number}")),
            };
            tasks.spawn(visitor.run(Arc::clone(&counts)));
        }
        let postgres = self.subject.postgres.connect_as("supabase_admin").await?;
        tasks.spawn(write(postgres));

        let begun = Instant::now();
        let mut prints = interval(PRINT_PERIOD);
        let mut memory = Vec::new();
        println!("seconds  resident MiB  visits  frames received  database changes received");
        while begun.elapsed() < Duration::from_secs(60 * minutes) {
            tokio::select! {
                _ = prints.tick() => {
                    let mib = server.resident()? as f64 / 1024.0 / 1024.0;
                    memory.push(mib);
                    let [visits, frames, changes] =
                        [&counts.visits, &counts.frames, &counts.changes].map(|count| count.load(Ordering::Relaxed));
                    println!("{:7}  {mib:12.1}  {visits:6}  {frames:15}  {changes:25}", begun.elapsed().as_secs());
                }
                Some(ended) = tasks.join_next() => ended??,
            }
        }
        tasks.shutdown().await;
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        let (middle, last) = (memory.len() / 2, memory.len().saturating_sub(6));
        println!(
            "resident memory, mean: {:.1} MiB in the minute after the half, {:.1} MiB in the last one",
            mean(&memory[middle..memory.len().min(middle + 6)]),
            mean(&memory[last..])
        );
        Ok(())
    }

    /// Opens a socket and joins a channel.
    async fn member(&self, topic: &str, payload: &str) -> Result<Socket> {
        let mut socket = Socket::open(&self.subject.address, &self.url()).await?;
        join(&mut socket, topic, payload).await?;
        Ok(socket)
    }
}

/// Receives for ever, sends heartbeats and, if there is a room to speak to, broadcasts.
async fn stay(mut socket: Socket, speaks_to: Option<String>, counts: Arc<Counts>) -> Result<()> {
    let mut heartbeats = interval(HEARTBEAT_PERIOD);
    let mut broadcasts = interval(BROADCAST_PERIOD);
    let speech = speaks_to.map(|room| {
        format!(r#"["1","3","{room}","broadcast",{{"type":"broadcast","event":"tick","payload":{{"n":1}}}}]"#)
    });
    loop {
        tokio::select! {
            _ = heartbeats.tick() => socket.send(1, br#"[null,"2","phoenix","heartbeat",{}]"#).await?,
            _ = broadcasts.tick(), if speech.is_some() => {
                socket.send(1, speech.as_deref().unwrap_or_default().as_bytes()).await?;
            }
            frame = socket.receive() => {
                let is_change = memchr::memmem::find(&frame?, b"\"postgres_changes\"").is_some();
                let count = if is_change { &counts.changes } else { &counts.frames };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A client that connects, joins a public, a private and a changes channel, speaks, and leaves:
/// politely at every second visit, else by closing the connection.
struct Visitor {
    address: String,
    url: String,
    token: String,
}

impl Visitor {
    async fn run(self, counts: Arc<Counts>) -> Result<()> {
        let mut visits = interval(VISIT_PERIOD);
        visits.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0_u64.. {
            visits.tick().await;
            timeout(PATIENCE, self.visit(number)).await.context("a visit takes too long")??;
            counts.visits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn visit(&self, number: u64) -> Result<()> {
        let token = &self.token;
        let mut socket = Socket::open(&self.address, &self.url).await?;
        let room = format!("realtime:soak-{}", number % ROOMS as u64);
        let presence = r#"{"config":{"presence":{"key":"","enabled":true}}}"#;
        join(&mut socket, &room, presence).await?;
        let private = format!(r#"{{"config":{{"private":true}},"access_token":"{token}"}}"#);
        join(&mut socket, &format!("realtime:bench:{number}"), &private).await?;
        let changes = format!(r#"{{"config":{{"postgres_changes":[{CHANGES}]}},"access_token":"{token}"}}"#);
        join(&mut socket, &format!("realtime:changes-{}", number % 7), &changes).await?;
        let track = r#"{"type":"presence","event":"track","payload":{"name":"visitor"}}"#;
        socket.send(1, format!(r#"["1","3","{room}","presence",{track}]"#).as_bytes()).await?;
        let speak = r#"{"type":"broadcast","event":"hello","payload":{"text":"hello"}}"#;
        socket.send(1, format!(r#"["1","4","{room}","broadcast",{speak}]"#).as_bytes()).await?;
        if number.is_multiple_of(2) {
            socket.send(1, format!(r#"["1","5","{room}","phx_leave",{{}}]"#).as_bytes()).await?;
            while memchr::memmem::find(&socket.receive().await?, b"phx_close").is_none() {}
        }
        Ok(())
    }
}

/// Inserts and deletes rows that are published, and sends messages from SQL.
async fn write(postgres: tokio_postgres::Client) -> Result<()> {
    let mut ticks = interval(WRITE_PERIOD);
    loop {
        ticks.tick().await;
        let inserted = postgres
            .execute(
                "insert into items (owner, title) select 'person-' || n % 10, 'text' from generate_series(1, 5) n",
                &[],
            )
            .await?;
        ensure!(inserted == 5, "{inserted} rows");
        postgres.execute("delete from items where id < (select max(id) - 1000 from items)", &[]).await?;
        postgres
            .execute("select realtime.send('{\"n\": 1}', 'e', 'soak-' || n, false) from generate_series(1, 5) n", &[])
            .await?;
    }
}
