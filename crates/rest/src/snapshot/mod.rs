//! What requests are answered with, and the task that keeps it true (contract 17.2).
//!
//! A [`Snapshot`] never changes. A change in the database makes a new one in the background; requests under way go on with theirs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use portico_database::wire::{FunctionTraits, Pool};
use portico_database::{Database, DatabaseError, Listener};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::config::database::{self, Roles};
use crate::schema::{LoadSettings, SchemaCache};

/// The role that requests log in as.
pub const LOGIN: &str = "authenticator";
/// Where PostgreSQL tells of changes.
const CHANNEL: &str = "pgrst";
/// A burst of notifications leads to one load at its begin and one after it has been quiet so long.
const BURST: Duration = Duration::from_millis(100);
/// Pauses between two attempts: seconds, doubled each time up to 2 to the power of this.
const LONGEST_PAUSE: usize = 5;
/// Indicates whether event triggers announce changes of the schema.
const ANNOUNCES: &str = "
    select exists (select from pg_catalog.pg_event_trigger where evtname = 'pgrst_ddl_watch' and evtenabled in ('O', 'A'))";
/// The catalogs that the schema cache, the roles and the settings are made of, with the column that tells the rows of
/// projects from those of PostgreSQL.
const CATALOGS: [(&str, &str); 17] = [
    ("pg_attrdef", "adrelid"),
    ("pg_attribute", "attrelid"),
    ("pg_auth_members", "member"),
    ("pg_cast", "oid"),
    ("pg_class", "oid"),
    ("pg_constraint", "oid"),
    ("pg_db_role_setting", "setrole"),
    ("pg_description", "objoid"),
    ("pg_enum", "enumtypid"),
    ("pg_index", "indexrelid"),
    ("pg_inherits", "inhrelid"),
    ("pg_namespace", "oid"),
    ("pg_policy", "oid"),
    ("pg_proc", "oid"),
    ("pg_rewrite", "oid"),
    ("pg_trigger", "oid"),
    ("pg_type", "oid"),
];
/// How long a request waits for news of the schema before it is refused for what it does not know.
const NEWS: Duration = Duration::from_secs(10);

/// What a request is answered with, from its begin to its end.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// All settings.
    pub config: Arc<Config>,
    /// What roles bring along.
    pub roles: Arc<Roles>,
    /// The schema; `None` until it could be read once.
    pub cache: Option<Arc<SchemaCache>>,
}

/// How loading went so far, for the admin endpoints.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadStatistics {
    /// LoadStatistics that succeeded.
    pub succeeded: u64,
    /// LoadStatistics that failed.
    pub failed: u64,
    /// How long the last one took.
    pub last: Duration,
    /// A load is under way or has failed: what is served may be old.
    pub stale: bool,
}

/// The current snapshot, and the way to ask for a newer one. Clones share it.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    shared: Arc<Shared>,
    news: mpsc::Sender<oneshot::Sender<()>>,
    attempted: watch::Receiver<bool>,
}

#[derive(Debug)]
struct Shared {
    snapshot: RwLock<Arc<Snapshot>>,
    loads: RwLock<LoadStatistics>,
}

/// The task that keeps a [`SnapshotStore`] true; it ends when this is dropped.
#[derive(Debug)]
pub struct ReloadTask(JoinHandle<()>);

impl SnapshotStore {
    /// Begins to keep a state, from the server's own settings.
    pub fn keep(database: Database, pool: Pool, server: Config) -> (Self, ReloadTask) {
        let snapshot = Snapshot { config: Arc::new(server.clone()), roles: Arc::default(), cache: None };
        let shared = Arc::new(Shared { snapshot: RwLock::new(Arc::new(snapshot)), loads: RwLock::default() });
        let (news, asked) = mpsc::channel(1024);
        let (tell, attempted) = watch::channel(false);
        let work = Reloader {
            database,
            pool,
            server,
            shared: Arc::clone(&shared),
            asked,
            attempted: tell,
            silent_digest: Mutex::default(),
        };
        (Self { shared, news, attempted }, ReloadTask(tokio::spawn(work.run())))
    }

    /// The snapshot of this moment. The first requests of a start wait until the schema was read, or could not be.
    pub async fn current(&self) -> Arc<Snapshot> {
        if !*self.attempted.borrow() {
            let mut attempted = self.attempted.clone();
            // An error means that the task has ended: what there is has to do
            let _ = attempted.wait_for(|attempted| *attempted).await;
        }
        self.now()
    }

    /// The snapshot of this moment, without waiting for the first.
    pub fn now(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until everything that was committed before this call is in the snapshot, as far as PostgreSQL tells of it: a migration that
    /// is followed by a request at once must not fail for the time that a reload takes. `None`: nothing is newer than `known`.
    pub async fn newer_than(&self, known: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        let (done, settled) = oneshot::channel();
        self.news.send(done).await.ok()?;
        // No answer in time: the refusal is then given as it is
        tokio::time::timeout(NEWS, settled).await.ok()?.ok()?;
        let current = self.current().await;
        (!Arc::ptr_eq(known, &current)).then_some(current)
    }

    /// How loading went so far.
    pub fn loads(&self) -> LoadStatistics {
        *self.shared.loads.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a query for a digest of the catalogs. A row that changes gets another `xmin`.
fn digest_query() -> String {
    let of = |(catalog, column): (&str, &str)| {
        // The public schema is of PostgreSQL's, and settings may be for all roles
        let is_whole = matches!(catalog, "pg_namespace" | "pg_db_role_setting" | "pg_auth_members");
        let rows = if is_whole { String::new() } else { format!(" where {column} >= 16384") };
        format!(
            "select '{catalog} ' || sum(pg_catalog.hashtextextended(xmin::text || ' ' || {column}, 0)) from pg_catalog.{catalog}{rows}"
        )
    };
    let digests = CATALOGS.map(of).join(" union all ");
    format!(
        "select pg_catalog.md5(pg_catalog.string_agg(digest, ',' order by digest)) from ({digests}) as catalogs (digest)"
    )
}

/// Waits until then; for ever where there is nothing to wait for.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Drop for ReloadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a payload asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReloadScope {
    Config,
    Schema,
}

impl ReloadScope {
    fn parse(payload: &str) -> Option<Self> {
        match payload {
            "" | "reload schema" => Some(Self::Schema),
            "reload config" => Some(Self::Config),
            _ => None,
        }
    }

    fn most(payloads: impl IntoIterator<Item = String>) -> Option<Self> {
        payloads.into_iter().filter_map(|payload| Self::parse(&payload)).max()
    }
}

struct Reloader {
    database: Database,
    pool: Pool,
    server: Config,
    shared: Arc<Shared>,
    asked: mpsc::Receiver<oneshot::Sender<()>>,
    attempted: watch::Sender<bool>,
    /// Where no event trigger announces changes: the digest of the catalogs before they were read last.
    silent_digest: Mutex<Option<String>>,
}

impl Reloader {
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            // Listening comes first: what changes during the load is told again
            let outcome = match Listener::open(self.database.endpoint(), CHANNEL).await {
                Ok(listener) => self.follow(listener, &mut failures).await,
                Err(error) => Err(error),
            };
            self.change_loads(|loads| loads.stale = true);
            // Changes are not announced to anyone now
            self.pool.forget_function_traits();
            self.attempted.send_replace(true);
            if let Err(error) = outcome {
                let error = &error as &dyn std::error::Error;
                if self.database.is_being_recreated() {
                    tracing::debug!(
                        error,
                        "The schema of the data API can not be read while the database is made anew"
                    );
                } else {
                    tracing::warn!(
                        error,
                        "The schema of the data API could not be read; the last one is used until it can"
                    );
                }
            }
            // A connection that was fine and is lost may be had again at once
            let pause = match failures {
                0 => Duration::ZERO,
                more => Duration::from_secs(1 << (more - 1).min(LONGEST_PAUSE)),
            };
            failures += 1;
            self.wait(pause).await;
        }
    }

    /// Waits, and sends those away who ask for news: there will be none for now.
    async fn wait(&mut self, pause: Duration) {
        let end = tokio::time::Instant::now() + pause;
        loop {
            match tokio::time::timeout_at(end, self.asked.recv()).await {
                Ok(Some(done)) => drop(done),
                // Nobody can ask any more; the task will be ended
                Ok(None) => return tokio::time::sleep_until(end).await,
                Err(_) => return,
            }
        }
    }

    /// LoadStatistics everything and then what is told of, until the connection is lost or a load fails.
    async fn follow(&mut self, mut listener: Listener, failures: &mut usize) -> Result<(), DatabaseError> {
        self.load(ReloadScope::Schema).await?;
        *failures = 0;
        self.attempted.send_replace(true);
        let mut looked = tokio::time::Instant::now();
        loop {
            let next_look = self.poll().map(|poll| looked + poll);
            tokio::select! {
                payload = listener.next() => {
                    let Some(payload) = payload else { return Ok(()) };
                    let Some(change) = ReloadScope::most([payload].into_iter().chain(listener.pending())) else { continue };
                    self.load(change).await?;
                    self.quiet(&mut listener).await?;
                }
                asked = self.asked.recv() => {
                    let Some(asked) = asked else { return Ok(()) };
                    self.settle(&mut listener, asked).await?;
                }
                () = until(next_look) => {
                    self.look().await?;
                    looked = tokio::time::Instant::now();
                }
            }
        }
    }

    /// Returns the interval at which to look for changes that are not announced.
    fn poll(&self) -> Option<Duration> {
        self.silent_digest().as_ref()?;
        self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner).config.schema_poll
    }

    fn silent_digest(&self) -> MutexGuard<'_, Option<String>> {
        self.silent_digest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the schema if it has changed since it was read last.
    async fn look(&self) -> Result<(), DatabaseError> {
        let client = self.database.acting_as(LOGIN).await?;
        let digest: Option<String> = client.query_one(&digest_query(), &[]).await?.get(0);
        drop(client);
        if *self.silent_digest() != digest {
            self.load(ReloadScope::Schema).await?;
        }
        Ok(())
    }

    /// After a load, notifications of the same burst are collected for one more load; whoever asks is served at once.
    async fn quiet(&mut self, listener: &mut Listener) -> Result<(), DatabaseError> {
        let end = tokio::time::Instant::now() + BURST;
        let mut announced = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(end) => break,
                payload = listener.next() => {
                    let Some(payload) = payload else { return Ok(()) };
                    announced = announced.max(ReloadScope::parse(&payload));
                    self.pool.forget_function_traits();
                }
                asked = self.asked.recv() => {
                    let Some(asked) = asked else { return Ok(()) };
                    // It may have been announced before the question came
                    if let Some(change) = announced.take() {
                        self.load(change).await?;
                    }
                    self.settle(listener, asked).await?;
                }
            }
        }
        match announced.max(ReloadScope::most(listener.pending())) {
            Some(change) => self.load(change).await,
            None => Ok(()),
        }
    }

    async fn settle(&mut self, listener: &mut Listener, asked: oneshot::Sender<()>) -> Result<(), DatabaseError> {
        let mut waiting = vec![asked];
        waiting.extend(std::iter::from_fn(|| self.asked.try_recv().ok()));
        listener.catch_up().await?;
        if let Some(change) = ReloadScope::most(listener.pending()) {
            self.load(change).await?;
        }
        for done in waiting {
            let _ = done.send(());
        }
        Ok(())
    }

    async fn load(&self, change: ReloadScope) -> Result<(), DatabaseError> {
        let begun = std::time::Instant::now();
        self.change_loads(|loads| loads.stale = true);
        // Until the new cache is there
        self.pool.forget_function_traits();
        let outcome = self.read(change).await;
        self.change_loads(|loads| {
            loads.last = begun.elapsed();
            match outcome {
                Ok(()) => (loads.succeeded, loads.stale) = (loads.succeeded + 1, false),
                Err(_) => loads.failed += 1,
            }
        });
        outcome
    }

    async fn read(&self, change: ReloadScope) -> Result<(), DatabaseError> {
        // Never in a session that a superuser began: `db_pre_config` is a function of the project
        let client = self.database.acting_as(LOGIN).await?;
        client.batch_execute("set statement_timeout = '60s'; set timezone = 'UTC'").await?;
        let announces: bool = client.query_one(ANNOUNCES, &[]).await?.get(0);
        let digest = if announces { None } else { client.query_one(&digest_query(), &[]).await?.get(0) };
        let (config, roles) = database::load(&client, LOGIN, &self.server).await?;
        let before = Arc::clone(&self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner));
        let is_same_place =
            before.config.schemas == config.schemas && before.config.extra_search_path == config.extra_search_path;
        let cache = match (&before.cache, change) {
            (Some(cache), ReloadScope::Config) if is_same_place => Arc::clone(cache),
            _ => {
                let settings = LoadSettings {
                    schemas: config.schemas.clone(),
                    extra_search_path: config.extra_search_path.clone(),
                    // They come with PostgreSQL's version: reading them takes longer than all the rest
                    time_zones: before.cache.as_ref().map(|cache| Arc::clone(&cache.time_zones)),
                };
                Arc::new(crate::schema::load(&client, &settings).await?)
            }
        };
        let traits = FunctionTraits::load(&client).await?;
        let is_new_schema = before.cache.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &cache));
        self.pool.set_prepared(config.prepared_statements);
        let snapshot = Snapshot { config: Arc::new(config), roles: Arc::new(roles), cache: Some(cache) };
        *self.shared.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        if is_new_schema && before.cache.is_some() {
            // What connections have prepared and know of the catalog may be old
            self.pool.renew();
        }
        self.pool.set_function_traits(traits);
        *self.silent_digest() = digest;
        Ok(())
    }

    fn change_loads(&self, change: impl FnOnce(&mut LoadStatistics)) {
        change(&mut self.shared.loads.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_reload_outweighs_one_of_the_configuration() {
        let most = |payloads: &[&str]| ReloadScope::most(payloads.iter().map(|payload| (*payload).to_owned()));
        assert_eq!(most(&["reload config"]), Some(ReloadScope::Config));
        assert_eq!(most(&["reload config", "", "something"]), Some(ReloadScope::Schema));
        assert_eq!(most(&["reload schema", "reload config"]), Some(ReloadScope::Schema));
        assert_eq!(most(&["reload", "Reload Schema"]), None);
    }
}
