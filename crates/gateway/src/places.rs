//! Room for connections: so many at a time, and who has to go when one more comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long one connection has to go before the next one is asked, too.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often the log says that there is no room.
const SILENCE: Duration = Duration::from_secs(60);

/// The places of a listener's connections.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    most: usize,
    leaving: Arc<Leaving>,
    told: Option<Instant>,
}

/// How connections learn that they are to go: as soon as nothing is under way on them.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    word: Notify,
    is_over: AtomicBool,
}

impl Leaving {
    /// Resolves when the connection that asked is to go. From the first poll on it has a place in the order in which they have to.
    pub fn told(&self) -> Notified<'_> {
        self.word.notified()
    }

    /// Whether all have to go.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl Places {
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(most)), most, leaving: Arc::default(), told: None }
    }

    pub fn leaving(&self) -> Arc<Leaving> {
        Arc::clone(&self.leaving)
    }

    /// A place for a connection that is there already. While none is free, those that came first are asked to go, one after the other:
    /// most of them are only kept for requests that may come.
    pub async fn take(&mut self) -> OwnedSemaphorePermit {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return place;
        }
        self.complain();
        let place = loop {
            self.leaving.word.notify_one();
            let freed = tokio::time::timeout(PATIENCE, Arc::clone(&self.free).acquire_owned()).await;
            if let Ok(place) = freed {
                break place.expect("the semaphore is never closed");
            }
        };
        // A word that nobody was left to hear is not for those who come next
        let _ = self.leaving.word.notified().now_or_never();
        place
    }

    /// Asks the one that came first to go, and gives it some time for that: the system has no room for another connection.
    pub async fn make_room(&self) {
        self.leaving.word.notify_one();
        tokio::time::sleep(PATIENCE).await;
        let _ = self.leaving.word.notified().now_or_never();
    }

    /// Asks all to go.
    pub fn close(&self) {
        self.leaving.is_over.store(true, Ordering::SeqCst);
        self.leaving.word.notify_waiters();
    }

    fn complain(&mut self) {
        if self.told.is_none_or(|told| told.elapsed() >= SILENCE) {
            self.told = Some(Instant::now());
            tracing::warn!(
                max_connections = self.most,
                "as many connections are open as may be: idle ones are ended for those that come"
            );
        }
    }
}
