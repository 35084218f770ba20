//! The collector of product events, at `/portico/v1`.

use std::time::Duration;

use portico_analytics::Analytics;
use portico_gateway::AccessRules;

use super::service::{Foundation, Service};

/// The time for which events are kept.
const RETENTION: time::Duration = time::Duration::days(400);
/// The period at which older events are removed.
const CLEAN_UP_PERIOD: Duration = Duration::from_secs(60 * 60);

/// Returns the collector, open to callers without an API key.
pub(super) fn service(foundation: &Foundation) -> Service {
    let analytics = Analytics::new(foundation.database.clone(), foundation.clock.clone());
    let (cleaned, closed) = (analytics.clone(), analytics.clone());
    Service::new()
        .mount("/portico/v1", analytics.router(), AccessRules::open().own_tokens())
        .every(CLEAN_UP_PERIOD, move || {
            let analytics = cleaned.clone();
            async move {
                if let Err(error) = analytics.clean_up(RETENTION).await {
                    tracing::warn!(error = %error, "old analytics events could not be removed");
                }
            }
        })
        .before_close(move || async move {
            if !closed.flush().await {
                tracing::warn!("some analytics events could not be written");
            }
        })
}
