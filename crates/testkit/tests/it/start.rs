//! The harness itself: a server starts on a database of its own, and forgets it.

#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use portico_testkit::TestServer;

#[tokio::test]
async fn a_server_answers_on_a_database_of_its_own() {
    let (first, second) = tokio::join!(TestServer::start(), TestServer::start());
    first.execute("create table public.only_here (id int)").await;
    assert_eq!(second.count("select count(*) from pg_tables where tablename = 'only_here'").await, 0);
    let health = first.get("/auth/v1/health").send().await.expect(200);
    assert!(health.json()["name"].is_string());
}
