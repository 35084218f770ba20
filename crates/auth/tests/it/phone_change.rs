//! Several accounts with a pending change to one number: a code changes the number of the account
//! that it was sent for.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portico_auth::{TextMessage, TextTransport};
use portico_mail::MailKind;
use portico_testkit::{Member, TestResponse, TestServer};
use serde_json::json;
use time::Duration;

use crate::phone::with_phones;

const PHONE: &str = "15550002222";
const TEST_CODE: &str = "123456";

/// Creates an account with a pending change to [`PHONE`].
async fn applicant<'a>(t: &'a TestServer, name: &str) -> Member<'a> {
    let applicant = t.member(&format!("{name}@example.com")).await;
    applicant.changes_account(&json!({"phone": PHONE})).await.expect(200);
    applicant
}

/// Verifies a code with the person's token.
async fn verify_as(person: &Member<'_>, code: &str) -> TestResponse {
    person.posts("verify", &json!({"type": "phone_change", "phone": PHONE, "token": code})).await
}

/// Verifies a code in the way of the official clients: without the person's token.
async fn verify(t: &TestServer, code: &str) -> TestResponse {
    t.visitor_with_phone(PHONE).verifies("phone_change", code).await
}

fn assert_refused(response: &TestResponse) {
    assert_eq!(response.rejection(), (403, "otp_expired".to_owned()));
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
        let ada = applicant(&t, "ada").await;
        t.clock().advance(Duration::seconds(2));
        let eve = applicant(&t, "eve").await;
        // It could be that of either account, in any order of the requests
        assert_refused(&verify(&t, TEST_CODE).await);
        assert_eq!(owners(&t).await, Vec::<String>::new());
        assert_refused(&verify_as(&ada, "654321").await);

        let changed = verify_as(&ada, TEST_CODE).await.expect(200).json();
        assert_eq!(changed["user"]["email"], "ada@example.com");
        assert_eq!(owners(&t).await, ["ada@example.com"]);
        // The number has an owner now
        assert_eq!(verify_as(&eve, TEST_CODE).await.rejection(), (422, "phone_exists".into()));
        assert_eq!(owners(&t).await, ["ada@example.com"]);
    }
}

#[tokio::test]
async fn a_code_that_identifies_no_account_belongs_to_the_only_pending_one() {
    for t in [with_gateway().await, with_test_number().await] {
        let stranger = t.member("mallory@example.com").await;
        applicant(&t, "ada").await;
        // Not that of a person who is signed in to another account without a pending change
        assert_refused(&verify_as(&stranger, TEST_CODE).await);
        verify(&t, TEST_CODE).await.expect(200);
        assert_eq!(owners(&t).await, ["ada@example.com"]);
    }
}

#[tokio::test]
async fn an_old_request_for_a_number_does_not_affect_others() {
    for t in [with_gateway().await, with_test_number().await] {
        let eve = applicant(&t, "eve").await;
        t.clock().advance(Duration::days(2));
        applicant(&t, "ada").await;
        let eve = eve.on_another_device().await;
        assert_refused(&verify_as(&eve, TEST_CODE).await);
        verify(&t, TEST_CODE).await.expect(200);
        assert_eq!(owners(&t).await, ["ada@example.com"]);
    }
}

#[tokio::test]
async fn a_code_changes_the_account_that_it_was_sent_for() {
    let t = TestServer::with_auth(with_phones).await;
    let ada = applicant(&t, "ada").await;
    let code = t.text_to(PHONE).await.code;
    let mut others = Vec::new();
    for number in 0..12 {
        t.clock().advance(Duration::milliseconds(10));
        others.push(applicant(&t, &format!("other{number}")).await);
    }
    let texts = t.texts_when(PHONE, 13).await;
    // Nor does it change another account, whose owner types it
    let other = &texts[12].code;
    if *other != code {
        assert_refused(&verify_as(&ada, other).await);
        assert_refused(&verify_as(&others[11], &code).await);
    }
    let changed = verify(&t, &code).await.expect(200).json();
    assert_eq!(changed["user"]["email"], "ada@example.com");
    assert_eq!(owners(&t).await, ["ada@example.com"]);
}

#[tokio::test]
async fn equal_codes_of_two_accounts_need_an_access_token() {
    let t = TestServer::with_auth(with_phones).await;
    applicant(&t, "ada").await;
    let eve = applicant(&t, "eve").await;
    // One of the form without a salt, as other servers write it
    for (number, email) in ["ada@example.com", "eve@example.com"].into_iter().enumerate() {
        let hash = portico_base::hash::sha224_hex(format!("{PHONE}{TEST_CODE}").as_bytes());
        let hash = if number == 0 { hash } else { format!("pkce_{hash}") };
        let of_account = "(select id from auth.users where email = $2)";
        for set in [
            format!("update auth.users set phone_change_token = $1 where id = {of_account}"),
            format!("update auth.one_time_tokens set token_hash = $1 where user_id = {of_account}"),
        ] {
            t.query_with(&set, &[&hash, &email]).await;
        }
    }
    assert_refused(&verify(&t, TEST_CODE).await);
    verify_as(&eve, TEST_CODE).await.expect(200);
    assert_eq!(owners(&t).await, ["eve@example.com"]);
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
        let ada = applicant(&t, "ada").await;
        if !autoconfirm {
            assert_eq!(t.mails_to("ada@example.com").len(), 1, "nothing has changed before the number is proved");
            verify(&t, &t.text_to(PHONE).await.code).await.expect(200);
        }
        let notice = t.nth_mail_to("ada@example.com", 1).await;
        assert_eq!(notice.subject().as_str(), "Your phone number was changed");
        let expected = format!("The phone number of ada@example.com was changed to +{PHONE}.");
        assert!(notice.html().contains(&expected), "{}", notice.html());

        ada.changes_account(&json!({"phone": NEXT})).await.expect(200);
        if !autoconfirm {
            let code = t.text_to(NEXT).await.code;
            t.visitor_with_phone(NEXT).verifies("phone_change", &code).await.expect(200);
        }
        let notice = t.nth_mail_to("ada@example.com", 2).await;
        assert!(notice.html().contains(&format!("was changed from +{PHONE} to +{NEXT}.")), "{}", notice.html());
    }
}
