//! Endpoints for monitoring: liveness, readiness, the schema cache, metrics.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};

use portico_tokens::{Caller, RingFigures};

use crate::data_api::DataApi;

pub(crate) fn router(service: Arc<DataApi>) -> Router {
    Router::new()
        .route("/live", get(StatusCode::OK))
        .route("/ready", get(ready))
        .route("/schema_cache", get(schema_cache))
        .route("/metrics", get(metrics))
        .with_state(service)
}

/// Reports whether the schema cache is loaded and, as far as is known, current, and the database
/// answers.
async fn ready(State(service): State<Arc<DataApi>>) -> StatusCode {
    let is_loaded = service.snapshots.current().await.cache.is_some() && !service.snapshots.statistics().stale;
    if is_loaded && service.pool.checkout().await.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Returns the names of the relations and functions of the exposed schemas, for the secret key
/// only: enough to see whether the cache contains a table or function.
async fn schema_cache(State(service): State<Arc<DataApi>>, Extension(caller): Extension<Caller>) -> Response {
    if !caller.is_service_role() {
        return StatusCode::FORBIDDEN.into_response();
    }
    let snapshot = service.snapshots.current().await;
    let Some(cache) = &snapshot.cache else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    axum::Json(cache.outline()).into_response()
}

/// Returns the figures of the server's keys, which all services share, and of the keys that the
/// database defines.
async fn token_figures(service: &DataApi) -> RingFigures {
    let own = service.keys.figures();
    match &service.snapshots.current().await.config.keys {
        None => own,
        Some(keys) => {
            let also = keys.figures();
            RingFigures {
                presented: own.presented + also.presented,
                remembered: own.remembered + also.remembered,
                forgotten: own.forgotten + also.forgotten,
                bytes: own.bytes + also.bytes,
            }
        }
    }
}

async fn metrics(State(service): State<Arc<DataApi>>, Extension(caller): Extension<Caller>) -> Response {
    if !caller.is_service_role() {
        return StatusCode::FORBIDDEN.into_response();
    }
    let (pool, loads, timeouts) = (service.pool.status(), service.snapshots.statistics(), service.pool.timeouts());
    let mut text = String::with_capacity(1024);
    let mut put = |name: &str, metric_type: &str, help: &str, samples: &[(&str, f64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {metric_type}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    put(
        "pgrst_db_pool_timeouts_total",
        "counter",
        "Requests that waited too long for a connection",
        &[("", timeouts as f64)],
    );
    put("pgrst_db_pool_available", "gauge", "Open connections that are idle", &[("", pool.idle as f64)]);
    put("pgrst_db_pool_waiting", "gauge", "Requests that wait for a connection", &[("", pool.waiting as f64)]);
    put("pgrst_db_pool_max", "gauge", "Connections at most", &[("", service.connections as f64)]);
    put(
        "pgrst_schema_cache_loads_total",
        "counter",
        "Loads of the schema cache",
        &[("{status=\"SUCCESS\"}", loads.succeeded as f64), ("{status=\"FAIL\"}", loads.failed as f64)],
    );
    put(
        "pgrst_schema_cache_query_time_seconds",
        "gauge",
        "How long the last load of the schema cache took",
        &[("", loads.last.as_secs_f64())],
    );
    let tokens = token_figures(&service).await;
    for (name, help, value) in [
        ("requests", "Tokens that were looked up among those verified before", tokens.presented),
        ("hits", "Tokens that were found there", tokens.remembered),
        ("evictions", "Verified tokens that were forgotten for newer ones", tokens.forgotten),
    ] {
        put(&format!("pgrst_jwt_cache_{name}_total"), "counter", help, &[("", value as f64)]);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
