//! Services of the hosted platform that this version does not have. They answer like services that
//! are switched off, in JSON with a code: client libraries read such a body, and an application can
//! distinguish the refusal from a wrong address.

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use portico_gateway::Access;
use serde_json::{Value, json};

use crate::server::Mount;

const SB_ERROR_CODE: HeaderName = HeaderName::from_static("sb-error-code");

/// Returns the routers that stand in for the missing services.
pub fn mounts() -> Vec<Mount> {
    let mount = |prefix: &str, answer: fn() -> Response| Mount {
        prefix: prefix.to_owned(),
        router: Router::new().fallback(async move || answer()),
        // A body that is too long for others is not refused for its length here
        access: Access::keyed().body_limit(usize::MAX),
    };
    vec![mount("/storage/v1", storage), mount("/functions/v1", functions), mount("/realtime/v1", realtime)]
}

/// Refuses as the storage service refuses a feature that is off.
fn storage() -> Response {
    let body = json!({
        "statusCode": "409",
        "error": "FeatureNotEnabled",
        "message": "The feature storage is not enabled for this resource",
        "code": "FeatureNotEnabled",
    });
    refuse(StatusCode::FORBIDDEN, &body)
}

/// Refuses as for a function that does not exist.
fn functions() -> Response {
    let message = "Requested function was not found";
    let body = json!({ "code": "NOT_FOUND", "message": message, "msg": message });
    let mut answer = refuse(StatusCode::NOT_FOUND, &body);
    answer.headers_mut().insert(SB_ERROR_CODE, HeaderValue::from_static("NOT_FOUND"));
    answer
}

/// Refuses as for a service that is suspended: a connection before it is upgraded.
fn realtime() -> Response {
    let message = "Realtime was disabled for this tenant";
    refuse(StatusCode::FORBIDDEN, &json!({ "error": message, "code": "RealtimeDisabledForTenant", "message": message }))
}

fn refuse(status: StatusCode, body: &Value) -> Response {
    (status, axum::Json(body)).into_response()
}
