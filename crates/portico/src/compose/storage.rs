//! `/storage/v1`: not in this version. Requests are refused as the storage service refuses a
//! feature that is off.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::service::{Service, json_error, unavailable};

/// Refuses every request.
pub(super) fn service() -> Service {
    unavailable("/storage/v1", refuse)
}

fn refuse() -> Response {
    let body = json!({
        "statusCode": "409",
        "error": "FeatureNotEnabled",
        "message": "The feature storage is not enabled for this resource",
        "code": "FeatureNotEnabled",
    });
    json_error(StatusCode::FORBIDDEN, &body)
}
