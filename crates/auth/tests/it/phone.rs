//! Accounts with a phone number.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portico_auth::{AuthSettings, TextMessage, TextTransport};
use portico_testkit::TestServer;
use serde_json::json;
use time::Duration;

const PHONE: &str = "15550001111";
const OTHER: &str = "15550002222";

/// Turns on phone numbers, without a pause between messages.
pub fn with_phones(settings: &mut AuthSettings) {
    settings.sms.enabled = true;
    settings.sms.max_frequency = std::time::Duration::ZERO;
}

#[tokio::test]
async fn a_new_account_is_confirmed_by_the_code() {
    let t = TestServer::with_auth(with_phones).await;
    let ada = t.visitor_with_phone(PHONE);
    let data = json!({"data": {"name": "Ada"}});
    let user = t.visitor_with_phone("+1 555 000 1111").signs_up_with(&data).await.expect(200).json();
    assert_eq!((&user["phone"], &user["email"]), (&json!(PHONE), &json!("")));
    assert_eq!(user["user_metadata"]["name"], "Ada");
    let early = ada.signs_in().await;
    assert_eq!(early.rejection(), (400, "phone_not_confirmed".into()));

    let text = t.text_to(PHONE).await;
    assert_eq!(text.body, format!("Your code is {}", text.code));
    let tokens = ada.verifies("sms", &text.code).await.expect(200).json();
    assert!(tokens["user"]["phone_confirmed_at"].is_string());
    assert_eq!(ada.verifies("sms", &text.code).await.rejection(), (403, "otp_expired".into()));
    ada.signs_in().await.expect(200);

    // A sign-up does not reveal a taken number
    let stranger = ada.with_password("another-one").signs_up().await.expect(200).json();
    assert_eq!((&stranger["role"], &stranger["identities"]), (&json!(""), &json!([])));
    assert_ne!(stranger["id"], user["id"]);
}

#[tokio::test]
async fn a_code_signs_in_and_expires() {
    let t = TestServer::with_auth(with_phones).await;
    let ada = t.visitor_with_phone(PHONE);
    ada.posts("otp", &json!({"channel": "sms"})).await.expect(200);
    t.clock().advance(Duration::seconds(61));
    let late = ada.verifies("sms", &t.text_to(PHONE).await.code).await;
    assert_eq!(late.rejection(), (403, "otp_expired".into()));
    ada.requests_again("sms").await.expect(200);
    let code = t.texts_when(PHONE, 2).await.pop().unwrap().code;
    ada.verifies("sms", &code).await.expect(200);
    let unknown = t.visitor_with_phone(OTHER).posts("otp", &json!({"create_user": false})).await;
    assert_eq!(unknown.rejection(), (422, "otp_disabled".into()));
}

#[tokio::test]
async fn a_number_changes_when_the_new_one_confirms() {
    let t = TestServer::with_auth(with_phones).await;
    let change = json!({"phone": OTHER});
    let ada = t.member("ada@example.com").await;
    let user = ada.changes_account(&change).await.expect(200).json();
    assert_eq!((&user["phone"], &user["new_phone"]), (&json!(""), &json!(OTHER)));
    let code = t.text_to(OTHER).await.code;
    let phone = t.visitor_with_phone(OTHER);
    let user = phone.verifies("phone_change", &code).await.expect(200).json()["user"].clone();
    assert_eq!(user["phone"], OTHER);
    assert_eq!(user["app_metadata"]["providers"], json!(["email", "phone"]));
    assert_eq!(phone.verifies("phone_change", &code).await.rejection(), (403, "otp_expired".into()));

    let taken = t.member("eve@example.com").await.changes_account(&change).await;
    assert_eq!(taken.rejection(), (422, "phone_exists".into()));
}

#[tokio::test]
async fn messages_to_a_number_keep_an_interval() {
    let t = TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.sms.max_frequency = std::time::Duration::from_secs(60);
    })
    .await;
    let ada = t.visitor_with_phone(PHONE);
    ada.requests_code().await.expect(200);
    let early = ada.requests_code().await;
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
    let failed = t.visitor_with_phone(PHONE).signs_up().await;
    assert_eq!(failed.rejection(), (422, "sms_send_failed".into()));
    assert_eq!(failed.json()["msg"], "Error sending confirmation OTP to provider: the account is empty");
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn several_accounts_may_request_a_number_and_each_has_a_code() {
    let t = TestServer::with_auth(with_phones).await;
    let mut codes = Vec::new();
    for email in ["ada@example.com", "eve@example.com"] {
        t.member(email).await.changes_account(&json!({"phone": OTHER})).await.expect(200);
        codes.push(t.texts_when(OTHER, codes.len() + 1).await.pop().unwrap().code);
        t.clock().advance(Duration::seconds(2));
    }
    // A later request does not invalidate the code of the other
    let phone = t.visitor_with_phone(OTHER);
    let changed = phone.verifies("phone_change", &codes[0]).await.expect(200).json();
    assert_eq!((&changed["user"]["email"], &changed["user"]["phone"]), (&json!("ada@example.com"), &json!(OTHER)));
    assert_eq!(phone.verifies("phone_change", &codes[1]).await.rejection(), (422, "phone_exists".into()));
}
