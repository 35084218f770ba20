//! The proof of second factors, and what it does to sessions.

use futures_util::future::join_all;
use portico_auth::settings::TemplateSettings;
use portico_mail::MailKind;
use portico_testkit::{Member, TestServer};
use serde_json::json;
use time::Duration;

use crate::factors::{
    ADA, EVE, Totp, challenge, challenge_id, code_at, enroll_totp, level, methods, prove, refusal, refused, unenroll,
    verify, with_totp, wrong_code,
};

const NOT_FOUND: &str = "MFA factor with the provided challenge ID not found";
const MISMATCH: &str = "Challenge and verify IP addresses mismatch.";
const WRONG: &str = "Invalid TOTP code entered";

#[tokio::test]
async fn a_right_code_raises_the_session() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "phone app").await;
    t.clock().advance(Duration::seconds(5));
    let response = challenge(&ada, &factor.id).await.expect(200).json();
    let now = t.clock().now().unix_timestamp();
    assert_eq!((&response["type"], &response["expires_at"]), (&json!("totp"), &json!(now + 300)));
    assert!(ada.account().await["factors"][0]["last_challenged_at"].is_string());
    let id = response["id"].as_str().unwrap();
    let response = verify(&ada, &factor.id, id, &code_at(&factor.secret, t.clock().now())).await.expect(200);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let raised = ada.with_session_of(response);
    for field in ["access_token", "token_type", "expires_in", "expires_at", "refresh_token", "user"] {
        assert!(!raised.session()[field].is_null(), "{field}");
    }
    assert_eq!(raised.session()["user"]["factors"][0]["status"], "verified");
    let (before, after) = (ada.claims(), raised.claims());
    assert_eq!((&before["aal"], &after["aal"]), (&json!("aal1"), &json!("aal2")));
    assert_eq!(before["session_id"], after["session_id"]);
    let amr: Vec<&str> =
        after["amr"].as_array().unwrap().iter().map(|entry| entry["method"].as_str().unwrap()).collect();
    assert_eq!(amr, ["totp", "password"], "newest first");
    assert_eq!(after["amr"][0]["timestamp"], now);

    // The level holds in refreshes, and the refresh token is a new one
    assert_ne!(ada.session()["refresh_token"], raised.session()["refresh_token"]);
    let next = raised.refreshed().await;
    assert_eq!((level(&next), methods(&next)), ("aal2".into(), vec!["password".to_owned(), "totp".to_owned()]));
    // A new sign-in is at the lower level
    assert_eq!(level(&t.visitor(ADA).signed_in().await), "aal1");
    let actions = t.actions().await;
    for action in ["factor_in_progress", "challenge_created", "verification_attempted"] {
        assert_eq!(actions.iter().filter(|known| *known == action).count(), 1, "{action}");
    }
    let row = t.query("select aal::text, factor_id::text from auth.sessions where factor_id is not null").await;
    assert_eq!((row[0].get::<_, &str>(0), row[0].get::<_, &str>(1)), ("aal2", factor.id.as_str()));
}

#[tokio::test]
async fn a_proof_is_checked_in_order() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "x").await;
    let other = enroll_totp(&ada, "y").await;
    let id = challenge_id(&ada, &factor.id).await;
    let route = format!("factors/{}/verify", factor.id);
    for (body, status, code) in [
        (json!({"challenge_id": id}), 400, "validation_failed"),
        (json!({"challenge_id": id, "code": ""}), 400, "validation_failed"),
        (json!({"challenge_id": id, "code": 123456}), 400, "bad_json"),
        (json!({"challenge_id": 7, "code": "123456"}), 400, "bad_json"),
        (json!({"challenge_id": "x", "code": "123456"}), 400, "bad_json"),
        (json!({"code": "123456"}), 422, "mfa_factor_not_found"),
        (json!({"challenge_id": factor.id, "code": "123456"}), 422, "mfa_factor_not_found"),
    ] {
        assert_eq!(ada.posts(&route, &body).await.rejection(), (status, code.to_owned()), "{body}");
    }
    // A challenge of another factor
    let response = verify(&ada, &other.id, &id, &code_at(&other.secret, t.clock().now())).await;
    assert_eq!(refused(&response), refusal(422, "mfa_factor_not_found", NOT_FOUND));
    // Another address, whatever the code
    let right = code_at(&factor.secret, t.clock().now());
    let body = json!({"challenge_id": id, "code": right});
    let moved = ada.clone().from_address("203.0.113.9").posts(&route, &body).await;
    assert_eq!(refused(&moved), refusal(422, "mfa_ip_address_mismatch", MISMATCH));
    let wrong = verify(&ada, &factor.id, &id, &wrong_code(&t, &factor)).await;
    assert_eq!(refused(&wrong), refusal(422, "mfa_verification_failed", WRONG));
    // The challenge stays usable, once
    verify(&ada, &factor.id, &id, &right).await.expect(200);
    t.clock().advance(Duration::seconds(30));
    let used = verify(&ada, &factor.id, &id, &code_at(&factor.secret, t.clock().now())).await;
    assert_eq!(refused(&used), refusal(422, "mfa_ip_address_mismatch", MISMATCH));
}

#[tokio::test]
async fn a_late_proof_needs_another_challenge() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "x").await;
    let id = challenge_id(&ada, &factor.id).await;
    t.clock().advance(Duration::seconds(300));
    let late = verify(&ada, &factor.id, &id, &code_at(&factor.secret, t.clock().now())).await;
    let message =
        format!("MFA challenge {id} has expired, verify against another challenge or create a new challenge.");
    assert_eq!(refused(&late), refusal(422, "mfa_challenge_expired", &message));
    let gone = verify(&ada, &factor.id, &id, &code_at(&factor.secret, t.clock().now())).await;
    assert_eq!(refused(&gone), refusal(422, "mfa_factor_not_found", NOT_FOUND));
    let id = challenge_id(&ada, &factor.id).await;
    t.clock().advance(Duration::seconds(299));
    verify(&ada, &factor.id, &id, &code_at(&factor.secret, t.clock().now())).await.expect(200);
}

#[tokio::test]
async fn codes_of_a_wrong_shape_are_wrong() {
    let t = TestServer::with_auth(|settings| settings.factors.max_enrolled = 20).await;
    for (number, wrong) in [
        "12345",
        "1234567",
        "abcdef",
        "１２３４５６",
        "12 345",
        "-12345",
        "+12345",
        "0x1234",
        "1e5   ",
        "......",
        "'; --'",
        "\u{202e}123456",
    ]
    .into_iter()
    .enumerate()
    {
        // An account each, since wrong codes are limited
        let ada = t.member(&format!("ada{number}@example.com")).await;
        let factor = enroll_totp(&ada, "x").await;
        let id = challenge_id(&ada, &factor.id).await;
        let response = verify(&ada, &factor.id, &id, wrong).await;
        assert_eq!(refused(&response), refusal(422, "mfa_verification_failed", WRONG), "{wrong:?}");
        let spaced = format!(" {}\n", code_at(&factor.secret, t.clock().now()));
        verify(&ada, &factor.id, &id, &spaced).await.expect(200);
    }
}

#[tokio::test]
async fn a_code_is_accepted_once_and_with_a_clock_that_differs_by_one_step() {
    let t = TestServer::start().await;
    let (factor, ada) = with_totp(&t, ADA).await;
    let used = code_at(&factor.secret, t.clock().now());
    let replay = async |code: &str| {
        let id = challenge_id(&ada, &factor.id).await;
        verify(&ada, &factor.id, &id, code).await
    };
    assert_eq!(replay(&used).await.rejection(), (422, "mfa_verification_failed".into()));
    let before = code_at(&factor.secret, t.clock().now() - Duration::seconds(30));
    assert_eq!(replay(&before).await.rejection(), (422, "mfa_verification_failed".into()), "older than the used one");
    let far = code_at(&factor.secret, t.clock().now() + Duration::seconds(60));
    assert_eq!(replay(&far).await.rejection(), (422, "mfa_verification_failed".into()));
    let ahead = code_at(&factor.secret, t.clock().now() + Duration::seconds(30));
    replay(&ahead).await.expect(200);
    t.clock().advance(Duration::seconds(90));
    let behind = code_at(&factor.secret, t.clock().now() - Duration::seconds(30));
    replay(&behind).await.expect(200);
    // The clock was ahead and is corrected
    t.clock().advance(Duration::minutes(-20));
    replay(&code_at(&factor.secret, t.clock().now())).await.expect(200);
    // Steps that do not matter any more are deleted
    t.clock().advance(Duration::days(2));
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.totp_steps").await, 0);
}

#[tokio::test]
async fn one_of_many_concurrent_proofs_with_one_code_succeeds() {
    let t = TestServer::with_auth(|settings| settings.rate_limits.per_address = false).await;
    let (factor, ada) = with_totp(&t, ADA).await;
    t.clock().advance(Duration::seconds(30));
    let mut challenges = Vec::new();
    for _ in 0..8 {
        challenges.push(challenge_id(&ada, &factor.id).await);
    }
    let code = code_at(&factor.secret, t.clock().now());
    let responses = join_all(challenges.iter().map(|id| verify(&ada, &factor.id, id, &code))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    for response in responses.iter().filter(|response| response.status != 200) {
        assert_eq!(response.rejection(), (422, "mfa_verification_failed".into()));
    }
}

#[tokio::test]
async fn a_proof_ends_the_other_sessions_below_aal2_and_the_other_enrolments_of_its_type() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "x").await;
    enroll_totp(&ada, "abandoned").await;
    let weak = t.visitor(ADA).signed_in().await;
    let eve = t.member(EVE).await;
    enroll_totp(&eve, "hers").await;
    let first = ada.with_session_of(prove(&ada, &factor).await);
    assert_eq!(t.refresh(weak.session()).await.rejection(), (400, "refresh_token_not_found".into()));
    let gone = weak.reads_account().await;
    assert_eq!(gone.rejection(), (403, "session_not_found".into()));
    assert_eq!(
        t.count("select count(*) from auth.mfa_factors").await,
        2,
        "the verified one and that of another account"
    );

    // A session at aal2 stays, and another account's
    let second = t.visitor(ADA).signed_in().await;
    prove(&second, &factor).await.expect(200);
    assert_eq!(level(&first.refreshed().await), "aal2");
    t.refresh(eve.session()).await.expect(200);
}

#[tokio::test]
async fn a_proof_replaces_the_refresh_token_of_both_forms() {
    for version in [1, 2] {
        let t = TestServer::with_auth(|settings| settings.refresh.algorithm_version = version).await;
        let ada = t.member(ADA).await;
        let factor = enroll_totp(&ada, "x").await;
        let raised = ada.with_session_of(prove(&ada, &factor).await);
        assert_ne!(ada.session()["refresh_token"], raised.session()["refresh_token"]);
        let next = raised.refreshed().await;
        assert_eq!(level(&next), "aal2");
        t.clock().advance(Duration::minutes(5));
        assert_eq!(t.refresh(ada.session()).await.rejection(), (400, "refresh_token_already_used".into()), "{version}");
    }
}

/// A stranger with the password cannot finish an enrolment that began before the owner's.
#[tokio::test]
async fn an_enrolment_from_before_the_first_factor_needs_aal2() {
    let t = TestServer::with_auth(|settings| settings.factors.phone.switches.enroll = true).await;
    let (factor, strong) = with_totp(&t, ADA).await;
    let weak = t.visitor(ADA).signed_in().await;
    // As if it had begun before, with another type
    let secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    let id = "00000000-0000-4000-8000-0000000000aa";
    t.execute(&format!(
        "insert into auth.mfa_factors (id, user_id, friendly_name, factor_type, status, created_at, updated_at, secret)
         select '{id}', id, 'stranger', 'totp', 'unverified', now(), now(), '{secret}' from auth.users"
    ))
    .await;
    let needed = refusal(403, "insufficient_aal", "AAL2 required to enroll a new factor");
    assert_eq!(refused(&challenge(&weak, id).await), needed);
    let challenge = challenge_id(&strong, id).await;
    let code = code_at(secret, t.clock().now());
    assert_eq!(refused(&verify(&weak, id, &challenge, &code).await), needed);
    assert_eq!(t.count("select count(*) from auth.mfa_factors where status = 'verified'").await, 1);
    verify(&strong, id, &challenge, &code).await.expect(200);
    unenroll(&strong, &factor.id).await.expect(200);
}

#[tokio::test]
async fn wrong_codes_are_limited_for_all_factors_of_an_account_together() {
    let t = TestServer::start().await;
    let (first, ada) = with_totp(&t, ADA).await;
    let second = enroll_totp(&ada, "second").await;
    let ada = ada.with_session_of(prove(&ada, &second).await);
    let guess = async |member: &Member<'_>, factor: &Totp, address: &str, code: &str| {
        let member = member.clone().from_address(address);
        let id = challenge_id(&member, &factor.id).await;
        verify(&member, &factor.id, &id, code).await
    };
    let stolen = t.visitor(ADA).signed_in().await;
    for number in 0..20 {
        let factor = if number % 2 == 0 { &first } else { &second };
        let address = format!("192.0.2.{}", number / 10);
        let response = guess(&stolen, factor, &address, &wrong_code(&t, factor)).await;
        assert_eq!(response.rejection(), (422, "mfa_verification_failed".into()), "{number}");
    }
    t.clock().advance(Duration::seconds(30));
    let right = code_at(&first.secret, t.clock().now());
    let limited = guess(&stolen, &first, "192.0.2.0", &right).await;
    assert_eq!(limited.rejection(), (429, "over_request_rate_limit".into()));
    assert_eq!(limited.header("x-ratelimit-name"), Some("factor-codes-per-address"));
    let limited = guess(&stolen, &first, "192.0.2.7", &right).await;
    assert_eq!(limited.header("x-ratelimit-name"), Some("factor-codes-per-account"));
    // The owner's network is known
    let owner = t.visitor(ADA).signed_in().await;
    prove(&owner, &first).await.expect(200);
    // Failed attempts are in the audit log
    let failed = "select count(*) from auth.audit_log_entries
                   where payload->>'action' = 'login_failed' and payload->'traits'->>'error_code' = 'mfa_verification_failed'";
    assert_eq!(t.count(failed).await, 20);
    assert!(level(&ada) == "aal2");
}

#[tokio::test]
async fn right_codes_are_not_counted() {
    let t = TestServer::start().await;
    let (factor, mut ada) = with_totp(&t, ADA).await;
    for _ in 0..15 {
        ada = ada.with_session_of(prove(&ada, &factor).await);
    }
}

#[tokio::test]
async fn requests_of_an_address_are_limited() {
    let t = TestServer::with_auth(|settings| settings.rate_limits.per_address = true).await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "x").await;
    for _ in 0..30 {
        challenge(&ada, &factor.id).await.expect(200);
    }
    let limited = challenge(&ada, &factor.id).await;
    let message = "Request rate limit reached";
    assert_eq!(refused(&limited), refusal(429, "over_request_rate_limit", message));
    t.clock().advance(Duration::seconds(4));
    let id = challenge_id(&ada, &factor.id).await;
    // Verification has a bucket of its own
    let code = code_at(&factor.secret, t.clock().now());
    verify(&ada, &factor.id, &id, &code).await.expect(200);
}

#[tokio::test]
async fn an_account_with_a_factor_changes_its_password_and_address_at_aal2_only() {
    let t = TestServer::start().await;
    let (factor, strong) = with_totp(&t, ADA).await;
    let weak = t.visitor(ADA).signed_in().await;
    let message = "AAL2 session is required to update email or password when MFA is enabled.";
    for body in [json!({"password": "another-horse"}), json!({"email": "new@example.com"})] {
        let response = weak.changes_account(&body).await;
        assert_eq!(refused(&response), refusal(401, "insufficient_aal", message), "{body}");
    }
    let data = json!({"data": {"name": "Ada"}});
    weak.changes_account(&data).await.expect(200);
    let raised = weak.with_session_of(prove(&weak, &factor).await);
    let body = json!({"password": "another-horse"});
    raised.changes_account(&body).await.expect(200);
    assert_eq!(t.refresh(strong.session()).await.rejection(), (400, "refresh_token_not_found".into()));
}

#[tokio::test]
async fn low_sessions_end_early_where_that_is_configured() {
    let t = TestServer::with_auth(|settings| {
        settings.sessions.allow_low_aal = Some(std::time::Duration::from_secs(900));
    })
    .await;
    let (factor, strong) = with_totp(&t, ADA).await;
    assert_eq!(strong.session()["expires_in"], 3600);
    let weak = t.visitor(ADA).signed_in().await;
    assert_eq!(weak.session()["expires_in"], 900);
    let raised = weak.with_session_of(prove(&weak, &factor).await);
    assert_eq!(raised.session()["expires_in"], 3600);
    let weak = t.visitor(ADA).signed_in().await;
    t.clock().advance(Duration::seconds(901));
    let ended = "Invalid Refresh Token: Session Expired (Low AAL: User Needs MFA Verification)";
    assert_eq!(refused(&t.refresh(weak.session()).await), refusal(400, "session_expired", ended));
    t.refresh(raised.session()).await.expect(200);
}

#[tokio::test]
async fn the_owner_is_notified_of_added_and_removed_factors() {
    let t = TestServer::with_auth(|settings| {
        settings.email.notifications = vec![MailKind::MfaFactorEnrolled, MailKind::MfaFactorUnenrolled];
        let body = Some("{{ .Email }} {{ .FactorType }} {{ .SiteURL }}".into());
        let texts = TemplateSettings { body, ..TemplateSettings::default() };
        settings.email.templates.insert(MailKind::MfaFactorEnrolled, texts);
    })
    .await;
    let (factor, ada) = with_totp(&t, ADA).await;
    let mail = t.nth_mail_to(ADA, 1).await;
    assert_eq!(mail.subject().to_string(), "A new verification method was added to your account");
    assert!(mail.html().contains("ada@example.com totp http://127.0.0.1:3000"), "{}", mail.html());
    // A further proof is none
    let ada = ada.with_session_of(prove(&ada, &factor).await);
    unenroll(&ada, &factor.id).await.expect(200);
    let mail = t.nth_mail_to(ADA, 2).await;
    assert_eq!(mail.subject().to_string(), "A verification method was removed from your account");
    // Nor is the removal of an unverified factor
    let factor = enroll_totp(&ada, "x").await;
    unenroll(&ada, &factor.id).await.expect(200);
    assert_eq!(t.count("select count(*) from portico.mail_outbox").await, 0);
    assert_eq!(t.mails_to(ADA).len(), 3);
}

#[tokio::test]
async fn a_failed_proof_changes_nothing() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "x").await;
    let id = challenge_id(&ada, &factor.id).await;
    // The session ends between the comparison and the transaction: as a trigger, which fails it
    // late
    t.execute(
        "create function public.fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
         create trigger fail before insert on auth.refresh_tokens for each row execute function public.fail();",
    )
    .await;
    let code = code_at(&factor.secret, t.clock().now());
    assert_eq!(verify(&ada, &factor.id, &id, &code).await.status, 500);
    assert_eq!(t.count("select count(*) from auth.mfa_factors where status = 'verified'").await, 0);
    assert_eq!(t.count("select count(*) from auth.mfa_challenges where verified_at is not null").await, 0);
    assert_eq!(t.count("select count(*) from portico.totp_steps").await, 0);
    t.execute("drop trigger fail on auth.refresh_tokens").await;
    // The code was not used up
    verify(&ada, &factor.id, &id, &code).await.expect(200);
}

#[tokio::test]
async fn a_factor_has_few_unproved_challenges() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let factor = enroll_totp(&ada, "phone app").await;
    let other = enroll_totp(&ada, "tablet").await;
    let kept = challenge_id(&ada, &other.id).await;
    let mut challenges = Vec::new();
    for _ in 0..13 {
        t.clock().advance(Duration::milliseconds(10));
        challenges.push(challenge_id(&ada, &factor.id).await);
    }
    let open = "select id::text from auth.mfa_challenges where factor_id = $1::text::uuid order by created_at";
    let rows = t.query_with(open, &[&factor.id]).await;
    let stored: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(stored, challenges[3..], "the newest ten");
    assert_eq!(t.query_with(open, &[&other.id]).await[0].get::<_, String>(0), kept);
    let code = code_at(&factor.secret, t.clock().now());
    let late = verify(&ada, &factor.id, &challenges[0], &code).await;
    assert_eq!(late.rejection(), (422, "mfa_factor_not_found".into()));
    verify(&ada, &factor.id, &challenges[3], &code).await.expect(200);
}
