//! `/realtime/v1`: not in this version. Connections are refused before they are upgraded, as for a
//! service that is suspended. The partitions of `realtime.messages` are maintained all the same:
//! SQL can write messages.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::service::{Foundation, Service, json_error, unavailable};

/// The period at which partitions are made: well within the days that exist ahead.
const PARTITION_PERIOD: Duration = Duration::from_secs(6 * 60 * 60);

/// Refuses every request, and maintains the partitions.
pub(super) fn service(foundation: &Foundation) -> Service {
    let database = foundation.database.clone();
    unavailable("/realtime/v1", refuse).every(PARTITION_PERIOD, move || {
        let database = database.clone();
        async move {
            if let Err(error) = database.maintain_message_partitions().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "could not prepare message partitions");
            }
        }
    })
}

fn refuse() -> Response {
    let message = "Realtime was disabled for this tenant";
    let body = json!({ "error": message, "code": "RealtimeDisabledForTenant", "message": message });
    json_error(StatusCode::FORBIDDEN, &body)
}
