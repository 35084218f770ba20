//! Reloads the schema cache and the configuration.
//!
//! An event trigger sends `notify pgrst` after DDL; clients may send it too (`reload schema`,
//! `reload config`). Where no trigger exists, the catalogs are compared at an interval.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portico_database::wire::{FunctionTraits, Pool};
use portico_database::{Database, DatabaseError, Listener};
use portico_tokens::LOGIN_ROLE;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::catalog_digest;
use super::shared::{SharedSnapshot, Snapshot};
use crate::config::RestConfig;
use crate::config::database;
use crate::schema::{LoadSettings, load as load_schema};

/// The channel on which PostgreSQL announces changes.
const CHANNEL: &str = "pgrst";
/// A burst of notifications causes a load at its start, and one after a pause of this length.
const BURST: Duration = Duration::from_millis(100);
/// The pause between attempts doubles from one second up to 2 to the power of this.
const LONGEST_PAUSE: usize = 5;
/// Returns true if an event trigger announces changes of the schema.
const ANNOUNCES: &str = "
    select exists (select from pg_catalog.pg_event_trigger where evtname = 'pgrst_ddl_watch' and evtenabled in ('O', 'A'))";

/// The scope of a reload. The schema includes the configuration.
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

    fn widest(payloads: impl IntoIterator<Item = String>) -> Option<Self> {
        payloads.into_iter().filter_map(|payload| Self::parse(&payload)).max()
    }
}

/// The state of the reload task.
pub(super) struct Reloader {
    pub database: Database,
    pub pool: Pool,
    pub server: RestConfig,
    pub shared: Arc<SharedSnapshot>,
    /// Requests that wait for everything that is committed so far.
    pub requests: mpsc::Receiver<oneshot::Sender<()>>,
    pub attempted: watch::Sender<bool>,
    /// The digest of the catalogs before the last load, where no event trigger announces changes.
    pub unannounced_digest: Mutex<Option<String>>,
}

impl Reloader {
    pub async fn run(mut self) {
        let mut failures = 0;
        loop {
            // Listening starts before the load, so that changes during the load are announced
            let outcome = match Listener::open(self.database.endpoint(), CHANNEL).await {
                Ok(listener) => self.follow(listener, &mut failures).await,
                Err(error) => Err(error),
            };
            self.shared.update_statistics(|statistics| statistics.stale = true);
            // Changes are not announced while no connection listens
            self.pool.evict_function_traits();
            self.attempted.send_replace(true);
            if let Err(error) = outcome {
                if self.database.is_being_recreated() {
                    tracing::debug!(error = %error, "the schema cache cannot be loaded while the database is recreated");
                } else {
                    tracing::warn!(error = %error, "the schema cache could not be loaded; the last one stays in use");
                }
            }
            // A connection that worked and was lost may be available again at once
            let pause = match failures {
                0 => Duration::ZERO,
                more => Duration::from_secs(1 << (more - 1).min(LONGEST_PAUSE)),
            };
            failures += 1;
            self.pause(pause).await;
        }
    }

    /// Waits, and responds to requests at once: there is nothing newer to wait for.
    async fn pause(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        loop {
            match tokio::time::timeout_at(end, self.requests.recv()).await {
                Ok(Some(done)) => drop(done),
                // All stores are dropped; the task is about to be aborted
                Ok(None) => return tokio::time::sleep_until(end).await,
                Err(_) => return,
            }
        }
    }

    /// Loads everything, and then every announced change, until the connection is lost or a load
    /// fails.
    async fn follow(&mut self, mut listener: Listener, failures: &mut usize) -> Result<(), DatabaseError> {
        self.load(ReloadScope::Schema).await?;
        *failures = 0;
        self.attempted.send_replace(true);
        let mut polled = Instant::now();
        loop {
            let next_poll = self.poll_interval().map(|interval| polled + interval);
            tokio::select! {
                payload = listener.next() => {
                    let Some(payload) = payload else { return Ok(()) };
                    let payloads = [payload].into_iter().chain(listener.pending());
                    let Some(scope) = ReloadScope::widest(payloads) else { continue };
                    self.load(scope).await?;
                    self.collect_burst(&mut listener).await?;
                }
                request = self.requests.recv() => {
                    let Some(request) = request else { return Ok(()) };
                    self.catch_up(&mut listener, request).await?;
                }
                () = sleep_until(next_poll) => {
                    self.poll().await?;
                    polled = Instant::now();
                }
            }
        }
    }

    /// Returns the interval at which to look for changes that are not announced.
    fn poll_interval(&self) -> Option<Duration> {
        self.unannounced_digest().as_ref()?;
        self.shared.snapshot().config.schema_poll
    }

    fn unannounced_digest(&self) -> MutexGuard<'_, Option<String>> {
        self.unannounced_digest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the schema if the catalogs have changed since the last load.
    async fn poll(&self) -> Result<(), DatabaseError> {
        let client = self.database.acting_as(LOGIN_ROLE).await?;
        let digest: Option<String> = client.query_one(&catalog_digest::query(), &[]).await?.get(0);
        drop(client);
        if *self.unannounced_digest() != digest {
            self.load(ReloadScope::Schema).await?;
        }
        Ok(())
    }

    /// Collects the notifications of a burst after a load, for one more load. Requests are served
    /// meanwhile.
    async fn collect_burst(&mut self, listener: &mut Listener) -> Result<(), DatabaseError> {
        let end = Instant::now() + BURST;
        let mut announced = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(end) => break,
                payload = listener.next() => {
                    let Some(payload) = payload else { return Ok(()) };
                    announced = announced.max(ReloadScope::parse(&payload));
                    self.pool.evict_function_traits();
                }
                request = self.requests.recv() => {
                    let Some(request) = request else { return Ok(()) };
                    // The change may have been announced before the request
                    if let Some(scope) = announced.take() {
                        self.load(scope).await?;
                    }
                    self.catch_up(listener, request).await?;
                }
            }
        }
        match announced.max(ReloadScope::widest(listener.pending())) {
            Some(scope) => self.load(scope).await,
            None => Ok(()),
        }
    }

    /// Loads everything that is announced so far, then responds to the requests that wait for it.
    async fn catch_up(&mut self, listener: &mut Listener, request: oneshot::Sender<()>) -> Result<(), DatabaseError> {
        let mut waiting = vec![request];
        waiting.extend(std::iter::from_fn(|| self.requests.try_recv().ok()));
        listener.catch_up().await?;
        if let Some(scope) = ReloadScope::widest(listener.pending()) {
            self.load(scope).await?;
        }
        for done in waiting {
            let _ = done.send(());
        }
        Ok(())
    }

    async fn load(&self, scope: ReloadScope) -> Result<(), DatabaseError> {
        let started = std::time::Instant::now();
        self.shared.update_statistics(|statistics| statistics.stale = true);
        // Until the new cache is in place
        self.pool.evict_function_traits();
        let outcome = self.read(scope).await;
        self.shared.update_statistics(|statistics| {
            statistics.last = started.elapsed();
            match outcome {
                Ok(()) => (statistics.succeeded, statistics.stale) = (statistics.succeeded + 1, false),
                Err(_) => statistics.failed += 1,
            }
        });
        outcome
    }

    async fn read(&self, scope: ReloadScope) -> Result<(), DatabaseError> {
        // Not in a session of a superuser: `db_pre_config` is a function of the project
        let client = self.database.acting_as(LOGIN_ROLE).await?;
        client.batch_execute("set statement_timeout = '60s'; set timezone = 'UTC'").await?;
        let announces = self.database.receives_notifications() && client.query_one(ANNOUNCES, &[]).await?.get(0);
        let digest = if announces { None } else { client.query_one(&catalog_digest::query(), &[]).await?.get(0) };
        let login = self.database.role_for(LOGIN_ROLE);
        let (mut config, roles) = database::load(&client, &login, &self.server).await?;
        config.prepared_statements &= !self.database.is_pooled();
        let before = self.shared.snapshot();
        let has_same_schemas =
            before.config.schemas == config.schemas && before.config.extra_search_path == config.extra_search_path;
        let cache = match (&before.cache, scope) {
            (Some(cache), ReloadScope::Config) if has_same_schemas => Arc::clone(cache),
            _ => {
                let settings = LoadSettings {
                    schemas: config.schemas.clone(),
                    extra_search_path: config.extra_search_path.clone(),
                    // They depend on PostgreSQL's version only, and take longer to read than
                    // everything else
                    time_zones: before.cache.as_ref().map(|cache| Arc::clone(&cache.time_zones)),
                };
                Arc::new(load_schema(&client, &settings).await?)
            }
        };
        let traits = FunctionTraits::load(&client).await?;
        if let Err(error) = self.database.record_function_traits(traits).await {
            // Sessions that share a login with others behind a pooler then end with each
            // transaction
            tracing::warn!(error = %error, "the version of the database's expressions was not recorded");
        }
        let is_new_schema = before.cache.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &cache));
        self.pool.set_prepared(config.prepared_statements);
        self.shared.replace(Snapshot { config: Arc::new(config), roles: Arc::new(roles), cache: Some(cache) });
        if is_new_schema && before.cache.is_some() {
            // Prepared statements and cached catalog entries of connections may be outdated
            self.pool.renew();
        }
        self.pool.set_function_traits(traits);
        *self.unannounced_digest() = digest;
        Ok(())
    }
}

/// Waits until `time`; forever if it is `None`.
async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_reload_includes_one_of_the_configuration() {
        let widest = |payloads: &[&str]| ReloadScope::widest(payloads.iter().map(|payload| (*payload).to_owned()));
        assert_eq!(widest(&["reload config"]), Some(ReloadScope::Config));
        assert_eq!(widest(&["reload config", "", "something"]), Some(ReloadScope::Schema));
        assert_eq!(widest(&["reload schema", "reload config"]), Some(ReloadScope::Schema));
        assert_eq!(widest(&["reload", "Reload Schema"]), None);
    }
}
