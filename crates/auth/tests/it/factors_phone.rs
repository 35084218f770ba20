//! Phones as second factors.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use portico_auth::{AuthSettings, TextMessage, TextTransport};
use portico_testkit::{Member, TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;

use crate::factors::{
    ADA, EVE, challenge, challenge_id, enroll, level, methods, prove, refusal, refused, unenroll, verify, with_totp,
};

const PHONE: &str = "15550001111";

/// Turns on phones as second factors.
pub fn with_phone_factors(settings: &mut AuthSettings) {
    let phone = &mut settings.factors.phone;
    (phone.switches.enroll, phone.switches.verify) = (true, true);
}

async fn enroll_phone(member: &Member<'_>, phone: &str) -> String {
    let body = json!({"factor_type": "phone", "friendly_name": phone, "phone": phone});
    enroll(member, &body).await.expect(200).json()["id"].as_str().unwrap().to_owned()
}

/// Proves a phone by the code of its newest message.
async fn prove_phone(member: &Member<'_>, id: &str, messages: usize) -> TestResponse {
    let challenge = challenge_id(member, id).await;
    let code = member.server().texts_when(PHONE, messages).await.pop().unwrap().code;
    verify(member, id, &challenge, &code).await
}

#[tokio::test]
async fn a_code_of_a_message_raises_the_session() {
    let t = TestServer::with_auth(|settings| {
        with_phone_factors(settings);
        settings.factors.phone.template = "{{ .Code }} opens Acme".into();
        settings.factors.phone.otp_length = 8;
    })
    .await;
    let ada = t.member(ADA).await;
    let body = json!({"factor_type": "phone", "friendly_name": "mobile", "phone": "+1 555 000 1111"});
    let factor = enroll(&ada, &body).await.expect(200).json();
    let id = factor["id"].as_str().unwrap();
    let expected = json!({"id": id, "type": "phone", "friendly_name": "mobile", "phone": "+1 555 000 1111"});
    assert_eq!(factor, expected);
    let response = challenge(&ada, id).await.expect(200).json();
    let expires = t.clock().now().unix_timestamp() + 300;
    assert_eq!(response, json!({"id": response["id"], "type": "phone", "expires_at": expires}));
    let text = t.text_to(PHONE).await;
    assert_eq!((text.code.len(), text.body), (8, format!("{} opens Acme", text.code)));
    let stored = t.query("select otp_code from auth.mfa_challenges").await[0].get::<_, String>(0);
    assert!(!stored.contains(&text.code), "stored as a hash");

    let challenge = response["id"].as_str().unwrap();
    for wrong in ["00000000", "1", "abcdefgh", "１２３４５６７８"] {
        let response = verify(&ada, id, challenge, wrong).await;
        assert_eq!(refused(&response), refusal(422, "mfa_verification_failed", "Invalid MFA Phone code entered"));
    }
    let raised = ada.with_session_of(verify(&ada, id, challenge, &text.code).await);
    assert_eq!(
        (level(&raised), methods(&raised)),
        ("aal2".into(), vec!["mfa/phone".to_owned(), "password".to_owned()])
    );
    let listed = &raised.session()["user"]["factors"][0];
    assert_eq!((&listed["phone"], &listed["status"]), (&json!(PHONE), &json!("verified")));
    let again = verify(&raised, id, challenge, &text.code).await;
    assert_eq!(again.rejection(), (422, "mfa_ip_address_mismatch".into()), "a code is used once");
    unenroll(&raised, id).await.expect(200);
    assert_eq!(level(&raised.refreshed().await), "aal1");
}

#[tokio::test]
async fn numbers_are_checked() {
    let t = TestServer::with_auth(with_phone_factors).await;
    let ada = t.member(ADA).await;
    let missing = enroll(&ada, &json!({"factor_type": "phone"})).await;
    assert_eq!(refused(&missing), refusal(400, "validation_failed", "Phone number required to enroll Phone factor"));
    for phone in ["0123", "12a", "1", "++15550001111", "1234567890123456", "१२३४"] {
        let response = enroll(&ada, &json!({"factor_type": "phone", "phone": phone})).await;
        let message = "Invalid phone number format (E.164 required)";
        assert_eq!(refused(&response), refusal(400, "validation_failed", message), "{phone}");
    }
    // An enrolment with the same number replaces the one before
    let first = enroll_phone(&ada, PHONE).await;
    let second = enroll_phone(&ada, PHONE).await;
    assert_eq!(challenge(&ada, &first).await.rejection(), (404, "mfa_factor_not_found".into()));
    let ada = ada.with_session_of(prove_phone(&ada, &second, 1).await);
    let body = json!({"factor_type": "phone", "friendly_name": "again", "phone": format!("+{PHONE}")});
    let message = "A verified phone factor already exists, unenroll the existing factor to continue";
    let exists = enroll(&ada, &body).await;
    assert_eq!(refused(&exists), refusal(422, "mfa_verified_factor_exists", message));
    // Another account may use the same number
    let eve = t.member(EVE).await;
    enroll_phone(&eve, PHONE).await;
}

#[tokio::test]
async fn messages_keep_an_interval_also_between_concurrent_requests() {
    let t = TestServer::with_auth(|settings| {
        with_phone_factors(settings);
        settings.factors.phone.max_frequency = std::time::Duration::from_secs(60);
    })
    .await;
    let ada = t.member(ADA).await;
    let id = enroll_phone(&ada, PHONE).await;
    let responses = join_all((0..5).map(|_| challenge(&ada, &id))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    assert_eq!(t.texts_to(PHONE).len(), 1);
    t.clock().advance(Duration::seconds(8));
    let early = challenge(&ada, &id).await;
    let message = "For security purposes, you can only request this after 52 seconds.";
    assert_eq!(refused(&early), refusal(429, "over_sms_send_rate_limit", message));
    assert_eq!(early.header("retry-after"), Some("52"));
    t.clock().advance(Duration::seconds(52));
    challenge(&ada, &id).await.expect(200);
    assert_eq!(t.count("select count(*) from auth.mfa_challenges").await, 2);
}

#[tokio::test]
async fn messages_to_a_number_keep_an_interval_also_when_it_is_enrolled_again() {
    let t = TestServer::with_auth(|settings| {
        with_phone_factors(settings);
        settings.factors.phone.max_frequency = std::time::Duration::from_secs(60);
    })
    .await;
    let ada = t.member(ADA).await;
    let first = enroll_phone(&ada, PHONE).await;
    challenge(&ada, &first).await.expect(200);
    let too_soon = (429, "over_sms_send_rate_limit".to_owned());
    // The second enrolment replaces the first one
    let second = enroll_phone(&ada, PHONE).await;
    assert_eq!(challenge(&ada, &second).await.rejection(), too_soon);
    unenroll(&ada, &second).await.expect(200);
    let body = json!({"factor_type": "phone", "friendly_name": "spelt otherwise", "phone": "+1 555 000 1111"});
    let third = enroll(&ada, &body).await.expect(200).json()["id"].as_str().unwrap().to_owned();
    t.clock().advance(Duration::seconds(20));
    let early = challenge(&ada, &third).await;
    assert_eq!((early.rejection(), early.header("retry-after")), (too_soon, Some("40")));
    assert_eq!(t.texts_to(PHONE).len(), 1);
    // Another number and another account have pauses of their own
    let other = enroll_phone(&ada, "15550002222").await;
    challenge(&ada, &other).await.expect(200);
    let eve = t.member(EVE).await;
    let hers = enroll_phone(&eve, PHONE).await;
    challenge(&eve, &hers).await.expect(200);
    t.clock().advance(Duration::seconds(40));
    challenge(&ada, &third).await.expect(200);
    // A clock that is set back does not stretch the pause
    t.clock().advance(Duration::hours(-1));
    challenge(&ada, &third).await.expect(200);
}

#[tokio::test]
async fn channels_are_checked() {
    let t = TestServer::with_auth(with_phone_factors).await;
    let ada = t.member(ADA).await;
    let id = enroll_phone(&ada, PHONE).await;
    let send = async |body: Value| ada.posts(&format!("factors/{id}/challenge"), &body).await;
    for channel in ["whatsapp", "email", "SMS"] {
        let response = send(json!({"channel": channel})).await;
        assert_eq!(response.rejection(), (400, "validation_failed".into()), "{channel}");
        assert!(refused(&response).2.starts_with("Invalid channel, supported values are 'sms' or 'whatsapp'."));
    }
    assert_eq!(send(json!({"channel": 1})).await.rejection(), (400, "bad_json".into()));
    assert!(t.texts_to(PHONE).is_empty());
    send(json!({"factorId": id, "channel": "sms"})).await.expect(200);
}

#[tokio::test]
async fn an_account_sends_few_messages_an_hour_to_however_many_numbers() {
    let t = TestServer::with_auth(with_phone_factors).await;
    let ada = t.member(ADA).await;
    let send = async |member: &Member<'_>, number: usize| {
        let id = enroll_phone(member, &format!("1555000{number:04}")).await;
        let response = challenge(member, &id).await;
        unenroll(member, &id).await.expect(200);
        response
    };
    for number in 0..10 {
        send(&ada, number).await.expect(200);
    }
    let refused = send(&ada, 10).await;
    assert_eq!(refused.rejection(), (429, "over_sms_send_rate_limit".into()));
    assert_eq!(refused.header("retry-after"), Some("360"));
    assert!(t.texts_to("15550000010").is_empty());
    send(&t.member(EVE).await, 10).await.expect(200);

    t.clock().advance(Duration::minutes(6));
    send(&ada, 11).await.expect(200);
    assert_eq!(send(&ada, 12).await.status, 429);
}

/// A gateway that fails at first, and then creates its own codes.
#[derive(Default)]
struct Gateway {
    is_working: Mutex<bool>,
}

impl TextTransport for Gateway {
    fn send(&self, _message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        let works = *self.is_working.lock().unwrap();
        async move { if works { Ok("VE1".to_owned()) } else { Err("the account is empty".to_owned()) } }.boxed()
    }

    fn check<'a>(&'a self, to: &'a str, code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        Some(async move { Ok(to == PHONE && code == "424242") }.boxed())
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_leaves_nothing_behind_and_a_gateway_may_check_its_codes() {
    let gateway = Arc::new(Gateway::default());
    let texts: Arc<dyn TextTransport> = gateway.clone();
    let t = TestServer::with(|settings| {
        with_phone_factors(&mut settings.auth);
        settings.texts = Some(texts);
    })
    .await;
    let ada = t.member(ADA).await;
    let id = enroll_phone(&ada, PHONE).await;
    // More often than an account may send messages
    for _ in 0..12 {
        let failed = challenge(&ada, &id).await;
        assert_eq!(refused(&failed), refusal(500, "unexpected_failure", "error sending message"));
    }
    assert_eq!(t.count("select count(*) from auth.mfa_challenges").await, 0);
    assert_eq!(t.count("select count(*) from auth.mfa_factors where last_challenged_at is not null").await, 0);

    *gateway.is_working.lock().unwrap() = true;
    let challenge = challenge_id(&ada, &id).await;
    let wrong = verify(&ada, &id, &challenge, "123456").await;
    assert_eq!(refused(&wrong), refusal(403, "otp_expired", "Token has expired or is invalid"));
    verify(&ada, &id, &challenge, "424242").await.expect(200);
}

#[tokio::test]
async fn test_numbers_have_a_fixed_code_and_get_no_message() {
    let t = TestServer::with_auth(|settings| {
        with_phone_factors(settings);
        settings.sms.test_otps.insert(PHONE.into(), "123456".into());
    })
    .await;
    let ada = t.member(ADA).await;
    let id = enroll_phone(&ada, PHONE).await;
    let challenge = challenge_id(&ada, &id).await;
    verify(&ada, &id, &challenge, "123456").await.expect(200);
    assert!(t.texts_to(PHONE).is_empty());
}

#[tokio::test]
async fn a_session_with_two_types_keeps_its_level_until_both_are_removed() {
    let t = TestServer::with_auth(with_phone_factors).await;
    let (app, ada) = with_totp(&t, ADA).await;
    let phone = enroll_phone(&ada, PHONE).await;
    let ada = ada.with_session_of(prove_phone(&ada, &phone, 1).await);
    let both = ["mfa/phone", "password", "totp"].map(str::to_owned).to_vec();
    assert_eq!((level(&ada), methods(&ada)), ("aal2".into(), both));
    unenroll(&ada, &phone).await.expect(200);
    let ada = ada.refreshed().await;
    assert_eq!((level(&ada), methods(&ada)), ("aal2".into(), vec!["password".to_owned(), "totp".to_owned()]));
    let ada = ada.with_session_of(prove(&ada, &app).await);
    unenroll(&ada, &app.id).await.expect(200);
    assert_eq!(level(&ada.refreshed().await), "aal1");
}
