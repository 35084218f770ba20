//! `GET` and `PUT /user`, `GET /reauthenticate`

use portico_testkit::{TestResponse, TestServer, code_in, link_in};
use serde_json::{Value, json};
use time::Duration;

const ADA: &str = "ada@example.com";
const NEW: &str = "lovelace@example.com";

fn access(tokens: &Value) -> &str {
    tokens["access_token"].as_str().unwrap()
}

async fn put(t: &TestServer, token: &str, body: Value) -> TestResponse {
    t.put("/auth/v1/user").bearer(token).header("x-supabase-api-version", "2024-01-01").json(&body).send().await
}

async fn verify(t: &TestServer, body: Value) -> TestResponse {
    t.post("/auth/v1/verify").json(&body).send().await
}

#[tokio::test]
async fn the_bearer_is_checked_step_by_step() {
    let t = TestServer::start().await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let get = async |token: &str| t.get("/auth/v1/user").bearer(token).send().await;
    assert_eq!(t.get("/auth/v1/user").send().await.rejection(), (401, "no_authorization".into()));
    assert_eq!(get("nonsense").await.rejection(), (403, "bad_jwt".into()));
    let anon = get(t.api_keys().anon_jwt()).await;
    assert_eq!(anon.rejection(), (403, "bad_jwt".into()));
    assert_eq!(anon.json()["msg"], "invalid claim: missing sub claim");

    let user = get(access(&tokens)).await.expect(200).json();
    assert_eq!(user["email"], ADA);
    assert!(user.get("encrypted_password").is_none() && user.get("confirmation_token").is_none());
    let other = t.get("/auth/v1/user").bearer(access(&tokens)).header("x-jwt-aud", "others").send().await;
    assert_eq!(other.rejection(), (400, "validation_failed".into()));

    t.execute("update auth.users set banned_until = now() + interval '1 day'").await;
    assert_eq!(get(access(&tokens)).await.rejection(), (403, "user_banned".into()));
    t.execute("update auth.users set banned_until = null").await;
    t.execute("delete from auth.sessions").await;
    assert_eq!(get(access(&tokens)).await.rejection(), (403, "session_not_found".into()));
    t.execute("delete from auth.users").await;
    assert_eq!(get(access(&tokens)).await.rejection(), (403, "user_not_found".into()));
    t.clock().advance(Duration::hours(2));
    let expired = get(access(&tokens)).await;
    assert_eq!(expired.rejection(), (403, "bad_jwt".into()));
    let message = "invalid JWT: unable to parse or verify signature, token has invalid claims: token is expired";
    assert_eq!(expired.json()["msg"], message);
}

#[tokio::test]
async fn metadata_is_merged_and_null_removes_a_key() {
    let t = TestServer::start().await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    put(&t, access(&tokens), json!({"data": {"a": {"x": 1}, "b": 2}})).await.expect(200);
    let user = put(&t, access(&tokens), json!({"data": {"a": {"y": 1}, "b": null}})).await.expect(200).json();
    assert_eq!(user["user_metadata"]["a"], json!({"y": 1}));
    assert!(user["user_metadata"].get("b").is_none());
    let admin = put(&t, access(&tokens), json!({"app_metadata": {"role": "admin"}})).await;
    assert_eq!(admin.rejection(), (403, "not_admin".into()));
    let large = put(&t, access(&tokens), json!({"data": {"a": "x".repeat(50_000)}})).await;
    assert_eq!(large.rejection(), (422, "validation_failed".into()));
    assert_eq!(
        t.get("/auth/v1/user").bearer(access(&tokens)).send().await.json()["user_metadata"]["a"],
        json!({"y": 1})
    );
}

#[tokio::test]
async fn a_new_password_ends_the_other_sessions() {
    let t = TestServer::with_auth(|settings| {
        settings.email.notifications = vec![portico_mail::MailKind::PasswordChanged];
        settings.email.recovery_page = Some("https://app.example/forgot-password".into());
    })
    .await;
    let first = t.signed_in(ADA, "correct-horse").await;
    let second = t.sign_in(ADA, "correct-horse").await;
    let same = put(&t, access(&first), json!({"password": "correct-horse"})).await;
    assert_eq!(same.rejection(), (422, "same_password".into()));
    let weak = put(&t, access(&first), json!({"password": "abc"})).await;
    assert_eq!(weak.rejection(), (422, "weak_password".into()));
    put(&t, access(&first), json!({"password": "battery-staple"})).await.expect(200);
    t.get("/auth/v1/user").bearer(access(&first)).send().await.expect(200);
    let other = t.get("/auth/v1/user").bearer(access(&second)).send().await;
    assert_eq!(other.rejection(), (403, "session_not_found".into()));
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
    let tokens = t.signed_in(ADA, "correct-horse").await;
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    put(&t, access(&tokens), json!({"password": "battery-staple"})).await.expect(200);
    let late = verify(&t, json!({"type": "recovery", "email": ADA, "token": code})).await;
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
    let tokens = t.signed_in(ADA, "correct-horse").await;
    put(&t, access(&tokens), json!({"password": "battery-staple"})).await.expect(200);
    t.clock().advance(Duration::hours(25));
    let body = json!({"password": "third-password"});
    let refused = put(&t, access(&tokens), body).await;
    assert_eq!(refused.rejection(), (400, "reauthentication_needed".into()));
    let sent = t.get("/auth/v1/reauthenticate").bearer(access(&tokens)).send().await.expect(200);
    assert_eq!(sent.json(), json!({}));
    let mail = t.nth_mail_to(ADA, 1).await;
    let nonce: String = mail.subject().as_str().chars().take(6).collect();
    let wrong = put(&t, access(&tokens), json!({"password": "third-password", "nonce": "000000"})).await;
    assert_eq!(wrong.rejection(), (422, "reauthentication_not_valid".into()));
    let body = json!({"password": "third-password", "nonce": nonce});
    put(&t, access(&tokens), body).await.expect(200);
    let again = put(&t, access(&tokens), json!({"password": "fourth-password", "nonce": nonce})).await;
    assert_eq!(again.rejection(), (422, "reauthentication_not_valid".into()));
    // The nonce does not sign in
    let signed_in = verify(&t, json!({"type": "email", "email": ADA, "token": nonce})).await;
    assert_eq!(signed_in.rejection(), (403, "otp_expired".into()));
}

#[tokio::test]
async fn a_change_needs_the_current_password_where_it_is_demanded() {
    let t = TestServer::with_auth(|settings| settings.password_change_needs_current = true).await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let body = |current: Option<&str>| json!({"password": "battery-staple", "current_password": current});
    let missing = put(&t, access(&tokens), body(None)).await;
    assert_eq!(missing.rejection(), (400, "current_password_required".into()));
    let wrong = put(&t, access(&tokens), body(Some("nonsense"))).await;
    assert_eq!(wrong.rejection(), (400, "current_password_invalid".into()));
    put(&t, access(&tokens), body(Some("correct-horse"))).await.expect(200);

    // A person who used a recovery link has forgotten it
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    let tokens = verify(&t, json!({"type": "recovery", "email": ADA, "token": code})).await.expect(200).json();
    put(&t, access(&tokens), json!({"password": "third-password"})).await.expect(200);
}

#[tokio::test]
async fn a_current_password_that_is_given_is_checked_even_where_none_is_demanded() {
    let t = TestServer::start().await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let body = |current: &str| json!({"password": "battery-staple", "current_password": current});
    let wrong = put(&t, access(&tokens), body("nonsense")).await;
    assert_eq!(wrong.rejection(), (400, "current_password_invalid".into()));
    put(&t, access(&tokens), body("correct-horse")).await.expect(200);
    put(&t, access(&tokens), json!({"password": "third-password", "current_password": ""})).await.expect(200);
}

#[tokio::test]
async fn an_account_says_whether_it_has_a_password() {
    let t = TestServer::start().await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let of = async |token: &str| t.get("/auth/v1/user/password").bearer(token).send().await.expect(200).json();
    assert_eq!(of(access(&tokens)).await, json!({"is_set": true}));
    t.post("/auth/v1/otp").json(&json!({"email": "grace@example.com"})).send().await.expect(200);
    let code = code_in(t.mail_to("grace@example.com").await.html());
    let tokens =
        verify(&t, json!({"type": "email", "email": "grace@example.com", "token": code})).await.expect(200).json();
    assert_eq!(of(access(&tokens)).await, json!({"is_set": false}));
    put(&t, access(&tokens), json!({"password": "first-password", "current_password": "anything"})).await.expect(200);
    assert_eq!(of(access(&tokens)).await, json!({"is_set": true}));
    assert_eq!(t.get("/auth/v1/user/password").send().await.status, 401);
}

async fn begin_change(t: &TestServer) -> (String, portico_mail::Email, portico_mail::Email) {
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let user = put(t, access(&tokens), json!({"email": NEW})).await.expect(200).json();
    assert_eq!((&user["email"], &user["new_email"]), (&json!(ADA), &json!(NEW)));
    assert!(user["email_change_sent_at"].is_string());
    let to_new = t.mail_to(NEW).await;
    let to_current = t.nth_mail_to(ADA, 1).await;
    (access(&tokens).to_owned(), to_new, to_current)
}

#[tokio::test]
async fn both_addresses_confirm_a_change_in_either_order() {
    for new_first in [true, false] {
        let t = TestServer::start().await;
        let (token, to_new, to_current) = begin_change(&t).await;
        let (first, second) = if new_first { (&to_new, &to_current) } else { (&to_current, &to_new) };
        let half = t.get(link_in(first.html()).as_str()).send().await.expect(303);
        let message = "Confirmation link accepted. Please proceed to confirm link sent to the other email";
        assert_eq!(half.location_fragment("message").as_deref(), Some(message));
        assert_eq!(t.get("/auth/v1/user").bearer(&token).send().await.json()["email"], ADA);
        let replay = t.get(link_in(first.html()).as_str()).send().await.expect(303);
        assert_eq!(replay.location_fragment("error_code").as_deref(), Some("otp_expired"));
        let done = t.get(link_in(second.html()).as_str()).send().await.expect(303);
        assert_eq!(done.location_fragment("type").as_deref(), Some("email_change"));
        let user = t.get("/auth/v1/user").bearer(&token).send().await.expect(200).json();
        assert_eq!(user["email"], NEW);
        assert!(user.get("new_email").is_none());
        assert_eq!(user["identities"][0]["email"], NEW);
        assert_eq!(user["user_metadata"]["email"], NEW);
        t.sign_in(NEW, "correct-horse").await;
    }
}

#[tokio::test]
async fn an_account_says_which_of_two_addresses_has_confirmed_its_change() {
    let t = TestServer::start().await;
    let before = t.signed_in("eve@example.com", "correct-horse").await;
    let of = async |token: &str| t.get("/auth/v1/user/email-change").bearer(token).send().await.expect(200).json();
    let none = json!({"new_email": null, "confirmed": null});
    assert_eq!(of(access(&before)).await, none);
    let (token, to_new, to_current) = begin_change(&t).await;
    assert_eq!(of(&token).await, json!({"new_email": NEW, "confirmed": null}));
    let body = |email: &str, mail: &portico_mail::Email| json!({"type": "email_change", "email": email, "token": code_in(mail.html())});
    verify(&t, body(NEW, &to_new)).await.expect(200);
    assert_eq!(of(&token).await, json!({"new_email": NEW, "confirmed": "new"}));
    assert_eq!(of(access(&before)).await, none, "it is the change of its own account alone");
    assert_eq!(t.get("/auth/v1/user/email-change").send().await.status, 401);

    // A new request sends both emails again, and both addresses have to confirm it
    t.clock().advance(Duration::minutes(2));
    put(&t, &token, json!({"email": NEW})).await.expect(200);
    assert_eq!(of(&token).await, json!({"new_email": NEW, "confirmed": null}));
    assert_eq!(verify(&t, body(ADA, &to_current)).await.rejection(), (403, "otp_expired".into()));
    let again = t.nth_mail_to(ADA, 2).await;
    verify(&t, body(ADA, &again)).await.expect(200);
    assert_eq!(of(&token).await, json!({"new_email": NEW, "confirmed": "current"}));
    verify(&t, body(NEW, &t.nth_mail_to(NEW, 1).await)).await.expect(200);
    assert_eq!(of(&token).await, none);
}

#[tokio::test]
async fn a_change_is_confirmed_by_codes_too() {
    let t = TestServer::start().await;
    let (_, to_new, to_current) = begin_change(&t).await;
    let body = |email: &str, mail: &portico_mail::Email| json!({"type": "email_change", "email": email, "token": code_in(mail.html())});
    let crossed = verify(&t, body(ADA, &to_new)).await;
    assert_eq!(crossed.rejection(), (403, "otp_expired".into()));
    let half = verify(&t, body(ADA, &to_current)).await.expect(200).json();
    assert_eq!(half["code"], "200");
    assert!(half["msg"].as_str().unwrap().starts_with("Confirmation link accepted."));
    let tokens = verify(&t, body(NEW, &to_new)).await.expect(200).json();
    assert_eq!(tokens["user"]["email"], NEW);
}

#[tokio::test]
async fn one_confirmation_is_enough_when_changes_are_not_secured() {
    let t = TestServer::with_auth(|settings| {
        settings.email.secure_change = false;
        settings.email.notifications = vec![portico_mail::MailKind::EmailChanged];
    })
    .await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    put(&t, access(&tokens), json!({"email": NEW})).await.expect(200);
    let landed = t.get(link_in(t.mail_to(NEW).await.html()).as_str()).send().await.expect(303);
    landed.location_fragment("access_token").unwrap();
    assert_eq!(t.nth_mail_to(ADA, 1).await.subject().as_str(), "Your email address was changed");
}

#[tokio::test]
async fn an_address_that_was_taken_meanwhile_is_not_taken_over() {
    let t = TestServer::start().await;
    t.account("eve@example.com", "correct-horse").await;
    let (token, to_new, to_current) = begin_change(&t).await;
    let taken = put(&t, &token, json!({"email": "eve@example.com"})).await;
    assert_eq!(taken.rejection(), (422, "email_exists".into()));
    t.account(NEW, "another-one").await;
    t.get(link_in(to_current.html()).as_str()).send().await.expect(303);
    let landed = t.get(link_in(to_new.html()).as_str()).send().await.expect(303);
    assert_eq!(landed.location_fragment("error_code").as_deref(), Some("email_exists"));
    assert_eq!(t.get("/auth/v1/user").bearer(&token).send().await.json()["email"], ADA);
}

#[tokio::test]
async fn a_pending_change_to_a_taken_address_does_not_affect_its_owner() {
    let t = TestServer::start().await;
    let (_, to_new, to_current) = begin_change(&t).await;
    // Another account had requested the address before
    let eve = t.signed_in("eve@example.com", "correct-horse").await;
    let ask = format!(
        "update auth.users set email_change = '{ADA}', email_change_sent_at = now(), email_change_token_new = 'x1'
          where email = 'eve@example.com';
         insert into auth.one_time_tokens (id, user_id, token_type, token_hash, relates_to)
         values (gen_random_uuid(), '{}', 'email_change_token_new', 'x1', '{ADA}')",
        eve["user"]["id"].as_str().unwrap()
    );
    t.execute(&ask).await;
    for (email, mail) in [(ADA, &to_current), (NEW, &to_new)] {
        verify(&t, json!({"type": "email_change", "email": email, "token": code_in(mail.html())})).await.expect(200);
    }
    t.sign_in(NEW, "correct-horse").await;
}

#[tokio::test]
async fn several_accounts_may_request_an_address_and_each_has_a_code() {
    let t = TestServer::with_auth(|settings| settings.email.secure_change = false).await;
    let mut codes = Vec::new();
    for (index, email) in [ADA, "eve@example.com", "bob@example.com"].into_iter().enumerate() {
        let tokens = t.signed_in(email, "correct-horse").await;
        put(&t, access(&tokens), json!({"email": NEW})).await.expect(200);
        codes.push(code_in(t.nth_mail_to(NEW, index).await.html()));
        t.clock().advance(Duration::minutes(2));
    }
    // A later request does not invalidate the codes of the others
    let body = |code: &str| json!({"type": "email_change", "email": NEW, "token": code});
    let changed = verify(&t, body(&codes[0])).await.expect(200).json();
    assert_eq!(changed["user"]["email"], NEW);
    t.sign_in(NEW, "correct-horse").await;
    assert_eq!(verify(&t, body(&codes[0])).await.rejection(), (403, "otp_expired".into()));
    // The first account has the address now
    assert_eq!(verify(&t, body(&codes[1])).await.rejection(), (422, "email_exists".into()));
    t.sign_in("eve@example.com", "correct-horse").await;
}

#[tokio::test]
async fn the_same_address_is_no_change() {
    let t = TestServer::start().await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    let user = put(&t, access(&tokens), json!({"email": "ADA@example.com", "data": null})).await.expect(200).json();
    assert!(user.get("new_email").is_none());
    assert_eq!(t.mails().len(), 1);
}

#[tokio::test]
async fn a_second_factor_guards_password_and_address() {
    let t = TestServer::start().await;
    let tokens = t.signed_in(ADA, "correct-horse").await;
    t.execute(
        "insert into auth.mfa_factors (id, user_id, friendly_name, factor_type, status, created_at, updated_at)
         select gen_random_uuid(), id, 'phone app', 'totp', 'verified', now(), now() from auth.users",
    )
    .await;
    for body in [json!({"password": "battery-staple"}), json!({"email": NEW})] {
        let answer = put(&t, access(&tokens), body).await;
        assert_eq!(answer.rejection(), (401, "insufficient_aal".into()));
    }
    let user = put(&t, access(&tokens), json!({"data": {"a": 1}})).await.expect(200).json();
    assert_eq!(user["factors"][0]["friendly_name"], "phone app");
}
