//! `/functions/v1`: not in this version. Requests are rejected as for a function that does not
//! exist.

use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use super::service::{Service, json_error, unavailable};

const SB_ERROR_CODE: HeaderName = HeaderName::from_static("sb-error-code");

/// Rejects every request.
pub(super) fn service() -> Service {
    unavailable("/functions/v1", reject)
}

fn reject() -> Response {
    let message = "Requested function was not found";
    let body = json!({ "code": "NOT_FOUND", "message": message, "msg": message });
    let mut response = json_error(StatusCode::NOT_FOUND, &body);
    response.headers_mut().insert(SB_ERROR_CODE, HeaderValue::from_static("NOT_FOUND"));
    response
}
