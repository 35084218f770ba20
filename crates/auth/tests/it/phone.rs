//! Accounts with a phone number.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portico_auth::{AuthSettings, TextMessage, TextTransport};
use portico_testkit::{TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;

const PHONE: &str = "15550001111";
const OTHER: &str = "15550002222";

fn with_phones(settings: &mut AuthSettings) {
    settings.sms.enabled = true;
    settings.sms.max_frequency = std::time::Duration::ZERO;
}

async fn post(t: &TestServer, path: &str, body: Value) -> TestResponse {
    t.post(&format!("/auth/v1/{path}")).json(&body).send().await
}

#[tokio::test]
async fn a_new_account_is_confirmed_by_the_code() {
    let t = TestServer::with_auth(with_phones).await;
    let body = json!({"phone": "+1 555 000 1111", "password": "correct-horse", "data": {"name": "Ada"}});
    let user = post(&t, "signup", body).await.expect(200).json();
    assert_eq!((&user["phone"], &user["email"]), (&json!(PHONE), &json!("")));
    assert_eq!(user["user_metadata"]["name"], "Ada");
    let sign_in = json!({"phone": PHONE, "password": "correct-horse"});
    let early = post(&t, "token?grant_type=password", sign_in.clone()).await;
    assert_eq!(early.rejection(), (400, "phone_not_confirmed".into()));

    let text = t.text_to(PHONE).await;
    assert_eq!(text.body, format!("Your code is {}", text.code));
    let code = json!({"type": "sms", "phone": PHONE, "token": text.code});
    let tokens = post(&t, "verify", code.clone()).await.expect(200).json();
    assert!(tokens["user"]["phone_confirmed_at"].is_string());
    assert_eq!(post(&t, "verify", code).await.rejection(), (403, "otp_expired".into()));
    post(&t, "token?grant_type=password", sign_in).await.expect(200);

    // A sign-up does not reveal a taken number
    let stranger = post(&t, "signup", json!({"phone": PHONE, "password": "another-one"})).await.expect(200).json();
    assert_eq!((&stranger["role"], &stranger["identities"]), (&json!(""), &json!([])));
    assert_ne!(stranger["id"], user["id"]);
}

#[tokio::test]
async fn a_code_signs_in_and_expires() {
    let t = TestServer::with_auth(with_phones).await;
    post(&t, "otp", json!({"phone": PHONE, "channel": "sms"})).await.expect(200);
    t.clock().advance(Duration::seconds(61));
    let late = json!({"type": "sms", "phone": PHONE, "token": t.text_to(PHONE).await.code});
    assert_eq!(post(&t, "verify", late).await.rejection(), (403, "otp_expired".into()));
    post(&t, "resend", json!({"type": "sms", "phone": PHONE})).await.expect(200);
    let code = t.texts_when(PHONE, 2).await.pop().unwrap().code;
    post(&t, "verify", json!({"type": "sms", "phone": PHONE, "token": code})).await.expect(200);
    let unknown = post(&t, "otp", json!({"phone": OTHER, "create_user": false})).await;
    assert_eq!(unknown.rejection(), (422, "otp_disabled".into()));
}

#[tokio::test]
async fn a_number_changes_when_the_new_one_confirms() {
    let t = TestServer::with_auth(with_phones).await;
    let tokens = t.signed_in("ada@example.com", "correct-horse").await;
    let token = tokens["access_token"].as_str().unwrap();
    let change = json!({"phone": OTHER});
    let user = t.put("/auth/v1/user").bearer(token).json(&change).send().await.expect(200).json();
    assert_eq!((&user["phone"], &user["new_phone"]), (&json!(""), &json!(OTHER)));
    let code = t.text_to(OTHER).await.code;
    let body = json!({"type": "phone_change", "phone": OTHER, "token": code});
    let user = post(&t, "verify", body.clone()).await.expect(200).json()["user"].clone();
    assert_eq!(user["phone"], OTHER);
    assert_eq!(user["app_metadata"]["providers"], json!(["email", "phone"]));
    assert_eq!(post(&t, "verify", body).await.rejection(), (403, "otp_expired".into()));

    let eve = t.signed_in("eve@example.com", "correct-horse").await;
    let taken = t.put("/auth/v1/user").bearer(eve["access_token"].as_str().unwrap()).json(&change).send().await;
    assert_eq!(taken.rejection(), (422, "phone_exists".into()));
}

#[tokio::test]
async fn messages_to_a_number_keep_an_interval() {
    let t = TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.sms.max_frequency = std::time::Duration::from_secs(60);
    })
    .await;
    post(&t, "otp", json!({"phone": PHONE})).await.expect(200);
    let early = post(&t, "otp", json!({"phone": PHONE})).await;
    assert_eq!(early.rejection(), (429, "over_sms_send_rate_limit".into()));
    assert_eq!(early.header("retry-after"), Some("60"));
}

struct Broken;

impl TextTransport for Broken {
    fn send(&self, _message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        async { Err("the account is empty".to_owned()) }.boxed()
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_leaves_nothing_behind() {
    let t = TestServer::with(|settings| {
        with_phones(&mut settings.auth);
        settings.texts = Some(Arc::new(Broken));
    })
    .await;
    let failed = post(&t, "signup", json!({"phone": PHONE, "password": "correct-horse"})).await;
    assert_eq!(failed.rejection(), (422, "sms_send_failed".into()));
    assert_eq!(failed.json()["msg"], "Error sending confirmation OTP to provider: the account is empty");
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn several_accounts_may_request_a_number_and_each_has_a_code() {
    let t = TestServer::with_auth(with_phones).await;
    let mut codes = Vec::new();
    for email in ["ada@example.com", "eve@example.com"] {
        let tokens = t.signed_in(email, "correct-horse").await;
        let access = tokens["access_token"].as_str().unwrap();
        t.put("/auth/v1/user").bearer(access).json(&json!({"phone": OTHER})).send().await.expect(200);
        codes.push(t.texts_when(OTHER, codes.len() + 1).await.pop().unwrap().code);
        t.clock().advance(Duration::seconds(2));
    }
    // A later request does not invalidate the code of the other
    let body = json!({"type": "phone_change", "phone": OTHER, "token": codes[0]});
    let changed = post(&t, "verify", body).await.expect(200).json();
    assert_eq!((&changed["user"]["email"], &changed["user"]["phone"]), (&json!("ada@example.com"), &json!(OTHER)));
    let body = json!({"type": "phone_change", "phone": OTHER, "token": codes[1]});
    assert_eq!(post(&t, "verify", body).await.rejection(), (422, "phone_exists".into()));
}
