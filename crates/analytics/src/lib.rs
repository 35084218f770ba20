//! The built-in collector of product events: `POST /events`, stored in `portico.analytics_events`.
//!
//! Pages send events with `navigator.sendBeacon` and never read the response, so collecting must
//! cost them nothing and must not disturb sign-in or sign-out: an event waits in memory for its
//! batch, and if the database is unavailable for long, the newest events are discarded.
//!
//! Promises: only known events in their exact shape are stored; no personal data beyond the user's
//! id; nothing at all from a browser that asks not to be tracked (`DNT`, `Sec-GPC`); memory, rate
//! and the table are bounded, in events. Does not promise: that every event arrives, or arrives
//! once.
//!
//! Must not know: the readers of the events, other services, the gateway.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod event;
mod rate;
mod routes;
mod writer;

use std::sync::Arc;

use axum::Router;
use portico_base::Clock;
use portico_database::{Database, DatabaseError};

pub use rate::AnalyticsLimits;
use rate::RateLimit;
use writer::Writer;

/// The collector. Clones share the waiting events.
#[derive(Clone)]
pub struct Analytics {
    inner: Arc<AnalyticsState>,
}

struct AnalyticsState {
    database: Database,
    clock: Clock,
    rate: RateLimit,
    writer: Writer,
    /// The number of events that the table keeps.
    kept: u32,
}

impl Analytics {
    /// Returns a collector that writes to `database`. Starts a task, so it needs a Tokio runtime;
    /// the task ends after the last clone and router are dropped and the waiting events are
    /// written.
    pub fn new(database: Database, clock: Clock) -> Self {
        Self::with_limits(database, clock, AnalyticsLimits::default())
    }

    /// Like [`Analytics::new`], but with other limits.
    pub fn with_limits(database: Database, clock: Clock, limits: AnalyticsLimits) -> Self {
        let writer = Writer::start(database.clone(), limits.kept);
        let rate = RateLimit::new(clock.clone(), limits);
        Self { inner: Arc::new(AnalyticsState { database, clock, rate, writer, kept: limits.kept }) }
    }

    /// Returns the router of `POST /events`, to be mounted at `/portico/v1`, open to callers
    /// without a key.
    pub fn router(&self) -> Router {
        routes::router(self.clone())
    }

    /// Deletes events that arrived more than `keep` ago, and the oldest beyond the number that the
    /// table keeps, a bounded number at a time. Returns how many were deleted. To be called
    /// periodically; concurrent calls are harmless.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn clean_up(&self, keep: time::Duration) -> Result<u64, DatabaseError> {
        let old = match self.inner.clock.now().checked_sub(keep) {
            Some(limit) => writer::delete_before(&self.inner.database, limit).await?,
            // There are no events before the beginning of the calendar
            None => 0,
        };
        Ok(old + writer::delete_surplus(&self.inner.database, self.inner.kept, u32::MAX).await?)
    }

    /// Writes the waiting events now, for a clean shutdown. Returns false if the database did not
    /// store them.
    pub async fn flush(&self) -> bool {
        self.inner.writer.flush().await
    }
}
