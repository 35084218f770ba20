//! A database that is away for a while.

use crate::Collector;

const SIGN_OUT: &str = r#"{"events":[{"name":"sign_out"}]}"#;

#[tokio::test]
async fn events_wait_while_no_connection_is_free_and_the_sender_does_not_notice() {
    let collector = Collector::start().await;
    // The only one there is
    let taken = collector.database.service().await.unwrap();
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(!collector.analytics.flush().await);
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(!collector.analytics.flush().await);
    drop(taken);
    assert_eq!(collector.kept().await.len(), 2);
    collector.end().await;
}

#[tokio::test]
async fn a_schema_that_was_made_anew_costs_no_event() {
    let collector = Collector::start().await;
    let run = async |sql: &str| collector.database.service().await.unwrap().batch_execute(sql).await.unwrap();
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(collector.analytics.flush().await);

    run("alter table portico.analytics_events rename to away").await;
    assert_eq!(collector.send(SIGN_OUT).await, 204);
    assert!(!collector.analytics.flush().await);
    run("alter table portico.away rename to analytics_events").await;
    assert_eq!(collector.kept().await.len(), 2);
    collector.end().await;
}
