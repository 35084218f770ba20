//! Accounts with a phone number and the gateway: channels, codes that a gateway creates, test
//! numbers, limits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portico_auth::settings::SendLimit;
use portico_auth::{TextMessage, TextTransport};
use portico_testkit::{TestServer, Visitor};
use serde_json::{Value, json};
use time::Duration;

use crate::phone::with_phones;

const PHONE: &str = "15550001111";

/// Returns the owner of [`PHONE`].
fn ada(t: &TestServer) -> Visitor<'_> {
    t.visitor_with_phone(PHONE)
}

/// A gateway that creates its own codes, as Twilio Verify does, and supports WhatsApp.
#[derive(Default)]
struct Verifier {
    sent: Mutex<Vec<TextMessage>>,
    checks: AtomicUsize,
}

impl Verifier {
    const CODE: &'static str = "424242";
    /// The code at which it fails.
    const OUTAGE: &'static str = "500500";

    async fn start() -> (TestServer, Arc<Self>) {
        let gateway = Arc::new(Self::default());
        let texts: Arc<dyn TextTransport> = gateway.clone();
        let t = TestServer::with(|settings| {
            with_phones(&mut settings.auth);
            settings.auth.password_change_needs_reauthentication = true;
            settings.auth.jwt.expiry = std::time::Duration::from_secs(7 * 86_400);
            settings.texts = Some(texts);
        })
        .await;
        (t, gateway)
    }
}

impl TextTransport for Verifier {
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        self.sent.lock().unwrap().push(message);
        async { Ok("VE1".to_owned()) }.boxed()
    }

    fn speaks_whatsapp(&self) -> bool {
        true
    }

    fn check<'a>(&'a self, to: &'a str, code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        let verdict = async move {
            self.checks.fetch_add(1, Ordering::SeqCst);
            match code {
                Self::OUTAGE => Err("the provider could not be reached".to_owned()),
                code => Ok(to == PHONE && code == Self::CODE),
            }
        };
        Some(verdict.boxed())
    }
}

#[tokio::test]
async fn a_gateway_that_creates_the_codes_checks_them() {
    let (t, gateway) = Verifier::start().await;
    ada(&t).signs_up().await.expect(200);
    // The server's own code is not accepted
    let ours = gateway.sent.lock().unwrap()[0].code.clone();
    assert_eq!(ada(&t).verifies("sms", &ours).await.rejection(), (403, "otp_expired".into()));
    let outage = ada(&t).verifies("sms", Verifier::OUTAGE).await;
    assert_eq!(outage.rejection(), (422, "sms_send_failed".into()));
    assert_eq!(outage.json()["msg"], "Error checking OTP with provider: the provider could not be reached");
    // The gateway also decides on the lifetime of a code
    t.clock().advance(Duration::minutes(5));
    let tokens = ada(&t).verifies("sms", Verifier::CODE).await.expect(200).json();
    assert!(tokens["user"]["phone_confirmed_at"].is_string());
    let checks = gateway.checks.load(Ordering::SeqCst);
    assert_eq!(ada(&t).verifies("sms", Verifier::CODE).await.rejection(), (403, "otp_expired".into()));
    assert_eq!(gateway.checks.load(Ordering::SeqCst), checks, "nothing waits for a code, so nobody is asked");
}

#[tokio::test]
async fn a_gateway_that_creates_the_codes_checks_nonces() {
    let (t, gateway) = Verifier::start().await;
    ada(&t).signs_up().await.expect(200);
    let member = t.member_with(ada(&t).verifies("sms", Verifier::CODE).await.expect(200).json());
    let change = async |password: &str, nonce: &str| {
        member.changes_account(&json!({"password": password, "nonce": nonce})).await
    };
    t.clock().advance(Duration::hours(25));
    assert_eq!(change("battery-staple", Verifier::CODE).await.rejection(), (422, "reauthentication_not_valid".into()));
    let sent = member.reauthenticates().await.expect(200);
    assert_eq!(sent.json(), json!({"message_id": "VE1"}));
    assert_eq!(change("battery-staple", "111111").await.rejection(), (422, "reauthentication_not_valid".into()));
    // The nonce does not sign in
    assert_eq!(ada(&t).verifies("sms", Verifier::CODE).await.rejection(), (403, "otp_expired".into()));
    change("battery-staple", Verifier::CODE).await.expect(200);
    assert_eq!(change("third-password", Verifier::CODE).await.rejection(), (422, "reauthentication_not_valid".into()));
    assert_eq!(gateway.sent.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn whatsapp_needs_a_gateway_that_supports_it() {
    let (t, gateway) = Verifier::start().await;
    ada(&t).posts("otp", &json!({"channel": "whatsapp"})).await.expect(200);
    assert_eq!(gateway.sent.lock().unwrap()[0].channel, "whatsapp");

    let t = TestServer::with_auth(with_phones).await;
    for channel in ["whatsapp", "pigeon", "SMS"] {
        for path in ["otp", "signup"] {
            let refused = ada(&t).posts(path, &json!({"password": "correct horse", "channel": channel})).await;
            assert_eq!(refused.rejection(), (400, "validation_failed".into()), "{path} {channel}");
            let message = refused.json()["msg"].as_str().unwrap().to_owned();
            assert!(message.starts_with("Invalid channel, supported values are 'sms' or 'whatsapp'."), "{message}");
        }
    }
    assert!(t.texts_to(PHONE).is_empty());
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn a_test_number_has_a_fixed_code_and_is_sent_no_message() {
    let t = TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.sms.test_otps = [(PHONE.to_owned(), "123456".to_owned())].into();
        settings.rate_limits.texts = Some(SendLimit::PerHour(0));
    })
    .await;
    assert_eq!(
        ada(&t).verifies("sms", "123456").await.rejection(),
        (403, "otp_expired".into()),
        "there is no such user"
    );
    ada(&t).signs_up().await.expect(200);
    assert_eq!(ada(&t).verifies("sms", "654321").await.rejection(), (403, "otp_expired".into()));
    ada(&t).verifies("sms", "123456").await.expect(200);
    // At any time, also without a request for it
    t.clock().advance(Duration::days(1));
    ada(&t).verifies("sms", "123456").await.expect(200);
    let again = ada(&t).requests_code().await.expect(200);
    assert_eq!(again.json(), json!({"message_id": "test-otp"}));
    assert!(t.texts_to(PHONE).is_empty());
}

#[tokio::test]
async fn fixed_codes_expire() {
    let t = TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.sms.test_otps = [(PHONE.to_owned(), "123456".to_owned())].into();
        settings.sms.test_otps_valid_until = Some(time::OffsetDateTime::UNIX_EPOCH);
    })
    .await;
    ada(&t).signs_up().await.expect(200);
    let code = t.text_to(PHONE).await.code;
    if code != "123456" {
        assert_eq!(ada(&t).verifies("sms", "123456").await.rejection(), (403, "otp_expired".into()));
    }
    ada(&t).verifies("sms", &code).await.expect(200);
}

#[tokio::test]
async fn only_the_request_of_an_existing_account_returns_the_message_id() {
    let t = TestServer::with_auth(with_phones).await;
    assert_eq!(ada(&t).requests_code().await.expect(200).json(), json!({}));
    ada(&t).verifies("sms", &t.text_to(PHONE).await.code).await.expect(200);
    assert_eq!(ada(&t).requests_code().await.expect(200).json(), json!({"message_id": "SM2"}));
    let code = t.texts_when(PHONE, 2).await.pop().unwrap().code;
    // One code in concurrent requests
    let ada = ada(&t);
    let (first, second) = tokio::join!(ada.verifies("sms", &code), ada.verifies("sms", &code));
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 403]);
}

#[tokio::test]
async fn without_confirmations_no_message_is_sent() {
    let t = TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.sms.autoconfirm = true;
    })
    .await;
    let member = t.member_with(ada(&t).signs_up().await.expect(200).json());
    assert!(!member.access_token().is_empty());
    assert_eq!(ada(&t).signs_up().await.rejection(), (422, "user_already_exists".into()));
    let user = member.changes_account(&json!({"phone": "+15550002222"})).await;
    assert_eq!(user.expect(200).json()["phone"], "15550002222");
    assert!(t.texts_to(PHONE).is_empty() && t.texts_to("15550002222").is_empty());
}

#[tokio::test]
async fn all_messages_together_are_limited() {
    let t = TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.rate_limits.texts = Some(SendLimit::PerHour(1));
    })
    .await;
    ada(&t).signs_up().await.expect(200);
    let eve = t.visitor_with_phone("15550002222");
    let over = eve.requests_code().await;
    assert_eq!(over.rejection(), (429, "over_sms_send_rate_limit".into()));
    assert_eq!(over.json()["msg"], "SMS rate limit exceeded");
    assert!(over.header("retry-after").is_some());
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    t.clock().advance(Duration::hours(1));
    eve.requests_code().await.expect(200);
}

#[tokio::test]
async fn disabled_phone_sign_in_rejects_every_request() {
    let t = TestServer::start().await;
    assert_eq!(ada(&t).signs_up().await.rejection(), (400, "phone_provider_disabled".into()));
    let code = ada(&t).requests_code().await;
    assert_eq!(code.rejection(), (400, "phone_provider_disabled".into()));
    let again = ada(&t).requests_again("sms").await;
    assert_eq!(again.rejection(), (400, "phone_provider_disabled".into()));
    let settings = t.get("/auth/v1/settings").send().await.expect(200).json();
    assert_eq!((&settings["external"]["phone"], &settings["sms_provider"]), (&json!(false), &json!("")));
}

#[tokio::test]
async fn a_text_that_is_not_a_number_is_rejected() {
    let t = TestServer::with_auth(with_phones).await;
    for phone in ["0123456789", "+", "1", "1555000111122223", "15550001111\r\nx", "１５５５０００１１１１", "abc"]
    {
        let refused = t.visitor_with_phone(phone).signs_up().await;
        assert_eq!(refused.rejection(), (400, "validation_failed".into()), "{phone:?}");
        assert_eq!(refused.json()["msg"], "Invalid phone number format (E.164 required)");
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

/// A gateway whose responses the test releases, and which can be made to reject messages.
struct Slow {
    asked: tokio::sync::Semaphore,
    responses: tokio::sync::Semaphore,
    refuses: std::sync::atomic::AtomicBool,
}

impl Slow {
    async fn start(frequency: std::time::Duration) -> (TestServer, Arc<Self>) {
        let (asked, responses) = (tokio::sync::Semaphore::new(0), tokio::sync::Semaphore::new(0));
        let gateway = Arc::new(Self { asked, responses, refuses: false.into() });
        let texts: Arc<dyn TextTransport> = gateway.clone();
        let t = TestServer::with(|settings| {
            with_phones(&mut settings.auth);
            settings.auth.sms.max_frequency = frequency;
            settings.auth.http_timeout = std::time::Duration::from_secs(60);
            settings.pool.role_connections = 1;
            settings.texts = Some(texts);
        })
        .await;
        (t, gateway)
    }

    fn refuse(&self) {
        self.refuses.store(true, Ordering::SeqCst);
        self.responses.add_permits(1);
    }

    fn accept(&self) {
        self.refuses.store(false, Ordering::SeqCst);
        self.responses.add_permits(1);
    }
}

impl TextTransport for Slow {
    fn send(&self, _message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        let response = async {
            self.asked.add_permits(1);
            self.responses.acquire().await.unwrap().forget();
            if self.refuses.load(Ordering::SeqCst) { Err("the number is not reachable".into()) } else { Ok("1".into()) }
        };
        response.boxed()
    }
}

#[tokio::test]
async fn a_slow_gateway_blocks_no_other_request() {
    let (t, gateway) = Slow::start(std::time::Duration::ZERO).await;
    let ada = ada(&t);
    let waiting = ada.signs_up();
    let meanwhile = async {
        gateway.asked.acquire().await.unwrap().forget();
        // The only connection is free, and the account is not locked
        t.account("eve@example.com", "correct horse").await;
        t.execute("update auth.users set updated_at = now() where phone is not null").await;
        gateway.accept();
    };
    let (response, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(response.expect(200).json()["phone"], PHONE);
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_is_withdrawn() {
    let minute = std::time::Duration::from_secs(60);
    let (t, gateway) = Slow::start(minute).await;
    for path in ["signup", "otp"] {
        gateway.refuse();
        let refused = ada(&t).posts(path, &json!({"password": "correct horse"})).await;
        assert_eq!(refused.rejection(), (422, "sms_send_failed".into()));
        let text = "Error sending confirmation OTP to provider: the number is not reachable";
        assert_eq!(refused.json()["msg"], text);
        for table in ["users", "identities", "one_time_tokens"] {
            assert_eq!(t.count(&format!("select count(*) from auth.{table}")).await, 0, "{path} {table}");
        }
    }

    // An existing account is kept, without a code, and may request another one at once
    gateway.accept();
    ada(&t).signs_up().await.expect(200);
    t.execute("update auth.users set phone_confirmed_at = now()").await;
    let nothing_waits = "select count(*) from auth.one_time_tokens where token_type = 'confirmation_token'";
    t.clock().advance(Duration::minutes(2));
    gateway.refuse();
    assert_eq!(ada(&t).requests_code().await.rejection(), (422, "sms_send_failed".into()));
    assert_eq!(t.count(nothing_waits).await, 0);
    assert_eq!(t.count("select count(*) from auth.users where confirmation_token = ''").await, 1);
    gateway.accept();
    ada(&t).requests_code().await.expect(200);
    assert_eq!(ada(&t).requests_code().await.rejection(), (429, "over_sms_send_rate_limit".into()));

    // A pending number that cannot be reached is removed
    let member = ada(&t).signed_in().await;
    gateway.refuse();
    let refused = member.changes_account(&json!({"phone": "+15550002222"})).await;
    assert_eq!(refused.rejection(), (422, "sms_send_failed".into()));
    let user = member.account().await;
    assert_eq!((&user["phone"], user.get("new_phone")), (&json!(PHONE), None));
}

#[tokio::test]
async fn concurrent_sign_ups_with_one_number_create_one_account() {
    let t = TestServer::with_auth(with_phones).await;
    let (ada, eve) = (ada(&t), t.visitor_with_phone("15550002222"));
    let responses = futures_util::future::join_all((0..6).map(|_| ada.signs_up())).await;
    let ids: Vec<Value> = responses.into_iter().map(|response| response.expect(200).json()["id"].take()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(t.texts_when(PHONE, 6).await.len(), 6);

    for response in futures_util::future::join_all((0..6).map(|_| eve.requests_code())).await {
        response.expect(200);
    }
    assert_eq!(t.texts_when("15550002222", 6).await.len(), 6, "no response promises a text that is not sent");
    assert_eq!(t.count("select count(*) from auth.users").await, 2);
}
