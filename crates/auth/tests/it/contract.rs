//! Rules of the wire contract that belong to no other file of tests.

use portico_testkit::{TestServer, code_in, link_in, token_hash_in};
use serde_json::{Value, json};
use time::Duration;

const ADA: &str = "ada@example.com";

#[tokio::test]
async fn a_head_request_does_not_use_a_link() {
    let t = TestServer::start().await;
    t.visitor(ADA).signs_up().await.expect(200);
    let link = link_in(t.mail_to(ADA).await.html());
    let looked = t.request(http::Method::HEAD, link.as_str()).send().await.expect(405);
    assert!(looked.body.is_empty() && looked.header("location").is_none());
    assert_eq!(t.count("select count(*) from auth.sessions").await, 0);
    t.get(link.as_str()).send().await.expect(303).location_fragment("access_token").unwrap();
}

#[tokio::test]
async fn another_audience_has_other_accounts() {
    let t = TestServer::start().await;
    t.account(ADA, "correct horse").await;
    let ada = || t.visitor(ADA).with_header("x-jwt-aud", "others");
    // The database keeps one address once; another audience has no account of this address
    let wrong = ada().with_password("another-one").signs_in().await;
    assert_eq!(wrong.rejection(), (400, "invalid_credentials".into()));
    t.execute("update auth.users set aud = 'others'").await;
    let session = ada().signed_in().await;
    let get = || t.get("/auth/v1/user").bearer(session.access_token());
    assert_eq!(get().send().await.expect(200).json()["aud"], "others");
    get().header("x-jwt-aud", "others").send().await.expect(200);
    let mismatch = get().header("x-jwt-aud", "authenticated").send().await;
    assert_eq!(mismatch.rejection(), (400, "validation_failed".into()));
    assert_eq!(mismatch.json()["msg"], "Token audience doesn't match request audience");

    let long = t.visitor("eve@example.com").with_header("x-jwt-aud", &"x".repeat(256)).signs_up().await;
    assert_eq!(long.rejection(), (400, "validation_failed".into()));
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn changes_of_an_account_are_rejected_in_the_order_of_the_contract() {
    let t = TestServer::with_auth(|settings| {
        settings.password_change_needs_reauthentication = true;
        settings.password_change_needs_current = true;
        settings.jwt.expiry = std::time::Duration::from_secs(7 * 86_400);
    })
    .await;
    t.account("eve@example.com", "correct horse").await;
    let ada = t.member(ADA).await;
    t.clock().advance(Duration::hours(25));
    ada.reauthenticates().await.expect(200);
    let nonce: String = t.nth_mail_to(ADA, 1).await.subject().as_str().chars().take(6).collect();
    let wrong = if nonce == "000000" { "000001" } else { "000000" };
    // Each body carries every mistake that is found later
    for (body, status, code) in [
        (json!({"email": "nonsense", "password": "abc"}), 400, "validation_failed"),
        (json!({"email": "eve@example.com", "password": "abc"}), 422, "weak_password"),
        (json!({"email": "eve@example.com", "password": "correct horse", "app_metadata": {}}), 403, "not_admin"),
        (json!({"email": "eve@example.com", "password": "correct horse"}), 422, "email_exists"),
        (json!({"password": "correct horse"}), 400, "reauthentication_needed"),
        (json!({"password": "correct horse", "nonce": wrong}), 422, "reauthentication_not_valid"),
        (json!({"password": "correct horse", "nonce": nonce}), 400, "current_password_required"),
        (
            json!({"password": "correct horse", "nonce": nonce, "current_password": "wrong"}),
            400,
            "current_password_invalid",
        ),
        (
            json!({"password": "correct horse", "nonce": nonce, "current_password": "correct horse"}),
            422,
            "same_password",
        ),
    ] {
        assert_eq!(ada.changes_account(&body).await.rejection(), (status, code.to_owned()));
    }
    let body = json!({"password": "battery-staple", "nonce": nonce, "current_password": "correct horse"});
    ada.changes_account(&body).await.expect(200);
}

#[tokio::test]
async fn a_nonce_used_twice_concurrently_changes_the_password_once() {
    let t = TestServer::with_auth(|settings| {
        settings.password_change_needs_reauthentication = true;
        settings.jwt.expiry = std::time::Duration::from_secs(7 * 86_400);
    })
    .await;
    let ada = t.member(ADA).await;
    t.clock().advance(Duration::hours(25));
    ada.reauthenticates().await.expect(200);
    let nonce: String = t.nth_mail_to(ADA, 1).await.subject().as_str().chars().take(6).collect();
    let bodies: Vec<Value> =
        (0..8).map(|number| json!({"password": format!("battery-staple-{number}"), "nonce": nonce})).collect();
    let responses = futures_util::future::join_all(bodies.iter().map(|body| ada.changes_account(body))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1, "{responses:?}");
    assert!(responses.iter().all(|response| [200, 409, 422].contains(&response.status)), "{responses:?}");
}

#[tokio::test]
async fn links_of_an_unknown_type_are_rejected() {
    let t = TestServer::start().await;
    for verify_type in ["sms", "phone_change", "odd"] {
        let landed = t.get(&format!("/auth/v1/verify?type={verify_type}&token=abc")).send().await.expect(303);
        assert_eq!(landed.location_fragment("error").as_deref(), Some("invalid_request"));
        assert_eq!(landed.location_fragment("error_code").as_deref(), Some("validation_failed"));
        let text = landed.location_fragment("error_description");
        assert_eq!(text.as_deref(), Some("Invalid email verification type"));
    }
}

#[tokio::test]
async fn a_malformed_proof_key_is_rejected_by_phone_too() {
    let t = TestServer::with_auth(|settings| settings.sms.enabled = true).await;
    let key = json!({"code_challenge": "short", "code_challenge_method": "s256"});
    let refused = t.visitor_with_phone("15550001111").posts("otp", &key).await;
    assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    assert_eq!(refused.json()["msg"], "code challenge has to be between 43 and 128 characters");
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn a_sign_in_link_without_confirmations_verifies_the_identity() {
    let t = TestServer::with_auth(|settings| settings.email.autoconfirm = true).await;
    let ada = t.visitor(ADA);
    ada.posts("otp", &json!({"data": {"name": "Ada"}})).await.expect(200);
    let mail = t.mail_to(ADA).await;
    assert_eq!(mail.subject().as_str(), "Your sign-in link");
    let user = ada.verifies("magiclink", &code_in(mail.html())).await.expect(200).json()["user"].clone();
    assert_eq!(user["user_metadata"]["name"], "Ada");
    assert_eq!(user["user_metadata"]["email_verified"], true);
    assert_eq!(user["identities"][0]["identity_data"]["email_verified"], true);
    // The first two have the same time
    let mut actions = t.actions().await;
    actions.sort();
    assert_eq!(actions, ["login", "user_recovery_requested", "user_signedup"]);
}

#[tokio::test]
async fn an_internal_error_is_reported_to_the_app() {
    let t = TestServer::start().await;
    t.visitor(ADA).signs_up().await.expect(200);
    let link = link_in(t.mail_to(ADA).await.html());
    t.execute(
        "create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
         create trigger refuse before insert on auth.sessions for each row execute function public.refuse();",
    )
    .await;
    let landed = t.get(link.as_str()).send().await.expect(303);
    assert_eq!(landed.location_fragment("error").as_deref(), Some("server_error"));
    assert_eq!(landed.location_fragment("error_code").as_deref(), Some("unexpected_failure"));
    assert_eq!(landed.location_fragment("error_id").as_deref(), landed.header("x-request-id"));
    assert!(landed.location_fragment("error_id").is_some());
    // Nothing happened, so the link still works
    t.execute("drop trigger refuse on auth.sessions").await;
    t.get(link.as_str()).send().await.expect(303).location_fragment("access_token").unwrap();
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_rolled_back() {
    let t = TestServer::with_auth(|settings| {
        settings.max_request_duration = std::time::Duration::from_secs(5);
        settings.email.autoconfirm = true;
    })
    .await;
    // Another transaction locks the row that the request needs until it times out
    t.execute("begin; lock table auth.identities in access exclusive mode").await;
    let late = t.visitor(ADA).signs_up().await;
    t.execute("rollback").await;
    assert_eq!(late.rejection(), (504, "request_timeout".into()));
    assert_eq!(late.json()["msg"], "Processing this request timed out, please retry after a moment.");
    assert!(late.json()["error_id"].is_string());
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    t.visitor(ADA).signs_up().await.expect(200);
}

#[tokio::test]
async fn an_internal_error_names_the_request_and_nothing_else() {
    let t = TestServer::start().await;
    t.execute(
        "create function public.refuse() returns trigger language plpgsql as $$
           begin raise exception 'the password is %', new.encrypted_password using errcode = '22000'; end $$;
         create trigger refuse before insert on auth.users for each row execute function public.refuse();",
    )
    .await;
    let response = t.visitor(ADA).signs_up().await.expect(500);
    assert_eq!(response.json()["msg"], "Database error saving new user");
    assert_eq!(response.json()["error_code"], "unexpected_failure");
    let id = response.json()["error_id"].as_str().unwrap().to_owned();
    assert_eq!(response.header("sb-request-id"), Some(id.as_str()));
    assert!(!response.text().contains("$2"));
}

#[tokio::test]
async fn a_status_of_the_application_becomes_the_status_of_the_response() {
    let t = TestServer::start().await;
    for (state, status) in [("PT402", 402), ("PT100", 500), ("PTxyz", 500)] {
        t.execute(&format!(
            "create or replace function public.refuse() returns trigger language plpgsql as $$
               begin raise exception 'pay first' using errcode = '{}', detail = 'd'; end $$;
             create or replace trigger refuse before insert on auth.users for each row execute function public.refuse();",
            state.to_uppercase()
        ))
        .await;
        let response = t.visitor(ADA).signs_up().await.expect(status);
        if status == 402 {
            let shown = json!({"code": "PT402", "message": "pay first", "hint": "", "detail": "d"});
            assert_eq!(response.json(), shown);
        } else {
            assert_eq!(response.json()["msg"], "Database error saving new user");
        }
    }
}

#[tokio::test]
async fn a_link_of_type_email_continues_a_flow_with_a_proof_key() {
    let t = TestServer::start().await;
    for (path, method) in [("signup", "email/signup"), ("otp", "magiclink"), ("recover", "recovery")] {
        let pkce = portico_testkit::Pkce::new();
        let fields = json!({"password": "correct horse",
                            "code_challenge": pkce.challenge, "code_challenge_method": "S256"});
        let before = t.mails_to(ADA).len();
        t.visitor(ADA).posts(path, &fields).await.expect(200);
        let hash = token_hash_in(t.nth_mail_to(ADA, before).await.html());
        let landed = t.get(&format!("/auth/v1/verify?type=email&token={hash}")).send().await.expect(303);
        let tokens = t.exchange(&landed, &pkce.verifier).await.expect(200).json();
        let claims = portico_testkit::claims_of(tokens["access_token"].as_str().unwrap());
        assert_eq!(claims["amr"][0]["method"], method);
    }
}

#[tokio::test]
async fn a_malformed_proof_key_is_rejected_everywhere() {
    let t = TestServer::start().await;
    let (ada, eve) = (t.visitor(ADA), t.member("eve@example.com").await);
    let challenge = "x".repeat(43);
    for (challenge, method, message) in [
        (Some(challenge.as_str()), None, "PKCE flow requires code_challenge_method and code_challenge"),
        (None, Some("s256"), "PKCE flow requires code_challenge_method and code_challenge"),
        (Some("short"), Some("s256"), "code challenge has to be between 43 and 128 characters"),
        (Some(challenge.as_str()), Some("odd"), "Invalid code_challenge_method"),
    ] {
        let body = json!({"email": ADA, "password": "correct horse", "type": "signup",
                          "code_challenge": challenge, "code_challenge_method": method});
        for path in ["signup", "otp", "magiclink", "recover", "resend"] {
            let refused = ada.posts(path, &body).await;
            assert_eq!(refused.rejection(), (400, "validation_failed".into()), "{path}");
            assert_eq!(refused.json()["msg"], message, "{path}");
        }
        let refused = eve.changes_account(&body).await;
        assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    assert_eq!(t.count("select count(*) from auth.flow_state").await, 0);
}

#[tokio::test]
async fn a_taken_address_is_hidden_although_numbers_need_no_confirmation() {
    let t = TestServer::with_auth(|settings| {
        settings.sms.enabled = true;
        settings.sms.autoconfirm = true;
    })
    .await;
    t.account(ADA, "correct horse").await;
    let user = t.visitor(ADA).with_password("another-one").signs_up().await.expect(200).json();
    assert_eq!((&user["role"], &user["identities"]), (&json!(""), &json!([])));
}

#[tokio::test]
async fn responses_about_a_person_are_not_cached() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    for (path, status) in [("user", 200), ("sessions", 200), ("reauthenticate", 200), ("nothing", 404)] {
        let response = ada.sends(t.get(&format!("/auth/v1/{path}"))).send().await.expect(status);
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let refused = t.get("/auth/v1/user").send().await.expect(401);
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    // Keys are public, and may be cached
    let keys = t.get("/auth/v1/.well-known/jwks.json").send().await.expect(200);
    assert_eq!(keys.header("cache-control"), Some("public, max-age=600"));
}
