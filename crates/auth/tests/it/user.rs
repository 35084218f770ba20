//! `GET` and `PUT /user`, `GET /reauthenticate`

use portico_mail::Email;
use portico_testkit::{Member, TestServer, code_in, link_in};
use serde_json::json;
use time::Duration;

const ADA: &str = "ada@example.com";
const NEW: &str = "lovelace@example.com";

/// Returns Ada, whose app sends the API version of the official clients.
async fn ada(t: &TestServer) -> Member<'_> {
    t.member(ADA).await.with_api_version()
}

#[tokio::test]
async fn the_bearer_is_checked_step_by_step() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let get = async |token: &str| t.get("/auth/v1/user").bearer(token).send().await;
    assert_eq!(t.get("/auth/v1/user").send().await.rejection(), (401, "no_authorization".into()));
    assert_eq!(get("nonsense").await.rejection(), (403, "bad_jwt".into()));
    let anon = get(t.api_keys().anon_jwt()).await;
    assert_eq!(anon.rejection(), (403, "bad_jwt".into()));
    assert_eq!(anon.json()["msg"], "invalid claim: missing sub claim");

    let user = ada.reads_account().await.expect(200).json();
    assert_eq!(user["email"], ADA);
    assert!(user.get("encrypted_password").is_none() && user.get("confirmation_token").is_none());
    let other = ada.sends(t.get("/auth/v1/user")).header("x-jwt-aud", "others").send().await;
    assert_eq!(other.rejection(), (400, "validation_failed".into()));

    t.execute("update auth.users set banned_until = now() + interval '1 day'").await;
    assert_eq!(ada.reads_account().await.rejection(), (403, "user_banned".into()));
    t.execute("update auth.users set banned_until = null").await;
    t.execute("delete from auth.sessions").await;
    assert_eq!(ada.reads_account().await.rejection(), (403, "session_not_found".into()));
    t.execute("delete from auth.users").await;
    assert_eq!(ada.reads_account().await.rejection(), (403, "user_not_found".into()));
    t.clock().advance(Duration::hours(2));
    let expired = ada.reads_account().await;
    assert_eq!(expired.rejection(), (403, "bad_jwt".into()));
    let message = "invalid JWT: unable to parse or verify signature, token has invalid claims: token is expired";
    assert_eq!(expired.json()["msg"], message);
}

#[tokio::test]
async fn metadata_is_merged_and_null_removes_a_key() {
    let t = TestServer::start().await;
    let ada = ada(&t).await;
    ada.changes_account(&json!({"data": {"a": {"x": 1}, "b": 2}})).await.expect(200);
    let user = ada.changes_account(&json!({"data": {"a": {"y": 1}, "b": null}})).await.expect(200).json();
    assert_eq!(user["user_metadata"]["a"], json!({"y": 1}));
    assert!(user["user_metadata"].get("b").is_none());
    let admin = ada.changes_account(&json!({"app_metadata": {"role": "admin"}})).await;
    assert_eq!(admin.rejection(), (403, "not_admin".into()));
    let large = ada.changes_account(&json!({"data": {"a": "x".repeat(50_000)}})).await;
    assert_eq!(large.rejection(), (422, "validation_failed".into()));
    assert_eq!(ada.account().await["user_metadata"]["a"], json!({"y": 1}));
}

#[tokio::test]
async fn a_new_password_ends_the_other_sessions() {
    let t = TestServer::with_auth(|settings| {
        settings.email.notifications = vec![portico_mail::MailKind::PasswordChanged];
        settings.email.recovery_page = Some("https://app.example/forgot-password".into());
    })
    .await;
    let first = ada(&t).await;
    let second = first.on_another_device().await;
    let same = first.changes_account(&json!({"password": "correct horse"})).await;
    assert_eq!(same.rejection(), (422, "same_password".into()));
    let weak = first.changes_account(&json!({"password": "abc"})).await;
    assert_eq!(weak.rejection(), (422, "weak_password".into()));
    first.changes_account(&json!({"password": "battery-staple"})).await.expect(200);
    first.reads_account().await.expect(200);
    assert_eq!(second.reads_account().await.rejection(), (403, "session_not_found".into()));
    t.sign_in(ADA, "battery-staple").await;
    let actions = t.actions().await;
    assert!(actions.contains(&"user_updated_password".to_owned()) && actions.contains(&"user_modified".to_owned()));
    let notice = t.nth_mail_to(ADA, 1).await;
    assert_eq!(notice.subject().as_str(), "Your password was changed");
    assert!(notice.html().contains("href=\"https://app.example/forgot-password\""), "{}", notice.html());
}

#[tokio::test]
async fn a_new_password_ends_messages_on_their_way() {
    let t = TestServer::start().await;
    let ada = ada(&t).await;
    t.visitor(ADA).requests_recovery().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    ada.changes_account(&json!({"password": "battery-staple"})).await.expect(200);
    let late = t.visitor(ADA).verifies("recovery", &code).await;
    assert_eq!(late.rejection(), (403, "otp_expired".into()));
    assert_eq!(t.count("select count(*) from auth.one_time_tokens").await, 0);
}

#[tokio::test]
async fn an_old_session_needs_a_nonce() {
    let t = TestServer::with_auth(|settings| {
        settings.password_change_needs_reauthentication = true;
        settings.jwt.expiry = std::time::Duration::from_secs(7 * 86_400);
    })
    .await;
    let ada = ada(&t).await;
    ada.changes_account(&json!({"password": "battery-staple"})).await.expect(200);
    t.clock().advance(Duration::hours(25));
    let body = json!({"password": "third-password"});
    let refused = ada.changes_account(&body).await;
    assert_eq!(refused.rejection(), (400, "reauthentication_needed".into()));
    let sent = ada.reauthenticates().await.expect(200);
    assert_eq!(sent.json(), json!({}));
    let mail = t.nth_mail_to(ADA, 1).await;
    let nonce: String = mail.subject().as_str().chars().take(6).collect();
    let wrong = ada.changes_account(&json!({"password": "third-password", "nonce": "000000"})).await;
    assert_eq!(wrong.rejection(), (422, "reauthentication_not_valid".into()));
    let body = json!({"password": "third-password", "nonce": nonce});
    ada.changes_account(&body).await.expect(200);
    let again = ada.changes_account(&json!({"password": "fourth-password", "nonce": nonce})).await;
    assert_eq!(again.rejection(), (422, "reauthentication_not_valid".into()));
    // The nonce does not sign in
    let signed_in = t.visitor(ADA).verifies("email", &nonce).await;
    assert_eq!(signed_in.rejection(), (403, "otp_expired".into()));
}

#[tokio::test]
async fn a_change_needs_the_current_password_where_it_is_demanded() {
    let t = TestServer::with_auth(|settings| settings.password_change_needs_current = true).await;
    let ada = ada(&t).await;
    let body = |current: Option<&str>| json!({"password": "battery-staple", "current_password": current});
    let missing = ada.changes_account(&body(None)).await;
    assert_eq!(missing.rejection(), (400, "current_password_required".into()));
    let wrong = ada.changes_account(&body(Some("nonsense"))).await;
    assert_eq!(wrong.rejection(), (400, "current_password_invalid".into()));
    ada.changes_account(&body(Some("correct horse"))).await.expect(200);

    // A person who used a recovery link has forgotten it
    t.visitor(ADA).requests_recovery().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    let ada = t.member_with(t.visitor(ADA).verifies("recovery", &code).await.expect(200).json()).with_api_version();
    ada.changes_account(&json!({"password": "third-password"})).await.expect(200);
}

#[tokio::test]
async fn a_current_password_that_is_given_is_checked_even_where_none_is_demanded() {
    let t = TestServer::start().await;
    let ada = ada(&t).await;
    let body = |current: &str| json!({"password": "battery-staple", "current_password": current});
    let wrong = ada.changes_account(&body("nonsense")).await;
    assert_eq!(wrong.rejection(), (400, "current_password_invalid".into()));
    ada.changes_account(&body("correct horse")).await.expect(200);
    ada.changes_account(&json!({"password": "third-password", "current_password": ""})).await.expect(200);
}

#[tokio::test]
async fn an_account_says_whether_it_has_a_password() {
    let t = TestServer::start().await;
    let ada = ada(&t).await;
    let of = async |person: &Member<'_>| person.sends(t.get("/auth/v1/user/password")).send().await.expect(200).json();
    assert_eq!(of(&ada).await, json!({"is_set": true}));
    let grace = t.visitor("grace@example.com").with_api_version();
    grace.requests_code().await.expect(200);
    let code = code_in(t.mail_to("grace@example.com").await.html());
    let grace = t.member_with(grace.verifies("email", &code).await.expect(200).json()).with_api_version();
    assert_eq!(of(&grace).await, json!({"is_set": false}));
    grace.changes_account(&json!({"password": "first-password", "current_password": "anything"})).await.expect(200);
    assert_eq!(of(&grace).await, json!({"is_set": true}));
    assert_eq!(t.get("/auth/v1/user/password").send().await.status, 401);
}

/// Requests a change of Ada's address. Returns her and the emails to the new and the old address.
async fn begin_change(t: &TestServer) -> (Member<'_>, Email, Email) {
    let ada = ada(t).await;
    let user = ada.changes_account(&json!({"email": NEW})).await.expect(200).json();
    assert_eq!((&user["email"], &user["new_email"]), (&json!(ADA), &json!(NEW)));
    assert!(user["email_change_sent_at"].is_string());
    (ada, t.mail_to(NEW).await, t.nth_mail_to(ADA, 1).await)
}

#[tokio::test]
async fn both_addresses_confirm_a_change_in_either_order() {
    for new_first in [true, false] {
        let t = TestServer::start().await;
        let (ada, to_new, to_current) = begin_change(&t).await;
        let (first, second) = if new_first { (&to_new, &to_current) } else { (&to_current, &to_new) };
        let half = t.get(link_in(first.html()).as_str()).send().await.expect(303);
        let message = "Confirmation link accepted. Please proceed to confirm link sent to the other email";
        assert_eq!(half.location_fragment("message").as_deref(), Some(message));
        assert_eq!(ada.account().await["email"], ADA);
        let replay = t.get(link_in(first.html()).as_str()).send().await.expect(303);
        assert_eq!(replay.location_fragment("error_code").as_deref(), Some("otp_expired"));
        let done = t.get(link_in(second.html()).as_str()).send().await.expect(303);
        assert_eq!(done.location_fragment("type").as_deref(), Some("email_change"));
        let user = ada.account().await;
        assert_eq!(user["email"], NEW);
        assert!(user.get("new_email").is_none());
        assert_eq!(user["identities"][0]["email"], NEW);
        assert_eq!(user["user_metadata"]["email"], NEW);
        t.sign_in(NEW, "correct horse").await;
    }
}

#[tokio::test]
async fn an_account_says_which_of_two_addresses_has_confirmed_its_change() {
    let t = TestServer::start().await;
    let eve = t.member("eve@example.com").await;
    let of =
        async |person: &Member<'_>| person.sends(t.get("/auth/v1/user/email-change")).send().await.expect(200).json();
    let none = json!({"new_email": null, "confirmed": null});
    assert_eq!(of(&eve).await, none);
    let (ada, to_new, to_current) = begin_change(&t).await;
    assert_eq!(of(&ada).await, json!({"new_email": NEW, "confirmed": null}));
    let confirm =
        async |address: &str, mail: &Email| t.visitor(address).verifies("email_change", &code_in(mail.html())).await;
    confirm(NEW, &to_new).await.expect(200);
    assert_eq!(of(&ada).await, json!({"new_email": NEW, "confirmed": "new"}));
    assert_eq!(of(&eve).await, none, "it is the change of its own account alone");
    assert_eq!(t.get("/auth/v1/user/email-change").send().await.status, 401);

    // A new request sends both emails again, and both addresses have to confirm it
    t.clock().advance(Duration::minutes(2));
    ada.changes_account(&json!({"email": NEW})).await.expect(200);
    assert_eq!(of(&ada).await, json!({"new_email": NEW, "confirmed": null}));
    assert_eq!(confirm(ADA, &to_current).await.rejection(), (403, "otp_expired".into()));
    let again = t.nth_mail_to(ADA, 2).await;
    confirm(ADA, &again).await.expect(200);
    assert_eq!(of(&ada).await, json!({"new_email": NEW, "confirmed": "current"}));
    confirm(NEW, &t.nth_mail_to(NEW, 1).await).await.expect(200);
    assert_eq!(of(&ada).await, none);
}

#[tokio::test]
async fn a_change_is_confirmed_by_codes_too() {
    let t = TestServer::start().await;
    let (_, to_new, to_current) = begin_change(&t).await;
    let confirm =
        async |address: &str, mail: &Email| t.visitor(address).verifies("email_change", &code_in(mail.html())).await;
    let crossed = confirm(ADA, &to_new).await;
    assert_eq!(crossed.rejection(), (403, "otp_expired".into()));
    let half = confirm(ADA, &to_current).await.expect(200).json();
    assert_eq!(half["code"], "200");
    assert!(half["msg"].as_str().unwrap().starts_with("Confirmation link accepted."));
    let tokens = confirm(NEW, &to_new).await.expect(200).json();
    assert_eq!(tokens["user"]["email"], NEW);
}

#[tokio::test]
async fn one_confirmation_is_enough_when_changes_are_not_secured() {
    let t = TestServer::with_auth(|settings| {
        settings.email.secure_change = false;
        settings.email.notifications = vec![portico_mail::MailKind::EmailChanged];
    })
    .await;
    let ada = ada(&t).await;
    ada.changes_account(&json!({"email": NEW})).await.expect(200);
    let landed = t.get(link_in(t.mail_to(NEW).await.html()).as_str()).send().await.expect(303);
    landed.location_fragment("access_token").unwrap();
    assert_eq!(t.nth_mail_to(ADA, 1).await.subject().as_str(), "Your email address was changed");
}

#[tokio::test]
async fn an_address_that_was_taken_meanwhile_is_not_taken_over() {
    let t = TestServer::start().await;
    t.account("eve@example.com", "correct horse").await;
    let (ada, to_new, to_current) = begin_change(&t).await;
    let taken = ada.changes_account(&json!({"email": "eve@example.com"})).await;
    assert_eq!(taken.rejection(), (422, "email_exists".into()));
    t.account(NEW, "another-one").await;
    t.get(link_in(to_current.html()).as_str()).send().await.expect(303);
    let landed = t.get(link_in(to_new.html()).as_str()).send().await.expect(303);
    assert_eq!(landed.location_fragment("error_code").as_deref(), Some("email_exists"));
    assert_eq!(ada.account().await["email"], ADA);
}

#[tokio::test]
async fn a_pending_change_to_a_taken_address_does_not_affect_its_owner() {
    let t = TestServer::start().await;
    let (_, to_new, to_current) = begin_change(&t).await;
    // Another account had requested the address before
    let eve = t.member("eve@example.com").await;
    let ask = format!(
        "update auth.users set email_change = '{ADA}', email_change_sent_at = now(), email_change_token_new = 'x1'
          where email = 'eve@example.com';
         insert into auth.one_time_tokens (id, user_id, token_type, token_hash, relates_to)
         values (gen_random_uuid(), '{}', 'email_change_token_new', 'x1', '{ADA}')",
        eve.id()
    );
    t.execute(&ask).await;
    for (email, mail) in [(ADA, &to_current), (NEW, &to_new)] {
        t.visitor(email).verifies("email_change", &code_in(mail.html())).await.expect(200);
    }
    t.sign_in(NEW, "correct horse").await;
}

#[tokio::test]
async fn several_accounts_may_request_an_address_and_each_has_a_code() {
    let t = TestServer::with_auth(|settings| settings.email.secure_change = false).await;
    let mut codes = Vec::new();
    for (index, email) in [ADA, "eve@example.com", "bob@example.com"].into_iter().enumerate() {
        t.member(email).await.changes_account(&json!({"email": NEW})).await.expect(200);
        codes.push(code_in(t.nth_mail_to(NEW, index).await.html()));
        t.clock().advance(Duration::minutes(2));
    }
    // A later request does not invalidate the codes of the others
    let confirm = async |code: &str| t.visitor(NEW).verifies("email_change", code).await;
    let changed = confirm(&codes[0]).await.expect(200).json();
    assert_eq!(changed["user"]["email"], NEW);
    t.sign_in(NEW, "correct horse").await;
    assert_eq!(confirm(&codes[0]).await.rejection(), (403, "otp_expired".into()));
    // The first account has the address now
    assert_eq!(confirm(&codes[1]).await.rejection(), (422, "email_exists".into()));
    t.sign_in("eve@example.com", "correct horse").await;
}

#[tokio::test]
async fn the_same_address_is_no_change() {
    let t = TestServer::start().await;
    let ada = ada(&t).await;
    let user = ada.changes_account(&json!({"email": "ADA@example.com", "data": null})).await.expect(200).json();
    assert!(user.get("new_email").is_none());
    assert_eq!(t.mails().len(), 1);
}

#[tokio::test]
async fn a_second_factor_guards_password_and_address() {
    let t = TestServer::start().await;
    let ada = ada(&t).await;
    t.execute(
        "insert into auth.mfa_factors (id, user_id, friendly_name, factor_type, status, created_at, updated_at)
         select gen_random_uuid(), id, 'phone app', 'totp', 'verified', now(), now() from auth.users",
    )
    .await;
    for body in [json!({"password": "battery-staple"}), json!({"email": NEW})] {
        let response = ada.changes_account(&body).await;
        assert_eq!(response.rejection(), (401, "insufficient_aal".into()));
    }
    let user = ada.changes_account(&json!({"data": {"a": 1}})).await.expect(200).json();
    assert_eq!(user["factors"][0]["friendly_name"], "phone app");
}
