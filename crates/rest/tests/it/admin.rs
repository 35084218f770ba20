//! Monitoring endpoints.

use std::time::Duration;

use ::http::Method;
use portico_database::connect;
use portico_testkit::TestServer;
use serde_json::json;

use crate::http::CinemaServer;

/// The timeout for events that happen in the background.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn liveness_needs_no_key() {
    let server = CinemaServer::open().await;
    for path in ["/rest-admin/v1/live", "/rest-admin/v1/ready"] {
        let response = server.get(path).send().await.expect(200);
        assert!(response.body.is_empty(), "{path}");
        server.request(Method::HEAD, path).send().await.expect(200);
    }
    server.get("/rest-admin/v1/else").send().await.expect(404);
}

#[tokio::test]
async fn the_schema_cache_and_metrics_need_the_secret_key() {
    let server = CinemaServer::open().await;
    for path in ["/rest-admin/v1/schema_cache", "/rest-admin/v1/metrics"] {
        server.get(path).send().await.expect(403);
        server.get(path).key(server.api_keys().publishable()).send().await.expect(403);
    }
    let known =
        server.get("/rest-admin/v1/schema_cache").key(server.api_keys().secret()).send().await.expect(200).json();
    assert_eq!(known["archive"]["relations"], json!(["box_films", "boxes", "current_films", "films"]));
    assert_eq!(known["archive"]["functions"], json!(["hello"]));
    assert!(known.get("private").is_none());
}

#[tokio::test]
async fn metrics_have_the_names_that_dashboards_expect() {
    let server = CinemaServer::open().await;
    server.secret("/films").send().await.expect(200);
    let response = server.get("/rest-admin/v1/metrics").key(server.api_keys().secret()).send().await.expect(200);
    assert!(response.header("content-type").unwrap().starts_with("text/plain"));
    let text = response.text();
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    assert!(value("pgrst_schema_cache_loads_total{status=\"SUCCESS\"}") >= 1.0);
    assert_eq!(value("pgrst_schema_cache_loads_total{status=\"FAIL\"}"), 0.0);
    assert!(value("pgrst_schema_cache_query_time_seconds") > 0.0);
    assert_eq!(value("pgrst_db_pool_max"), 4.0);
    assert!(value("pgrst_db_pool_available") >= 1.0);
    assert_eq!(value("pgrst_db_pool_waiting"), 0.0);
    assert_eq!(value("pgrst_db_pool_timeouts_total"), 0.0);
    // The token of the secret key, at least twice
    assert!(value("pgrst_jwt_cache_requests_total") >= 2.0);
    assert!(value("pgrst_jwt_cache_hits_total") >= 1.0);
    assert_eq!(value("pgrst_jwt_cache_evictions_total"), 0.0);
}

#[tokio::test]
async fn readiness_depends_on_the_database() {
    let server = CinemaServer::open().await;
    let name: String = server.query("select current_database()::text").await[0].get(0);
    // A database can be closed only from a connection to another one
    let outside = connect(&server.endpoint().with_database("postgres")).await.unwrap();
    let allow = async |allowed: bool| {
        outside.batch_execute(&format!("alter database \"{name}\" allow_connections {allowed}")).await.unwrap();
    };
    allow(false).await;
    let rest = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid()";
    server.query(rest).await;
    until(&server, "/rest-admin/v1/ready", 503).await;
    server.get("/rest-admin/v1/live").send().await.expect(200);
    let refused = server.secret("/films").send().await.expect(503);
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    assert!(["PGRST000", "PGRST001"].contains(&refused.rejection().1.as_str()));

    allow(true).await;
    until(&server, "/rest-admin/v1/ready", 200).await;
    server.secret("/films").send().await.expect(200);
}

/// Repeats a request until the response has the status.
async fn until(server: &TestServer, path: &str, status: u16) {
    let asking = async {
        while server.get(path).send().await.status != status {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{path} never responds with {status}"));
}
