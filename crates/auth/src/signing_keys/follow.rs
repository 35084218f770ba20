//! Keeps the keys of a running server those of its database.
//!
//! Changes are announced (`NOTIFY`); where a connection pooler keeps announcements away, and as a
//! second line, the keys are read at an interval. A request with a token of an unknown key has them
//! read at once.

use std::time::Duration;

use portico_database::Listener;
use portico_tokens::CurrentKeys;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::SigningKeys;
use crate::sql::signing_keys::{CHANNEL, SigningKeyRow};

/// The interval at which the keys are read where changes are announced, and where they are not.
const ANNOUNCED_INTERVAL: Duration = Duration::from_secs(60);
const UNANNOUNCED_INTERVAL: Duration = Duration::from_secs(5);
/// Least time between two reads, so that neither notifications nor tokens of invented keys can load
/// the database.
const LEAST_INTERVAL: Duration = Duration::from_millis(250);
/// The pause after a lost connection.
const PAUSE: Duration = Duration::from_secs(1);
/// Requests that wait for one read; more are not counted on, and go on with the known keys.
const MAX_WAITING: usize = 1024;

/// Asks the task of [`follow`] to read the keys again.
#[derive(Debug, Clone)]
pub struct KeyFollower(mpsc::Sender<oneshot::Sender<()>>);

impl KeyFollower {
    /// Returns when the keys have been read, or could not be, after this call.
    pub async fn refresh(&self) {
        let (done, waiting) = oneshot::channel();
        if self.0.try_send(done).is_ok() {
            let _ = waiting.await;
        }
    }
}

/// Returns a task that keeps `current` up to date for as long as it runs.
pub fn follow(keys: SigningKeys, current: CurrentKeys) -> (KeyFollower, impl Future<Output = ()> + Send) {
    let (sender, requests) = mpsc::channel(MAX_WAITING);
    let task = SigningKeysTask { keys, current, requests, known: None, next: Instant::now() };
    (KeyFollower(sender), task.run())
}

struct SigningKeysTask {
    keys: SigningKeys,
    current: CurrentKeys,
    requests: mpsc::Receiver<oneshot::Sender<()>>,
    /// The rows that are in force.
    known: Option<Vec<SigningKeyRow>>,
    /// The earliest time of the next read.
    next: Instant,
}

impl SigningKeysTask {
    async fn run(mut self) {
        loop {
            // Listening starts before the read, so that no change is missed
            match Listener::open(self.keys.database.endpoint(), CHANNEL).await {
                Ok(listener) => {
                    self.listen(listener).await;
                    self.read_within(PAUSE).await;
                }
                Err(error) => {
                    tracing::debug!(error = %error, "changes of signing keys are not announced for now");
                    self.read().await;
                    self.read_within(UNANNOUNCED_INTERVAL).await;
                }
            }
        }
    }

    /// Reads the keys now and after every event, until the connection is lost.
    async fn listen(&mut self, mut listener: Listener) {
        let interval = match self.keys.database.receives_notifications() {
            true => ANNOUNCED_INTERVAL,
            false => UNANNOUNCED_INTERVAL,
        };
        let mut waiting = Vec::new();
        loop {
            sleep_until(self.next).await;
            let _ = listener.pending();
            waiting.extend(std::iter::from_fn(|| self.requests.try_recv().ok()));
            self.read().await;
            waiting.drain(..).for_each(acknowledge);
            tokio::select! {
                announced = listener.next() => if announced.is_none() { return },
                Some(request) = self.requests.recv() => waiting.push(request),
                () = tokio::time::sleep(interval) => {}
            }
        }
    }

    /// Waits, and reads the keys for requests meanwhile.
    async fn read_within(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        while let Ok(Some(request)) = tokio::time::timeout_at(end, self.requests.recv()).await {
            sleep_until(self.next).await;
            self.read().await;
            acknowledge(request);
        }
        sleep_until(end).await;
    }

    async fn read(&mut self) {
        self.next = Instant::now() + LEAST_INTERVAL;
        let rows = match self.keys.rows().await {
            Ok(rows) => rows,
            Err(error) if self.keys.database.is_being_recreated() => {
                return tracing::debug!(error = %error, "the signing keys cannot be read while the database is recreated");
            }
            Err(error) => {
                return tracing::warn!(error = %error, "the signing keys could not be read; the last ones stay in use");
            }
        };
        if self.known.as_ref() == Some(&rows) {
            return;
        }
        match self.keys.assemble(&rows) {
            Ok((ring, api)) => {
                tracing::debug!(key = ring.signing_id(), "signing keys loaded");
                self.current.replace(ring, api);
                self.known = Some(rows);
            }
            Err(error) => tracing::error!(error = %error, "the signing keys cannot be used; the last ones stay in use"),
        }
    }
}

fn acknowledge(request: oneshot::Sender<()>) {
    let _ = request.send(());
}
