//! The health and the counters of the service, for operators: both need a secret key.

use std::fmt::Write as _;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use portico_database::wire::{Access, Batch, Statement};
use serde_json::json;

use crate::service::RealtimeService;
use crate::stream::StreamState;

/// The role of secret keys.
const OPERATOR: &str = "service_role";
/// The time for the database to respond.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The media type of Prometheus.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Responds to `GET /api/tenants/{id}/health`; there is one project, whatever its id.
pub(crate) async fn health(service: &RealtimeService, headers: &HeaderMap, may_be_privileged: bool) -> Response {
    if !is_operator(service, headers, may_be_privileged) {
        let body = json!({ "message": "Access is forbidden." });
        return (StatusCode::FORBIDDEN, axum::Json(body)).into_response();
    }
    let db_connected = is_database_connected(service).await;
    let stream = service.stream.state().borrow().clone();
    let reason = match &stream {
        StreamState::Failed(reason) => Some(reason.to_string()),
        StreamState::Stopped | StreamState::Connecting | StreamState::Running => None,
    };
    axum::Json(json!({ "data": {
        // A stream that is not in use is not missed
        "healthy": db_connected && reason.is_none(),
        "db_connected": db_connected,
        "replication_connected": stream == StreamState::Running,
        "replication_error": reason,
        "connected_cluster": service.joined_sockets(),
        "node": service.presence.node().to_string(),
    } }))
    .into_response()
}

/// Responds to `GET /metrics`, in the text format of Prometheus.
pub(crate) fn metrics(service: &RealtimeService, headers: &HeaderMap, may_be_privileged: bool) -> Response {
    if !is_operator(service, headers, may_be_privileged) {
        return StatusCode::FORBIDDEN.into_response();
    }
    ([(header::CONTENT_TYPE, METRICS_TYPE)], metrics_text(service)).into_response()
}

fn metrics_text(service: &RealtimeService) -> String {
    let mut channels = 0_u64;
    service.rooms.for_each_subscriber(|_| channels += 1);
    let is_running = *service.stream.state().borrow() == StreamState::Running;
    let metrics = [
        ("realtime_connections_connected", "gauge", service.joined_sockets()),
        ("realtime_sockets", "gauge", service.open_sockets() as u64),
        ("realtime_channels", "gauge", channels),
        ("realtime_channel_joins", "counter", service.joins.total()),
        ("realtime_channel_error", "counter", service.rejected_joins.total()),
        ("realtime_channel_events", "counter", service.events.total()),
        ("realtime_channel_presence_events", "counter", service.presence_events.total()),
        ("realtime_channel_db_events", "counter", service.changes.deliveries().total()),
        ("realtime_replication_connected", "gauge", is_running.into()),
    ];
    let mut text = String::new();
    for (name, kind, value) in metrics {
        // Writing into a string cannot fail
        let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
    }
    text
}

async fn is_database_connected(service: &RealtimeService) -> bool {
    let asked = async {
        let batch = Batch::new().statement(Statement::named("select 1", &[])).ending(Access::ReadOnly);
        service.reads.pool().checkout().await?.run(&batch).await
    };
    matches!(tokio::time::timeout(DATABASE_TIMEOUT, asked).await, Ok(Ok(_)))
}

fn is_operator(service: &RealtimeService, headers: &HeaderMap, may_be_privileged: bool) -> bool {
    let identity = service.verifier.verify_request(headers, may_be_privileged);
    identity.is_some_and(|identity| identity.role() == OPERATOR)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    use super::*;
    use crate::fixture::{ScratchDatabase, TestService};

    fn bearer(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap())])
    }

    async fn body(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    async fn read_health(test: &TestService) -> Value {
        let response = health(&test.service, &bearer(&test.token("service_role")), true).await;
        assert_eq!(response.status(), StatusCode::OK);
        serde_json::from_str::<Value>(&body(response).await).unwrap()["data"].take()
    }

    #[tokio::test]
    async fn health_and_counters_need_a_secret_key() {
        let database = ScratchDatabase::new().await;
        let test = TestService::new(&database);
        let (anon, secret) = (bearer(&test.token("anon")), bearer(&test.token("service_role")));
        for (headers, may_be_privileged) in [(&HeaderMap::new(), true), (&anon, true), (&secret, false)] {
            assert_eq!(health(&test.service, headers, may_be_privileged).await.status(), StatusCode::FORBIDDEN);
            assert_eq!(metrics(&test.service, headers, may_be_privileged).status(), StatusCode::FORBIDDEN);
        }
        test.service.joins.add(3);
        let response = metrics(&test.service, &secret, true);
        assert_eq!(response.headers()[header::CONTENT_TYPE], METRICS_TYPE);
        let text = body(response).await;
        assert!(text.contains("# TYPE realtime_channel_joins counter\nrealtime_channel_joins 3\n"), "{text}");
        assert!(text.contains("\nrealtime_connections_connected 0\n"), "{text}");
    }

    #[tokio::test]
    async fn the_health_says_what_is_wrong_with_the_stream() {
        let database = ScratchDatabase::new().await;
        let test = TestService::new(&database);
        let idle = read_health(&test).await;
        assert_eq!((&idle["healthy"], &idle["replication_connected"]), (&json!(true), &json!(false)));
        let mut state = test.service.stream.state();
        let used = test.service.stream.use_stream();
        state.wait_for(|state| *state == StreamState::Running).await.unwrap();
        let running = read_health(&test).await;
        assert_eq!((&running["healthy"], &running["replication_connected"]), (&json!(true), &json!(true)));
        // The connection is lost, and what it needs is gone
        database
            .run(
                "do $$ declare name text; begin
                   for name in select pubname from pg_catalog.pg_publication loop execute format('drop publication %I', name); end loop;
                 end $$;
                 drop table realtime.messages cascade",
            )
            .await;
        database
            .run(
                "select pg_catalog.pg_terminate_backend(active_pid) from pg_catalog.pg_replication_slots
                  where database = pg_catalog.current_database()",
            )
            .await;
        state
            .wait_for(|state| matches!(state, StreamState::Failed(reason) if reason.contains("publication")))
            .await
            .unwrap();
        let failed = read_health(&test).await;
        assert_eq!((&failed["healthy"], &failed["db_connected"]), (&json!(false), &json!(true)));
        assert!(failed["replication_error"].as_str().unwrap().contains("no publication"), "{failed}");
        drop(used);
    }
}
