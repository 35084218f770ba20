//! The routes of the service.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::json;

use crate::broadcast::http as broadcasts;
use crate::connection::{RequestOrigin, handshake};
use crate::monitoring;
use crate::service::RealtimeService;

/// Responds to a request. Its path comes without the prefix of the service.
pub(crate) async fn respond(service: &Arc<RealtimeService>, request: Request, origin: RequestOrigin) -> Response {
    let may_be_privileged = origin.may_be_privileged;
    let path = request.uri().path();
    // Names are decoded after the path is split: they may contain an encoded slash
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match (request.method(), segments.as_slice()) {
        (_, ["websocket"] | ["socket", "websocket"]) => handshake::respond(service, request, origin),
        (&Method::GET | &Method::HEAD, ["api", "ping"]) => axum::Json(json!({ "message": "Success" })).into_response(),
        (&Method::POST, ["api", "broadcast"]) => broadcasts::broadcast_batch(service, request, may_be_privileged).await,
        (&Method::POST, ["api", "broadcast", topic, "events", event]) => {
            let decoded = |name: &str| percent_decode_str(name).decode_utf8().map(std::borrow::Cow::into_owned);
            match (decoded(topic), decoded(event)) {
                (Ok(topic), Ok(event)) => {
                    broadcasts::broadcast_one(service, request, (topic, event), may_be_privileged).await
                }
                _ => StatusCode::BAD_REQUEST.into_response(),
            }
        }
        (&Method::GET, ["api", "tenants", _, "health"]) => {
            monitoring::health(service, request.headers(), may_be_privileged).await
        }
        (&Method::GET, ["metrics"]) => monitoring::metrics(service, request.headers(), may_be_privileged),
        (&Method::GET | &Method::HEAD, ["healthcheck"]) => "ok".into_response(),
        (_, ["api", "tenants" | "openapi", ..]) => {
            (StatusCode::FORBIDDEN, axum::Json(json!({ "message": "Access is forbidden." }))).into_response()
        }
        _ => (StatusCode::NOT_FOUND, axum::Json(json!({ "message": "Not Found" }))).into_response(),
    }
}
