//! Measures the realtime service: broadcasts against a bare server on the same socket library,
//! memory of idle sockets, reconnects, database changes, messages of the database, and joins.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use self::bare::BareServer;
use self::socket::{Receiver, Sender, Tally, join};
use crate::client::{Done, PATIENCE};
use crate::report::{Report, percentile};
use crate::rounds::compare;
use crate::server::{Server, Subject, folder};

mod bare;
mod reconnects;
mod soak;
mod socket;

const PORT: u16 = 55_371;
const ROUND: Duration = Duration::from_secs(3);
/// The sockets of the measurement of memory.
const IDLE: usize = 9_900;
/// Sockets take three quarters of the connections: enough for the ten thousand of a measurement,
/// and for as many that return before the end of the former ones is known.
const CONNECTIONS: &str = "[server]\nmax_connections = 30000\n";
/// The messages that a sender has on their way at once.
const WINDOW: u64 = 16;

/// The tables and policies of the bench.
const SCHEMA: &str = "
    create table public.items (id bigint generated always as identity primary key, owner text, title text);
    alter table public.items enable row level security;
    create policy own on public.items for select to authenticated using (owner = (select auth.jwt() ->> 'sub'));
    grant select on public.items to authenticated;
    alter publication supabase_realtime add table public.items;
    create policy everyone on realtime.messages for select to anon, authenticated using (realtime.topic() like 'bench:%');";

const LATENCY: &[&str] = &["Latency", "p50", "p99"];

/// Runs the service for some minutes, and prints its memory.
pub async fn soak(minutes: u64) -> Result<()> {
    let folder = project()?;
    let server = Server::start(folder.path(), PORT).await?;
    let outcome = match Bench::on(&server, folder.path()).await {
        Ok(bench) => bench.soak(&server, minutes).await,
        Err(error) => Err(error),
    };
    server.stop(folder.path()).await?;
    outcome
}

/// Measures the selected parts.
pub async fn measure(report: &mut Report, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let folder = project()?;
    let server = Server::start(folder.path(), PORT).await?;
    let outcome = measure_on(&server, folder.path(), report, &wanted).await;
    server.stop(folder.path()).await?;
    outcome?;
    if wanted("realtime-joins") {
        return joins_with_kept_decisions(report).await;
    }
    Ok(())
}

/// Measures joins on a server that keeps the decisions of policies.
async fn joins_with_kept_decisions(report: &mut Report) -> Result<()> {
    let folder = project()?;
    let settings = format!("{CONNECTIONS}[realtime]\ndecisions_for = \"10m\"\n");
    std::fs::write(folder.path().join("supabase/portico.toml"), settings)?;
    let server = Server::start(folder.path(), PORT).await?;
    let outcome = match Bench::on(&server, folder.path()).await {
        Ok(bench) => bench.joins(report, "with decisions that are kept", "bar: 5000/s").await,
        Err(error) => Err(error),
    };
    server.stop(folder.path()).await?;
    outcome
}

/// Creates a project whose server has the connections for the sockets.
fn project() -> Result<tempfile::TempDir> {
    let folder = folder(PORT, "[realtime]\nenabled = true\n")?;
    std::fs::write(folder.path().join("supabase/portico.toml"), CONNECTIONS)?;
    Ok(folder)
}

async fn measure_on(server: &Server, folder: &Path, report: &mut Report, wanted: &impl Fn(&str) -> bool) -> Result<()> {
    let bench = Bench::on(server, folder).await?;
    if wanted("realtime-idle") {
        bench.idle(server, report).await?;
    }
    if wanted("realtime-reconnects") {
        bench.reconnects(report).await?;
    }
    if wanted("realtime-fanout") {
        bench.fan_out(report).await?;
    }
    if wanted("realtime-changes") {
        bench.changes(report).await?;
    }
    if wanted("realtime-database") {
        bench.database(report).await?;
    }
    if wanted("realtime-joins") {
        bench.joins(report, "each decided anew", "").await?;
    }
    Ok(())
}

struct Bench {
    subject: Subject,
    /// The secret that tokens are signed with.
    secret: String,
}

/// Rooms with a sender and receivers each.
struct Rooms {
    senders: Vec<Sender>,
    receivers: JoinSet<Result<()>>,
    tally: Arc<Tally>,
    size: usize,
}

impl Bench {
    /// Creates the tables and policies.
    async fn on(server: &Server, folder: &Path) -> Result<Self> {
        let subject = Subject::of(server, folder, PORT)?;
        subject.postgres.connect_as("supabase_admin").await?.batch_execute(SCHEMA).await?;
        Ok(Self { subject, secret: server.value("JWT_SECRET").to_owned() })
    }

    fn url(&self) -> String {
        format!("/realtime/v1/websocket?apikey={}&vsn=2.0.0", self.subject.key)
    }

    /// Broadcasts of one sender to a thousand, and in a hundred rooms of ten.
    async fn fan_out(&self, report: &mut Report) -> Result<()> {
        let bare = BareServer::start().await?;
        for (what, rooms, size) in [("1 sender to 1000", 1, 1000), ("100 rooms of 10", 100, 10)] {
            let subject = &mut Rooms::open(&self.subject.address, &self.url(), rooms, size).await?;
            let limit = &mut Rooms::open(bare.address(), "/", rooms, size).await?;
            let compared =
                compare(self.subject.watch, async || subject.run().await, async || limit.run().await).await?;
            compared.rates(report, &format!("Broadcast, {what}: deliveries"), "bare server", "≥ 0.7");
            compared.processor(report, &format!("A delivery, {what}"));
            let mut latencies = |name: &str, rooms: &Rooms| {
                let times = rooms.tally.take_latencies();
                let time = |percent| format!("{:.1} ms", percentile(times.clone(), percent));
                report.detail(LATENCY, vec![format!("Broadcast, {what}, {name}"), time(50), time(99)]);
            };
            latencies("Portico", subject);
            latencies("bare server", limit);
            subject.receivers.shutdown().await;
            limit.receivers.shutdown().await;
        }
        Ok(())
    }

    /// Measures the memory of sockets with one channel each.
    async fn idle(&self, server: &Server, report: &mut Report) -> Result<()> {
        // The service itself needs memory for its first socket
        let first = Receiver::open(&self.subject.address, &self.url(), "realtime:idle", r#"{"config":{}}"#).await?;
        let before = server.resident()?;
        let opened = self.open_sockets(256).await?;
        ensure!(opened.refused.is_empty(), "{:?}", opened.refused.first());
        // Buffers of the handshakes are released after a moment
        tokio::time::sleep(Duration::from_secs(5)).await;
        let each = (server.resident()?.saturating_sub(before)) as f64 / IDLE as f64 / 1024.0;
        report.row(
            "Memory of an idle socket with one channel",
            format!("{each:.1} KiB"),
            "bar: 15 KiB".to_owned(),
            String::new(),
        );
        let rate = IDLE as f64 / opened.took.as_secs_f64();
        report.row("Sockets opened and joined", format!("{rate:.0}/s"), String::new(), String::new());
        drop((opened, first));
        Ok(())
    }

    /// Measures a thousand changes per second to subscribers who share ten distinct claims, and
    /// fifty per second to subscribers with claims of their own: PostgreSQL decides about each
    /// change for each of them.
    async fn changes(&self, report: &mut Report) -> Result<()> {
        let postgres = self.subject.postgres.connect_as("supabase_admin").await?;
        for (subscribers, claims, changes) in
            [(1, 1, 20_i64), (100, 10, 20), (1_000, 10, 20), (10_000, 10, 20), (10_000, 10_000, 1)]
        {
            let tally = Arc::new(Tally::default());
            let mut receivers = JoinSet::new();
            let mut opening = JoinSet::new();
            for number in 0..subscribers {
                let (address, url) = (self.subject.address.clone(), self.url());
                let token = socket::token(&self.secret, &format!("person-{}", number % claims));
                opening.spawn(async move {
                    let entry = r#"{"event":"INSERT","schema":"public","table":"items"}"#;
                    let payload = format!(r#"{{"config":{{"postgres_changes":[{entry}]}},"access_token":"{token}"}}"#);
                    let mut receiver = Receiver::open(&address, &url, "realtime:changes", &payload).await?;
                    receiver.wait_for("Subscribed to PostgreSQL").await?;
                    Ok::<_, anyhow::Error>(receiver)
                });
                if opening.len() >= 64 {
                    let receiver = opening.join_next().await.context("a socket")???;
                    receivers.spawn(receiver.count_texts(Arc::clone(&tally)));
                }
            }
            while let Some(receiver) = opening.join_next().await {
                receivers.spawn(receiver??.count_texts(Arc::clone(&tally)));
            }
            let seconds = 5;
            let owners = claims.min(10);
            let insert = postgres
                .prepare("insert into items (owner, title) select 'person-' || (n % $1::bigint), (extract(epoch from clock_timestamp()) * 1e6)::bigint::text from generate_series($2::bigint, $2 + $3 - 1) n")
                .await?;
            let before = self.subject.watch.read()?;
            let begun = Instant::now();
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            let mut sent = 0_u64;
            while begun.elapsed() < Duration::from_secs(seconds) {
                ticks.tick().await;
                postgres.execute(&insert, &[&i64::from(owners), &(sent as i64), &changes]).await?;
                sent += changes as u64;
            }
            // Each change is for the subscribers with its owner's claims
            let expected = sent * (subscribers as u64 / claims as u64).max(1) * u64::from(claims == owners)
                + u64::from(claims != owners) * sent;
            let complete = tally.wait(expected).await;
            let took = begun.elapsed().as_secs_f64();
            let used = self.subject.watch.read()? - before;
            let times = tally.take_latencies();
            let what = format!("Database changes, {subscribers} subscribers with {claims} claims");
            report.row(
                &what,
                format!("{:.0} changes/s, {:.0} deliveries/s", sent as f64 / took, tally.count() as f64 / took),
                format!("offered: {:.0} changes/s", sent as f64 / seconds as f64),
                if complete {
                    "all delivered".to_owned()
                } else {
                    format!("{} of {expected} delivered", tally.count())
                },
            );
            let time = |percent| format!("{:.1} ms", percentile(times.clone(), percent));
            report.detail(LATENCY, vec![format!("{what}, commit to socket"), time(50), time(99)]);
            let each = |part: f64| format!("{:.0} µs", part * 1e6 / sent as f64);
            report.detail(
                &["Processor time of a change", "Server", "PostgreSQL", "Load generator"],
                vec![what, each(used.server), each(used.postgres), each(used.generator)],
            );
            receivers.shutdown().await;
        }
        Ok(())
    }

    /// Inserts into `realtime.messages` that are delivered, against the inserts alone.
    async fn database(&self, report: &mut Report) -> Result<()> {
        let postgres = self.subject.postgres.connect_as("supabase_admin").await?;
        let send = "select realtime.send('{\"n\": 1}', 'e', 'bench:db', false) from generate_series(1, 100)";
        let statement = postgres.prepare(send).await?;
        let run = async || {
            let (begun, mut calls) = (Instant::now(), 0);
            while begun.elapsed() < ROUND {
                postgres.query(&statement, &[]).await?;
                calls += 100;
            }
            Ok::<_, anyhow::Error>((calls, begun))
        };
        let tally = Arc::new(Tally::default());
        let join = r#"{"config":{"broadcast":{"replication_ready":true}}}"#;
        let mut receiver = Receiver::open(&self.subject.address, &self.url(), "realtime:bench:db", join).await?;
        receiver.wait_for("Replication connection established").await?;
        let mut counting = JoinSet::new();
        counting.spawn(receiver.count_broadcasts(Arc::clone(&tally)));
        let compared = compare(
            self.subject.watch,
            async || {
                let before = tally.count();
                let (calls, begun) = run().await?;
                ensure!(tally.wait(before + calls).await, "{} of {} messages", tally.count() - before, calls);
                Ok(Done { calls, per_second: calls as f64 / begun.elapsed().as_secs_f64() })
            },
            async || {
                // Private messages of a room without channels: the same rows, nothing to deliver
                let (begun, mut calls) = (Instant::now(), 0);
                let alone = send.replace("bench:db', false", "bench:none', true");
                let statement = postgres.prepare(&alone).await?;
                while begun.elapsed() < ROUND {
                    postgres.query(&statement, &[]).await?;
                    calls += 100;
                }
                Ok(Done { calls, per_second: calls as f64 / begun.elapsed().as_secs_f64() })
            },
        )
        .await?;
        compared.rates(report, "Messages of the database, until delivered", "inserts without a receiver", "");
        compared.processor(report, "A message of the database");
        counting.shutdown().await;
        Ok(())
    }

    /// Measures joins of private channels on a server that decides in this way.
    async fn joins(&self, report: &mut Report, decisions: &str, bar: &str) -> Result<()> {
        let what = format!("Joins of private channels, {decisions}");
        let stop = Arc::new(AtomicBool::new(false));
        let joins = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let before = self.subject.watch.read()?;
        let begun = Instant::now();
        for client in 0..32 {
            let (address, url) = (self.subject.address.clone(), self.url());
            let (stop, joins) = (Arc::clone(&stop), Arc::clone(&joins));
            tasks.spawn(async move {
                let mut socket = socket::Socket::open(&address, &url).await?;
                let mut number = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let topic = format!("realtime:bench:{client}-{}", number % 10);
                    number += 1;
                    join(&mut socket, &topic, r#"{"config":{"private":true}}"#).await?;
                    joins.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        tokio::time::sleep(ROUND).await;
        stop.store(true, Ordering::Relaxed);
        while let Some(task) = tokio::time::timeout(PATIENCE, tasks.join_next()).await? {
            task??;
        }
        let used = self.subject.watch.read()? - before;
        let count = joins.load(Ordering::Relaxed);
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        report.row(&what, format!("{rate:.0}/s"), bar.to_owned(), String::new());
        let each = |part: f64| format!("{:.0} µs", part * 1e6 / count.max(1) as f64);
        report.detail(
            &["Processor time of a join", "Server", "PostgreSQL", "Load generator"],
            vec![what, each(used.server), each(used.postgres), each(used.generator)],
        );
        Ok(())
    }
}

impl Rooms {
    async fn open(address: &str, url: &str, rooms: usize, size: usize) -> Result<Self> {
        let tally = Arc::new(Tally::default());
        let (mut senders, mut receivers) = (Vec::new(), JoinSet::new());
        for room in 0..rooms {
            let topic = format!("realtime:room-{room:03}");
            for _ in 0..size {
                let receiver = Receiver::open(address, url, &topic, "{}").await?;
                receivers.spawn(receiver.count_broadcasts(Arc::clone(&tally)));
            }
            senders.push(Sender::open(address, url, &topic).await?);
        }
        Ok(Self { senders, receivers, tally, size })
    }

    /// Sends for one round, each sender with a window of messages on their way.
    async fn run(&mut self) -> Result<Done> {
        let before = self.tally.count();
        let begun = Instant::now();
        let rooms = self.senders.len() as u64;
        let mut sent = 0;
        while begun.elapsed() < ROUND {
            for sender in &mut self.senders {
                sender.send(WINDOW / 4).await?;
            }
            sent += rooms * WINDOW / 4;
            let on_their_way = rooms * WINDOW * self.size as u64;
            let least = (sent * self.size as u64).saturating_sub(on_their_way);
            ensure!(self.tally.wait(before + least).await, "messages were lost");
        }
        ensure!(self.tally.wait(before + sent * self.size as u64).await, "messages were lost");
        let calls = self.tally.count() - before;
        Ok(Done { calls, per_second: calls as f64 / begun.elapsed().as_secs_f64() })
    }
}
