//! Requests whose bodies are held back: limits and intervals apply at the time when the request is
//! complete.

use portico_testkit::TestServer;
use serde_json::{Value, json};
use time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ADA: &str = "ada@example.com";

/// A request whose head has been received and whose body is pending.
struct HeldBack {
    stream: TcpStream,
    body: String,
}

impl HeldBack {
    async fn begin(t: &TestServer, target: &str, body: &Value) -> Self {
        let address = t.base().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await.unwrap();
        let body = body.to_string();
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: {address}\r\nx-forwarded-for: 192.0.2.1\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // Sent when the server requests the body
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n\r\n") {
            line.push(stream.read_u8().await.unwrap());
        }
        assert_eq!(line, b"HTTP/1.1 100 Continue\r\n\r\n");
        Self { stream, body }
    }

    /// Sends the body. Returns the status and the response.
    async fn finish(mut self) -> (u16, String) {
        self.stream.write_all(self.body.as_bytes()).await.unwrap();
        let mut response = String::new();
        self.stream.read_to_string(&mut response).await.unwrap();
        (response[9..12].parse().unwrap(), response)
    }
}

#[tokio::test]
async fn held_back_bodies_do_not_refill_a_limit() {
    let t = TestServer::with_auth(|settings| settings.rate_limits.per_address = true).await;
    let nothing = json!({});
    for target in ["/auth/v1/verify", "/auth/v1/otp", "/auth/v1/token?grant_type=nothing"] {
        let (mut early, mut late) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            early.push(HeldBack::begin(&t, target, &nothing).await);
        }
        t.clock().advance(Duration::minutes(5));
        for _ in 0..40 {
            late.push(HeldBack::begin(&t, target, &nothing).await);
        }
        // Requests that started five minutes apart, completed in turn
        let mut admitted = 0;
        for (early, late) in early.into_iter().zip(late) {
            for request in [late, early] {
                let (status, response) = request.finish().await;
                assert!([400, 429].contains(&status), "{response}");
                admitted += usize::from(status != 429);
            }
        }
        assert_eq!(admitted, 30, "{target}");
    }
}

#[tokio::test]
async fn a_held_back_body_does_not_extend_an_interval() {
    for version in [1, 2] {
        let t = TestServer::with_auth(|settings| {
            settings.refresh.algorithm_version = version;
            settings.email.max_frequency = std::time::Duration::from_secs(60);
        })
        .await;
        let first = t.signed_in(ADA, "correct-horse").await;
        let path = "/auth/v1/token?grant_type=refresh_token";
        let refresh = async |session: &Value| {
            t.post(path).json(&json!({"refresh_token": session["refresh_token"]})).send().await.expect(200).json()
        };
        let second = refresh(&first).await;
        refresh(&second).await;
        // Started within the reuse interval and completed after it
        let replayed = HeldBack::begin(&t, path, &json!({"refresh_token": first["refresh_token"]})).await;
        t.clock().advance(Duration::seconds(11));
        let (status, response) = replayed.finish().await;
        assert_eq!(status, 400, "{response}");
        assert!(response.contains("refresh_token_already_used"), "{response}");

        // A code that has expired when its last digit arrives
        t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
        let code = portico_testkit::code_in(t.nth_mail_to(ADA, 1).await.html());
        let typed = json!({"type": "recovery", "email": ADA, "token": code});
        let late = HeldBack::begin(&t, "/auth/v1/verify", &typed).await;
        t.clock().advance(Duration::hours(1));
        let (status, response) = late.finish().await;
        assert_eq!(status, 403, "{response}");
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_extends_no_interval_for_good() {
    let t = TestServer::with_auth(|settings| settings.email.max_frequency = std::time::Duration::from_secs(60)).await;
    let first = t.signed_in(ADA, "correct-horse").await;
    let refresh = async |session: &Value| t.refresh(session).await;
    let recover = async || t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await;
    let second = refresh(&first).await.expect(200).json();
    refresh(&second).await.expect(200);
    recover().await.expect(200);
    let code = portico_testkit::code_in(t.nth_mail_to(ADA, 1).await.html());
    t.clock().advance(-Duration::hours(2));
    // Replaced at a time that is now in the future
    assert_eq!(refresh(&first).await.rejection(), (400, "refresh_token_already_used".into()));
    let typed = json!({"type": "recovery", "email": ADA, "token": code});
    let verified = t.post("/auth/v1/verify").json(&typed).send().await;
    assert_eq!(verified.rejection(), (403, "otp_expired".into()));
    // The next message does not have to wait two hours
    recover().await.expect(200);
    assert_eq!(recover().await.rejection(), (429, "over_email_send_rate_limit".into()));
}
