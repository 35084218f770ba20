//! Recovery codes in the place of a second factor.

use futures_util::future::join_all;
use portico_mail::MailKind;
use portico_testkit::{Member, TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;

use crate::factors::{ADA, EVE, enroll_totp, level, methods, prove, refusal, refused, unenroll, with_totp};

const PATH: &str = "factors/recovery-codes";
const WRONG: &str = "Invalid recovery code entered";

async fn make(member: &Member<'_>) -> Vec<String> {
    let made = member.posts(PATH, &json!({})).await.expect(200).json();
    made["codes"].as_array().unwrap().iter().map(|code| code.as_str().unwrap().to_owned()).collect()
}

async fn left(member: &Member<'_>) -> Value {
    member.sends(member.server().get(&format!("/auth/v1/{PATH}"))).send().await.expect(200).json()
}

async fn use_code(member: &Member<'_>, code: &str) -> TestResponse {
    member.posts("factors/recovery-codes/verify", &json!({"code": code})).await
}

#[tokio::test]
async fn each_code_raises_a_session_once() {
    let t = TestServer::start().await;
    let (factor, strong) = with_totp(&t, ADA).await;
    assert_eq!(left(&strong).await, json!({"remaining": 0, "created_at": null}));
    let response = strong.posts(PATH, &json!({})).await.expect(200);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let codes: Vec<String> =
        response.json()["codes"].as_array().unwrap().iter().map(|code| code.as_str().unwrap().to_owned()).collect();
    assert_eq!(codes.len(), 10);
    assert!(codes.iter().all(|code| code.len() == 19), "{codes:?}");
    let state = left(&strong).await;
    assert_eq!(state["remaining"], 10);
    assert!(state["created_at"].is_string());

    let weak = t.visitor(ADA).signed_in().await;
    let other = t.visitor(ADA).signed_in().await;
    let raised = weak.with_session_of(use_code(&weak, &codes[3]).await);
    for field in ["access_token", "token_type", "expires_in", "expires_at", "refresh_token", "user"] {
        assert!(!raised.session()[field].is_null(), "{field}");
    }
    let expected = ("aal2".to_owned(), vec!["mfa/recovery_code".to_owned(), "password".to_owned()]);
    assert_eq!((level(&raised), methods(&raised)), expected);
    let next = raised.refreshed().await;
    assert_eq!((level(&next), methods(&next)), expected, "the level holds in refreshes");
    assert_eq!(t.refresh(other.session()).await.rejection(), (400, "refresh_token_not_found".into()));
    t.refresh(strong.session()).await.expect(200);
    assert_eq!(left(&next).await["remaining"], 9);

    let weak = t.visitor(ADA).signed_in().await;
    let again = use_code(&weak, &codes[3]).await;
    assert_eq!(refused(&again), refusal(422, "mfa_verification_failed", WRONG));
    // As a person copies it
    let spaced = format!(" {} ", codes[4].to_uppercase().replace('-', " "));
    let raised = weak.with_session_of(use_code(&weak, &spaced).await);
    // The lost factor can be removed
    unenroll(&raised, &factor.id).await.expect(200);
}

#[tokio::test]
async fn codes_need_a_verified_factor_and_aal2() {
    let t = TestServer::with_auth(|settings| settings.anonymous_users = true).await;
    let ada = t.member(ADA).await;
    let needed = refusal(422, "mfa_factor_not_found", "Recovery codes need a verified second factor");
    assert_eq!(refused(&ada.posts(PATH, &json!({})).await), needed);
    enroll_totp(&ada, "unverified").await;
    assert_eq!(refused(&ada.posts(PATH, &json!({})).await), needed);
    assert_eq!(refused(&use_code(&ada, "abcd-efgh-ijkl-mnop").await), needed);

    let (_, strong) = with_totp(&t, EVE).await;
    let weak = t.visitor(EVE).signed_in().await;
    let response = weak.posts(PATH, &json!({})).await;
    let needed = refusal(403, "insufficient_aal", "AAL2 required to create recovery codes");
    assert_eq!(refused(&response), needed);
    make(&strong).await;
    assert_eq!(left(&weak).await["remaining"], 10, "the number is no secret");

    let anonymous = t.anonymous_member().await;
    for (method, path) in [("POST", PATH), ("GET", PATH), ("POST", "factors/recovery-codes/verify")] {
        let request = || t.request(method.parse().unwrap(), &format!("/auth/v1/{path}"));
        let bare = request().json(&json!({})).send().await;
        assert_eq!(bare.rejection(), (401, "no_authorization".into()), "{method} {path}");
        let bearer = request().json(&json!({}));
        let bearer = anonymous.sends(bearer).send().await;
        assert_eq!(bearer.rejection(), (403, "no_authorization".into()), "{method} {path}");
    }
}

#[tokio::test]
async fn new_codes_replace_the_earlier_ones() {
    let t = TestServer::start().await;
    let (_, strong) = with_totp(&t, ADA).await;
    let old = make(&strong).await;
    let new = make(&strong).await;
    assert!(old.iter().all(|code| !new.contains(code)));
    let weak = t.visitor(ADA).signed_in().await;
    assert_eq!(use_code(&weak, &old[0]).await.rejection(), (422, "mfa_verification_failed".into()));
    use_code(&weak, &new[0]).await.expect(200);
}

#[tokio::test]
async fn codes_of_another_account_and_of_a_wrong_shape_are_wrong() {
    let t = TestServer::start().await;
    let (_, eve) = with_totp(&t, EVE).await;
    let hers = make(&eve).await;
    let (_, ada) = with_totp(&t, ADA).await;
    make(&ada).await;
    let weak = t.visitor(ADA).signed_in().await;
    for wrong in [hers[0].as_str(), "abcd-efgh-ijkl-mnop", "123456", "x", " ", "abcd-efgh-ijkl-mno1", "\u{202e}abcd"] {
        let response = use_code(&weak, wrong).await;
        assert_eq!(refused(&response), refusal(422, "mfa_verification_failed", WRONG), "{wrong:?}");
    }
    let long = use_code(&weak, &"a".repeat(100_000)).await;
    assert_eq!(long.rejection(), (422, "mfa_verification_failed".into()));
    let empty = use_code(&weak, "").await;
    assert_eq!(refused(&empty), refusal(400, "validation_failed", "Code needs to be non-empty"));
    let number = weak.posts("factors/recovery-codes/verify", &json!({"code": 5})).await;
    assert_eq!(number.rejection(), (400, "bad_json".into()));
    assert_eq!(left(&eve).await["remaining"], 10);
}

#[tokio::test]
async fn wrong_codes_are_limited() {
    let t = TestServer::start().await;
    let (_, strong) = with_totp(&t, ADA).await;
    let codes = make(&strong).await;
    let weak = t.visitor(ADA).signed_in().await;
    let elsewhere = weak.clone().from_address("192.0.2.1");
    let guess = |code| use_code(&elsewhere, code);
    for _ in 0..10 {
        assert_eq!(guess("abcd-efgh-ijkl-mnop").await.rejection(), (422, "mfa_verification_failed".into()));
    }
    let limited = guess(&codes[0]).await;
    assert_eq!(limited.rejection(), (429, "over_request_rate_limit".into()));
    assert_eq!(limited.header("x-ratelimit-name"), Some("factor-codes-per-address"));
    assert_eq!(left(&strong).await["remaining"], 10);
    use_code(&weak, &codes[0]).await.expect(200);
}

#[tokio::test]
async fn one_of_many_concurrent_uses_of_a_code_succeeds() {
    let t = TestServer::start().await;
    let (_, strong) = with_totp(&t, ADA).await;
    let codes = make(&strong).await;
    let responses = join_all((0..6).map(|_| use_code(&strong, &codes[0]))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    assert_eq!(left(&strong).await["remaining"], 9);
}

#[tokio::test]
async fn the_last_verified_factor_takes_the_codes_with_it() {
    let t = TestServer::start().await;
    let (first, strong) = with_totp(&t, ADA).await;
    let second = enroll_totp(&strong, "second").await;
    let strong = strong.with_session_of(prove(&strong, &second).await);
    let codes = make(&strong).await;
    let weak = t.visitor(ADA).signed_in().await;
    let by_code = weak.with_session_of(use_code(&weak, &codes[0]).await);
    unenroll(&strong, &first.id).await.expect(200);
    assert_eq!(left(&strong).await["remaining"], 9);
    unenroll(&by_code, &second.id).await.expect(200);
    assert_eq!(t.count("select count(*) from portico.recovery_codes").await, 0);
    assert_eq!(level(&by_code.refreshed().await), "aal1");

    // Factors that were deleted by a statement: their codes do not open the account of the next one
    let ada = t.visitor(ADA).signed_in().await;
    let third = enroll_totp(&ada, "third").await;
    let ada = ada.with_session_of(prove(&ada, &third).await);
    let codes = make(&ada).await;
    t.execute("delete from auth.mfa_factors").await;
    assert_eq!(left(&ada).await, json!({"remaining": 0, "created_at": null}));
    assert_eq!(use_code(&ada, &codes[0]).await.rejection(), (422, "mfa_factor_not_found".into()));
    let fourth = enroll_totp(&ada, "fourth").await;
    let ada = ada.with_session_of(prove(&ada, &fourth).await);
    assert_eq!(left(&ada).await["remaining"], 0);
    assert_eq!(use_code(&ada, &codes[0]).await.rejection(), (422, "mfa_verification_failed".into()));
}

#[tokio::test]
async fn codes_are_stored_as_hashes_and_deleted_with_the_account() {
    let t = TestServer::start().await;
    let (_, strong) = with_totp(&t, ADA).await;
    let codes = make(&strong).await;
    let stored = t.query("select hashes::text from portico.recovery_codes").await[0].get::<_, String>(0);
    for code in &codes {
        let plain = code.replace('-', "");
        let bytes = data_encoding::BASE32_NOPAD.decode(plain.to_uppercase().as_bytes()).unwrap();
        for form in [hex::encode(plain.as_bytes()), hex::encode(code.as_bytes()), hex::encode(bytes)] {
            assert!(!stored.contains(&form));
        }
    }
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.recovery_codes").await, 1);
    t.execute("delete from auth.users").await;
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.recovery_codes").await, 0);
}

#[tokio::test]
async fn new_codes_are_reported_to_the_owner_each_time() {
    let t = TestServer::with_auth(|settings| settings.email.notifications = vec![MailKind::RecoveryCodesCreated]).await;
    let (_, strong) = with_totp(&t, ADA).await;
    let before = t.mails_to(ADA).len();
    for made in 0..2 {
        let codes = make(&strong).await;
        let mail = t.nth_mail_to(ADA, before + made).await;
        assert!(mail.html().contains("New recovery codes were created"), "{}", mail.html());
        assert!(codes.iter().all(|code| !mail.html().contains(code)));
    }
    // A rejected request is not reported
    let weak = t.visitor(ADA).signed_in().await;
    weak.posts(PATH, &json!({})).await.expect(403);
    assert_eq!(t.count("select count(*) from portico.mail_outbox").await, 0);
    assert_eq!(t.mails_to(ADA).len(), before + 2);
}

#[tokio::test]
async fn a_used_code_is_reported_to_the_owner_and_in_the_audit_log() {
    let t = TestServer::with_auth(|settings| settings.email.notifications = vec![MailKind::RecoveryCodeUsed]).await;
    let (_, strong) = with_totp(&t, ADA).await;
    let codes = make(&strong).await;
    let before = t.mails_to(ADA).len();
    t.clock().advance(Duration::seconds(1));
    use_code(&strong, &codes[0]).await.expect(200);
    let mail = t.nth_mail_to(ADA, before).await;
    assert!(mail.html().contains("Codes left: 9"), "{}", mail.html());
    let actions = t.actions().await;
    assert!(actions.contains(&"recovery_codes_created".to_owned()), "{actions:?}");
    let used = "select count(*) from auth.audit_log_entries
                 where payload->>'action' = 'recovery_code_used' and payload->'traits'->>'remaining' = '9'
                   and payload->>'log_type' = 'factor' and ip_address <> ''";
    assert_eq!(t.count(used).await, 1);
}
