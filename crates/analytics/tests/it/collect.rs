//! The events that are stored, and those that are not.

use portico_analytics::AnalyticsLimits;
use portico_base::token_bucket::Quota;
use serde_json::Value;
use time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{Collector, USER};

const SIGN_IN: &str =
    r#"{"events":[{"name":"sign_in","properties":{"method":"google"},"occurred_at":"2026-05-01T11:59:50Z"}]}"#;

#[tokio::test]
async fn beacons_of_every_form_are_stored_as_they_were_sent() {
    let collector = Collector::start().await;
    for kind in ["application/json", "text/plain;charset=UTF-8", "Application/JSON"] {
        let answer = collector.post(SIGN_IN).header("content-type", kind).send().await.unwrap();
        assert_eq!(answer.status(), 204);
        assert_eq!(answer.text().await.unwrap(), "");
    }
    assert_eq!(
        collector.send(r#"{"events":[{"name":"page_view","properties":{"route":"/app"}},{"name":"sign_out"}]}"#).await,
        204
    );
    assert_eq!(
        collector.kept().await,
        [
            r#"sign_in {"method": "google"} - - 10 true"#,
            r#"sign_in {"method": "google"} - - 10 true"#,
            r#"sign_in {"method": "google"} - - 10 true"#,
            r#"page_view {"route": "/app"} - /app 0 true"#,
            "sign_out {} - - 0 true",
        ]
    );
    collector.end().await;
}

#[tokio::test]
async fn nothing_is_stored_of_a_browser_that_asks_not_to_be_tracked() {
    let collector = Collector::start().await;
    for name in ["dnt", "sec-gpc"] {
        let answer = collector.post(SIGN_IN).header(name, "1").send().await.unwrap();
        assert_eq!(answer.status(), 204);
    }
    assert_eq!(collector.post(SIGN_IN).header("dnt", "0").send().await.unwrap().status(), 204);
    assert_eq!(collector.kept().await.len(), 1);
    collector.end().await;
}

#[tokio::test]
async fn only_the_id_of_a_user_is_stored() {
    let collector = Collector::start().await;
    let user = "0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10";
    for subject in [user, "no-uuid"] {
        let answer = collector.post(r#"{"events":[{"name":"sign_out"}]}"#).header(USER, subject).send().await;
        assert_eq!(answer.unwrap().status(), 204);
    }
    assert_eq!(collector.kept().await, [format!("sign_out {{}} {user} - 0 true"), "sign_out {} - - 0 true".to_owned()]);
    collector.end().await;
}

#[tokio::test]
async fn a_request_with_an_invalid_event_is_rejected_as_a_whole() {
    let collector = Collector::start().await;
    for bad in [
        "",
        "nonsense",
        r#"{"events":[]}"#,
        r#"{"events":[{"name":"purchase"}]}"#,
        r#"{"events":[{"name":"sign_out"},{"name":"sign_in","properties":{"email":"ada@example.com"}}]}"#,
    ] {
        let answer = collector.post(bad).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{bad}");
        assert_eq!(answer.headers()["content-type"], "application/json");
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert!(body["message"].is_string());
        // The input may be personal data, so it is not repeated
        assert!(!body.to_string().contains("ada@"));
    }
    let form = collector.post("a=b").header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(form.send().await.unwrap().status(), 415);
    assert_eq!(collector.post(vec![b' '; 64 * 1024 + 1]).send().await.unwrap().status(), 413);
    assert_eq!(collector.post(SIGN_IN).header("sec-fetch-site", "cross-site").send().await.unwrap().status(), 403);
    assert_eq!(collector.http.get(&collector.url).send().await.unwrap().status(), 405);
    assert_eq!(collector.kept().await, Vec::<String>::new());
    collector.end().await;
}

fn many(count: usize) -> String {
    format!("{{\"events\":[{}]}}", vec![r#"{"name":"sign_out"}"#; count].join(","))
}

#[tokio::test]
async fn an_address_that_sends_too_many_events_gets_429_and_a_time_to_retry() {
    let collector = Collector::start().await;
    for _ in 0..6 {
        assert_eq!(collector.send(&many(50)).await, 204);
    }
    let answer = collector.post(SIGN_IN).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    // Time that runs backwards, and forwards again, allows nothing
    for hours in [-1, 1] {
        collector.clock.advance(Duration::hours(hours));
        assert_eq!(collector.send(SIGN_IN).await, 429);
    }
    collector.clock.advance(Duration::SECOND);
    assert_eq!(collector.send(SIGN_IN).await, 204);
    assert_eq!(collector.kept().await.len(), 301);
    collector.end().await;
}

#[tokio::test]
async fn all_addresses_share_a_budget() {
    let limits = AnalyticsLimits { in_all: Quota::new(60.0, 1.0), ..AnalyticsLimits::default() };
    let collector = Collector::start_with(limits).await;
    assert_eq!(collector.send(&many(50)).await, 204);
    let answer = collector.post(many(50)).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"40".parse().unwrap()));
    assert_eq!(collector.send(&many(10)).await, 204);
    assert_eq!(collector.kept().await.len(), 60);
    collector.end().await;
}

#[tokio::test]
async fn the_table_keeps_the_newest_events_only() {
    let collector = Collector::start_with(AnalyticsLimits { kept: 20, ..AnalyticsLimits::default() }).await;
    for _ in 0..3 {
        assert_eq!(collector.send(&many(30)).await, 204);
        assert_eq!(collector.kept().await.len(), 20);
    }
    assert_eq!(collector.send(SIGN_IN).await, 204);
    let kept = collector.kept().await;
    assert!((20..=22).contains(&kept.len()), "a tenth more at most: {}", kept.len());
    assert!(kept.last().unwrap().starts_with("sign_in"));
    // The rest is deleted with the old events
    collector.analytics.clean_up(Duration::days(1)).await.unwrap();
    assert_eq!(collector.kept().await.len(), 20);
    collector.end().await;
}

#[tokio::test]
async fn an_event_arrives_with_the_end_of_its_body() {
    let collector = Collector::start().await;
    let address = collector.url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/events")).unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /events HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        SIGN_IN.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // The server requests the body after it has checked the head
    let mut word = [0; 25];
    socket.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
    collector.clock.advance(Duration::HOUR);
    socket.write_all(SIGN_IN.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    // Received an hour after the request began
    assert_eq!(collector.kept().await, [r#"sign_in {"method": "google"} - - 10 false"#]);
    collector.end().await;
}

#[tokio::test]
async fn old_events_are_deleted_and_newer_ones_stay() {
    let collector = Collector::start().await;
    assert_eq!(collector.send(SIGN_IN).await, 204);
    assert!(collector.analytics.flush().await);
    collector.clock.advance(Duration::days(90));
    assert_eq!(collector.send(r#"{"events":[{"name":"sign_out"}]}"#).await, 204);
    assert!(collector.analytics.flush().await);

    assert_eq!(collector.analytics.clean_up(Duration::days(91)).await.unwrap(), 0);
    assert_eq!(collector.analytics.clean_up(Duration::days(89)).await.unwrap(), 1);
    assert_eq!(collector.kept().await.len(), 1);
    collector.end().await;
}
