//! Several accounts with a pending change to one number: a code changes the number of the account
//! that it was sent for.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portico_auth::{AuthSettings, TextMessage, TextTransport};
use portico_mail::MailKind;
use portico_testkit::{TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;

const PHONE: &str = "15550002222";
const TEST_CODE: &str = "123456";

fn with_phones(settings: &mut AuthSettings) {
    settings.sms.enabled = true;
    settings.sms.max_frequency = std::time::Duration::ZERO;
}

/// A person whose account has a pending change to [`PHONE`].
struct Applicant {
    email: String,
    token: String,
}

impl Applicant {
    async fn new(t: &TestServer, name: &str) -> Self {
        let email = format!("{name}@example.com");
        let tokens = t.signed_in(&email, "correct-horse").await;
        let applicant = Self { email, token: tokens["access_token"].as_str().unwrap().to_owned() };
        applicant.ask(t).await;
        applicant
    }

    async fn ask(&self, t: &TestServer) {
        t.put("/auth/v1/user").bearer(&self.token).json(&json!({"phone": PHONE})).send().await.expect(200);
    }

    async fn verify(&self, t: &TestServer, code: &str) -> TestResponse {
        t.post("/auth/v1/verify").bearer(&self.token).json(&typed(code)).send().await
    }
}

fn typed(code: &str) -> Value {
    json!({"type": "phone_change", "phone": PHONE, "token": code})
}

/// Verifies a code in the way of the official clients: without the person's token.
async fn verify(t: &TestServer, code: &str) -> TestResponse {
    t.post("/auth/v1/verify").json(&typed(code)).send().await
}

fn assert_refused(answer: &TestResponse) {
    assert_eq!(answer.rejection(), (403, "otp_expired".to_owned()));
}

/// Returns the addresses of the accounts that have the number.
async fn owners(t: &TestServer) -> Vec<String> {
    let rows = t.query_with("select email::text from auth.users where phone = $1", &[&PHONE]).await;
    rows.iter().map(|row| row.get(0)).collect()
}

/// A gateway that makes its own codes, one for each number, as Twilio Verify does.
struct Verifier;

impl TextTransport for Verifier {
    fn send(&self, _message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        async { Ok("VE1".to_owned()) }.boxed()
    }

    fn check<'a>(&'a self, to: &'a str, code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        Some(async move { Ok(to == PHONE && code == TEST_CODE) }.boxed())
    }
}

async fn with_gateway() -> TestServer {
    TestServer::with(|settings| {
        with_phones(&mut settings.auth);
        settings.texts = Some(Arc::new(Verifier));
    })
    .await
}

async fn with_test_number() -> TestServer {
    TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.sms.test_otps.insert(PHONE.into(), TEST_CODE.into());
    })
    .await
}

#[tokio::test]
async fn a_code_that_identifies_no_account_needs_an_access_token_where_several_are_pending() {
    for t in [with_gateway().await, with_test_number().await] {
        let ada = Applicant::new(&t, "ada").await;
        t.clock().advance(Duration::seconds(2));
        let eve = Applicant::new(&t, "eve").await;
        // It could be that of either account, in any order of the requests
        assert_refused(&verify(&t, TEST_CODE).await);
        assert_eq!(owners(&t).await, Vec::<String>::new());
        assert_refused(&ada.verify(&t, "654321").await);

        let changed = ada.verify(&t, TEST_CODE).await.expect(200).json();
        assert_eq!(changed["user"]["email"], ada.email);
        assert_eq!(owners(&t).await, std::slice::from_ref(&ada.email));
        // The number has an owner now
        assert_eq!(eve.verify(&t, TEST_CODE).await.rejection(), (422, "phone_exists".into()));
        assert_eq!(owners(&t).await, [ada.email]);
    }
}

#[tokio::test]
async fn a_code_that_identifies_no_account_belongs_to_the_only_pending_one() {
    for t in [with_gateway().await, with_test_number().await] {
        let stranger = t.signed_in("mallory@example.com", "correct-horse").await;
        let ada = Applicant::new(&t, "ada").await;
        // Not that of a person who is signed in to another account without a pending change
        let token = stranger["access_token"].as_str().unwrap();
        assert_refused(&t.post("/auth/v1/verify").bearer(token).json(&typed(TEST_CODE)).send().await);
        verify(&t, TEST_CODE).await.expect(200);
        assert_eq!(owners(&t).await, [ada.email]);
    }
}

#[tokio::test]
async fn an_old_request_for_a_number_does_not_affect_others() {
    for t in [with_gateway().await, with_test_number().await] {
        let eve = Applicant::new(&t, "eve").await;
        t.clock().advance(Duration::days(2));
        let ada = Applicant::new(&t, "ada").await;
        let eve_again = t.sign_in(&eve.email, "correct-horse").await;
        let eve = Applicant { token: eve_again["access_token"].as_str().unwrap().to_owned(), ..eve };
        assert_refused(&eve.verify(&t, TEST_CODE).await);
        verify(&t, TEST_CODE).await.expect(200);
        assert_eq!(owners(&t).await, [ada.email]);
    }
}

#[tokio::test]
async fn a_code_changes_the_account_that_it_was_sent_for() {
    let t = TestServer::with_auth(with_phones).await;
    let ada = Applicant::new(&t, "ada").await;
    let code = t.text_to(PHONE).await.code;
    let mut others = Vec::new();
    for number in 0..12 {
        t.clock().advance(Duration::milliseconds(10));
        others.push(Applicant::new(&t, &format!("other{number}")).await);
    }
    let texts = t.texts_when(PHONE, 13).await;
    // Nor does it change another account, whose owner types it
    let other = &texts[12].code;
    if *other != code {
        assert_refused(&ada.verify(&t, other).await);
        assert_refused(&others[11].verify(&t, &code).await);
    }
    let changed = verify(&t, &code).await.expect(200).json();
    assert_eq!(changed["user"]["email"], ada.email);
    assert_eq!(owners(&t).await, [ada.email]);
}

#[tokio::test]
async fn equal_codes_of_two_accounts_need_an_access_token() {
    let t = TestServer::with_auth(with_phones).await;
    let ada = Applicant::new(&t, "ada").await;
    let eve = Applicant::new(&t, "eve").await;
    // One of the form without a salt, as other servers write it
    for (number, applicant) in [&ada, &eve].into_iter().enumerate() {
        let hash = portico_base::hash::sha224_hex(format!("{PHONE}{TEST_CODE}").as_bytes());
        let hash = if number == 0 { hash } else { format!("pkce_{hash}") };
        let of_account = "(select id from auth.users where email = $2)";
        for set in [
            format!("update auth.users set phone_change_token = $1 where id = {of_account}"),
            format!("update auth.one_time_tokens set token_hash = $1 where user_id = {of_account}"),
        ] {
            t.query_with(&set, &[&hash, &applicant.email]).await;
        }
    }
    assert_refused(&verify(&t, TEST_CODE).await);
    eve.verify(&t, TEST_CODE).await.expect(200);
    assert_eq!(owners(&t).await, [eve.email]);
}

#[tokio::test]
async fn the_owner_is_notified_of_a_changed_number() {
    const NEXT: &str = "15550003333";
    for autoconfirm in [false, true] {
        let t = TestServer::with_auth(|settings| {
            with_phones(settings);
            settings.sms.autoconfirm = autoconfirm;
            settings.email.notifications = vec![MailKind::PhoneChanged];
        })
        .await;
        let ada = Applicant::new(&t, "ada").await;
        if !autoconfirm {
            assert_eq!(t.mails_to(&ada.email).len(), 1, "nothing has changed before the number is proved");
            verify(&t, &t.text_to(PHONE).await.code).await.expect(200);
        }
        let notice = t.nth_mail_to(&ada.email, 1).await;
        assert_eq!(notice.subject().as_str(), "Your phone number was changed");
        let expected = format!("The phone number of ada@example.com was changed to +{PHONE}.");
        assert!(notice.html().contains(&expected), "{}", notice.html());

        let change = t.put("/auth/v1/user").bearer(&ada.token).json(&json!({"phone": NEXT}));
        change.send().await.expect(200);
        if !autoconfirm {
            let code = t.text_to(NEXT).await.code;
            let typed = json!({"type": "phone_change", "phone": NEXT, "token": code});
            t.post("/auth/v1/verify").json(&typed).send().await.expect(200);
        }
        let notice = t.nth_mail_to(&ada.email, 2).await;
        assert!(notice.html().contains(&format!("was changed from +{PHONE} to +{NEXT}.")), "{}", notice.html());
    }
}
