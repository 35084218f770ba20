//! Work that nobody waits for: removing what has expired, preparing what will be needed.

use std::time::Duration;

use portico_analytics::Analytics;
use portico_auth::Auth;
use portico_database::Database;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// How often expired sessions, tokens and flow states are removed. Each run works in small batches and skips locked rows.
const CLEAN_UP_EVERY: Duration = Duration::from_secs(60);
/// How long analytics events are kept.
const EVENTS_KEPT: time::Duration = time::Duration::days(400);
/// How often old analytics events are removed.
const EVENTS_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often the partitions of `realtime.messages` are looked after: well within the days that exist ahead.
const PARTITIONS_EVERY: Duration = Duration::from_secs(6 * 60 * 60);

/// The background tasks of a server; they end when this is dropped.
pub(crate) struct Upkeep(Vec<JoinHandle<()>>);

impl Upkeep {
    pub(crate) fn start(auth: Auth, analytics: Analytics, database: Database) -> Self {
        let clean_up = tokio::spawn(async move {
            let mut ticks = every(CLEAN_UP_EVERY);
            loop {
                ticks.tick().await;
                auth.clean_up().await;
            }
        });
        let events = tokio::spawn(async move {
            let mut ticks = every(EVENTS_EVERY);
            loop {
                ticks.tick().await;
                if let Err(error) = analytics.clean_up(EVENTS_KEPT).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "Old analytics events could not be removed"
                    );
                }
            }
        });
        let partitions = tokio::spawn(async move {
            let mut ticks = every(PARTITIONS_EVERY);
            loop {
                ticks.tick().await;
                if let Err(error) = database.maintain_message_partitions().await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "Message partitions could not be prepared"
                    );
                }
            }
        });
        Self(vec![clean_up, events, partitions])
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// The first tick is a whole period away, so that a start is not slowed down by it.
fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
