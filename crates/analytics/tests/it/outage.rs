//! A database that is unavailable for a while.

use crate::Collector;

const SIGN_OUT: &str = r#"{"events":[{"name":"sign_out"}]}"#;

#[tokio::test]
async fn events_wait_while_no_connection_is_free_without_delaying_the_sender() {
    let collector = Collector::start().await;
    // The only connection
    let taken = collector.database.login_client().await.unwrap();
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(!collector.analytics.flush().await);
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(!collector.analytics.flush().await);
    drop(taken);
    assert_eq!(collector.kept().await.len(), 2);
    collector.end().await;
}

#[tokio::test]
async fn no_event_is_lost_when_the_schema_is_recreated() {
    let collector = Collector::start().await;
    let run = async |sql: &str| collector.database.login_client().await.unwrap().batch_execute(sql).await.unwrap();
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(collector.analytics.flush().await);

    run("alter table portico.analytics_events rename to away").await;
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(!collector.analytics.flush().await);
    run("alter table portico.away rename to analytics_events").await;
    assert_eq!(collector.kept().await.len(), 2);
    collector.end().await;
}
