//! Rate limits: each is named in its error, with the time of the next attempt.

use portico_auth::settings::SendLimit;
use portico_testkit::{TestResponse, TestServer, code_in};
use serde_json::{Value, json};
use time::Duration;

const ADA: &str = "ada@example.com";

/// Checks a 429 and returns its retry time.
fn limited(response: &TestResponse, code: &str, limit: &str) -> Duration {
    assert_eq!(response.rejection(), (429, code.to_owned()), "{limit}");
    assert_eq!(response.header("x-ratelimit-name"), Some(limit));
    assert_eq!(response.header("x-sb-error-code"), Some(code));
    let seconds: i64 =
        response.header("retry-after").unwrap_or_else(|| panic!("{limit}: {response:?}")).parse().unwrap();
    assert!((1..=3600).contains(&seconds), "{limit}: {seconds}");
    Duration::seconds(seconds)
}

#[tokio::test]
async fn limits_by_address_are_named_and_end_at_the_retry_time() {
    let t = TestServer::with_auth(|settings| {
        settings.rate_limits.header = Some("x-real-ip".into());
        settings.anonymous_users = true;
    })
    .await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let ask = async |method: http::Method, path: &str, body: &Value| {
        let token = tokens["access_token"].as_str().unwrap();
        let request = t.request(method, &format!("/auth/v1/{path}")).bearer(token);
        request.header("x-real-ip", "192.0.2.7").json(body).send().await
    };
    // Bodies that are rejected after they were counted
    let nothing = json!({});
    for (method, path, body, limit) in [
        (http::Method::POST, "signup", json!({"email": ADA}), "signup"),
        (http::Method::POST, "signup", json!({}), "anonymous-signup"),
        (http::Method::POST, "otp", nothing.clone(), "otp"),
        (http::Method::POST, "magiclink", nothing.clone(), "magiclink"),
        (http::Method::POST, "recover", nothing.clone(), "recover"),
        (http::Method::POST, "resend", nothing.clone(), "resend"),
        (http::Method::PUT, "user", json!({"email": "nonsense"}), "update-user"),
        (http::Method::POST, "token?grant_type=nothing", nothing.clone(), "token"),
        (http::Method::POST, "token?grant_type=web3", nothing.clone(), "web3"),
        (http::Method::POST, "verify", nothing.clone(), "verify"),
        (http::Method::GET, "authorize?provider=nothing", nothing.clone(), "authorize"),
    ] {
        for _ in 0..30 {
            assert_ne!(ask(method.clone(), path, &body).await.status, 429, "{limit}");
        }
        let wait = limited(&ask(method.clone(), path, &body).await, "over_request_rate_limit", limit);
        t.clock().advance(wait);
        if limit != "anonymous-signup" {
            assert_ne!(ask(method.clone(), path, &body).await.status, 429, "{limit}");
        }
    }
}

#[tokio::test]
async fn limits_on_messages_are_named_and_end_at_the_retry_time() {
    let t = TestServer::with_auth(|settings| {
        settings.email.max_frequency = std::time::Duration::from_secs(60);
        settings.sms.enabled = true;
        settings.sms.max_frequency = std::time::Duration::from_secs(60);
        settings.rate_limits.emails = Some(SendLimit::PerHour(3));
        settings.rate_limits.texts = Some(SendLimit::PerHour(2));
    })
    .await;
    let post = async |path: &str, body: Value| t.post(&format!("/auth/v1/{path}")).json(&body).send().await;
    let interval = "per-user-interval";

    let tokens = t.signed_in(ADA, "correct-horse").await;
    post("recover", json!({"email": ADA})).await.expect(200);
    let early = post("recover", json!({"email": ADA})).await;
    assert_eq!(limited(&early, "over_email_send_rate_limit", interval), Duration::seconds(60));
    let bearer = tokens["access_token"].as_str().unwrap();
    let reauthenticate = async || t.get("/auth/v1/reauthenticate").bearer(bearer).send().await;
    reauthenticate().await.expect(200);
    limited(&reauthenticate().await, "over_email_send_rate_limit", interval);
    let other = json!({"email": "new@example.com", "password": "correct-horse"});
    limited(&post("signup", other).await, "over_email_send_rate_limit", "emails-sent");

    post("otp", json!({"phone": "15550001111"})).await.expect(200);
    limited(&post("otp", json!({"phone": "15550001111"})).await, "over_sms_send_rate_limit", interval);
    post("otp", json!({"phone": "15550002222"})).await.expect(200);
    limited(&post("otp", json!({"phone": "15550003333"})).await, "over_sms_send_rate_limit", "texts-sent");
    assert_eq!(t.count("select count(*) from auth.users").await, 3);
}

#[tokio::test]
async fn a_nonce_cannot_be_guessed() {
    let t = TestServer::with_auth(|settings| {
        settings.password_change_needs_reauthentication = true;
        settings.jwt.expiry = std::time::Duration::from_secs(7 * 86_400);
    })
    .await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let token = tokens["access_token"].as_str().unwrap();
    t.clock().advance(Duration::hours(25));
    t.get("/auth/v1/reauthenticate").bearer(token).send().await.expect(200);
    let nonce: String = t.nth_mail_to(ADA, 1).await.subject().as_str().chars().take(6).collect();
    let wrong = if nonce == "000000" { "000001" } else { "000000" };
    let change = async |nonce: &str| {
        let body = json!({"password": "battery-staple", "nonce": nonce});
        t.put("/auth/v1/user").bearer(token).json(&body).send().await
    };
    for _ in 0..10 {
        assert_eq!(change(wrong).await.rejection(), (422, "reauthentication_not_valid".into()));
    }
    let wait = limited(&change(&nonce).await, "over_request_rate_limit", "codes-per-address");
    t.clock().advance(wait);
    change(&nonce).await.expect(200);
}

#[tokio::test]
async fn codes_of_an_account_are_counted_for_all_types_together() {
    let t = TestServer::start().await;
    t.account(ADA, "correct-horse").await;
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    let wrong = if code == "000000" { "000001" } else { "000000" };
    let verify = async |verify_type: &str, email: &str, token: &str| {
        let body = json!({"type": verify_type, "email": email, "token": token});
        t.post("/auth/v1/verify").json(&body).send().await
    };
    for number in 0..10 {
        let verify_type = ["signup", "recovery", "magiclink", "email", "email_change"][number % 5];
        let email = [ADA, "ADA@example.com"][number % 2];
        assert_eq!(verify(verify_type, email, wrong).await.rejection(), (403, "otp_expired".into()));
    }
    limited(&verify("recovery", ADA, &code).await, "over_request_rate_limit", "codes-per-address");
}

#[tokio::test]
async fn limits_by_address_apply_to_every_source_of_the_address() {
    // Without the configured header the address counts
    let t = TestServer::with_auth(|settings| {
        settings.rate_limits.header = Some("x-real-ip".into());
        settings.rate_limits.per_address = true;
    })
    .await;
    let ask = async |t: &TestServer, header: &str, address: &str| {
        t.post("/auth/v1/verify").header(header, address).json(&json!({})).send().await
    };
    for _ in 0..30 {
        assert_ne!(ask(&t, "x-forwarded-for", "192.0.2.1").await.status, 429);
    }
    limited(&ask(&t, "x-forwarded-for", "192.0.2.1").await, "over_request_rate_limit", "verify");
    assert_ne!(ask(&t, "x-real-ip", "192.0.2.9, 10.0.0.1").await.status, 429);

    // The address that a trusted proxy sent
    let t = TestServer::with_auth(|settings| settings.sb_forwarded_for = true).await;
    for _ in 0..30 {
        assert_ne!(ask(&t, "sb-forwarded-for", "192.0.2.1").await.status, 429);
    }
    limited(&ask(&t, "sb-forwarded-for", "192.0.2.1").await, "over_request_rate_limit", "verify");
    assert_ne!(ask(&t, "sb-forwarded-for", "192.0.2.2").await.status, 429);
    for _ in 0..31 {
        assert_ne!(ask(&t, "sb-forwarded-for", "nonsense").await.status, 429);
    }
}
