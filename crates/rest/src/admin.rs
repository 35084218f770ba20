//! For who watches the service: alive, ready, what it knows and how it does (contract 21.3).

use std::fmt::Write as _;

use axum::Extension;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};

use portico_tokens::{Caller, RingFigures};

use crate::service::Rest;

pub(crate) fn router(rest: Rest) -> Router {
    Router::new()
        .route("/live", get(StatusCode::OK))
        .route("/ready", get(ready))
        .route("/schema_cache", get(schema_cache))
        .route("/metrics", get(metrics))
        .with_state(rest)
}

/// Ready as long as the schema was read at least once, is the newest as far as is known, and the database answers.
async fn ready(State(rest): State<Rest>) -> StatusCode {
    let is_loaded = rest.inner.state.current().await.cache.is_some() && !rest.inner.state.loads().stale;
    if is_loaded && rest.inner.pool.checkout().await.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// What is known of the exposed schemas, by name, for the secret key only: enough to see whether a table or function was found.
async fn schema_cache(State(rest): State<Rest>, Extension(caller): Extension<Caller>) -> Response {
    if !caller.is_service_role() {
        return StatusCode::FORBIDDEN.into_response();
    }
    let snapshot = rest.inner.state.current().await;
    let Some(cache) = &snapshot.cache else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    axum::Json(cache.outline()).into_response()
}

/// Of our keys, which all services use, and those that the database names.
async fn token_figures(rest: &Rest) -> RingFigures {
    let own = rest.inner.keys.figures();
    match &rest.inner.state.current().await.config.keys {
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

async fn metrics(State(rest): State<Rest>, Extension(caller): Extension<Caller>) -> Response {
    if !caller.is_service_role() {
        return StatusCode::FORBIDDEN.into_response();
    }
    let (pool, loads, settings) = (rest.inner.pool.status(), rest.inner.state.loads(), rest.inner.pool.timeouts());
    let mut text = String::with_capacity(1024);
    let mut put = |name: &str, kind: &str, help: &str, samples: &[(&str, f64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    put(
        "pgrst_db_pool_timeouts_total",
        "counter",
        "Requests that waited too long for a connection",
        &[("", settings as f64)],
    );
    put("pgrst_db_pool_available", "gauge", "Open connections that are idle", &[("", pool.idle as f64)]);
    put("pgrst_db_pool_waiting", "gauge", "Requests that wait for a connection", &[("", pool.waiting as f64)]);
    put("pgrst_db_pool_max", "gauge", "Connections at most", &[("", rest.inner.connections as f64)]);
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
    let tokens = token_figures(&rest).await;
    for (name, help, value) in [
        ("requests", "Tokens that were looked up among those verified before", tokens.presented),
        ("hits", "Tokens that were found there", tokens.remembered),
        ("evictions", "Verified tokens that were forgotten for newer ones", tokens.forgotten),
    ] {
        put(&format!("pgrst_jwt_cache_{name}_total"), "counter", help, &[("", value as f64)]);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
