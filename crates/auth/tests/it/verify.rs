//! `GET` and `POST /verify`, `POST /otp`, `/magiclink`, `/recover`, `/resend`

use portico_testkit::{Pkce, TestResponse, TestServer, claims_of, code_in, link_in, token_hash_in};
use serde_json::{Value, json};
use time::Duration;

use crate::signup::{ADA, ada};

const SITE_EXPIRED: &str = "Email link is invalid or has expired";

fn method_of(response: &TestResponse) -> Value {
    claims_of(response.json()["access_token"].as_str().unwrap())["amr"][0]["method"].clone()
}

#[tokio::test]
async fn every_one_time_token_works_once() {
    let t = TestServer::start().await;
    // By code: the confirmation of a sign-up
    ada(&t).signs_up().await.expect(200);
    let code = code_in(t.mail_to(ADA).await.html());
    assert_eq!(method_of(&ada(&t).verifies("signup", &code).await.expect(200)), "otp");
    assert_eq!(ada(&t).verifies("signup", &code).await.rejection(), (403, "otp_expired".into()));

    // By hash and by code: recovery and sign-in links
    for (number, (path, verify_type)) in
        [("recover", "recovery"), ("otp", "magiclink"), ("magiclink", "email")].iter().enumerate()
    {
        ada(&t).posts(path, &json!({})).await.expect(200);
        let mail = t.nth_mail_to(ADA, 1 + number).await;
        let body = if number == 1 {
            json!({"type": verify_type, "email": ADA, "token": code_in(mail.html())})
        } else {
            json!({"type": verify_type, "token_hash": token_hash_in(mail.html())})
        };
        let verify = async || ada(&t).sends(t.post("/auth/v1/verify").json(&body)).send().await;
        verify().await.expect(200);
        assert_eq!(verify().await.rejection(), (403, "otp_expired".into()), "{path}");
        let again = t.get(link_in(mail.html()).as_str()).send().await.expect(303);
        assert_eq!(again.location_fragment("error_description").as_deref(), Some(SITE_EXPIRED));
    }
}

#[tokio::test]
async fn a_code_sent_twenty_times_concurrently_makes_one_session() {
    let t = TestServer::start().await;
    t.account(ADA, "correct horse").await;
    ada(&t).requests_code().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    let ada = ada(&t);
    let responses = futures_util::future::join_all((0..20).map(|_| ada.verifies("email", &code))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    // Concurrent attempts are all counted
    let refusals: Vec<_> =
        responses.iter().filter(|response| response.status != 200).map(|response| response.rejection().1).collect();
    assert!(refusals.iter().all(|code| code == "otp_expired" || code == "over_request_rate_limit"), "{refusals:?}");
    assert_eq!(t.count("select count(*) from auth.sessions").await, 1);
}

#[tokio::test]
async fn codes_and_links_expire() {
    let t = TestServer::with_auth(|settings| settings.email.otp_expiry = std::time::Duration::from_secs(3600)).await;
    t.account(ADA, "correct horse").await;
    ada(&t).requests_code().await.expect(200);
    let mail = t.nth_mail_to(ADA, 1).await;
    t.clock().advance(Duration::seconds(3600));
    let refused = ada(&t).verifies("magiclink", &code_in(mail.html())).await;
    assert_eq!(refused.rejection(), (403, "otp_expired".into()));
    assert_eq!(refused.json()["message"], "Token has expired or is invalid");
    let landed = t.get(link_in(mail.html()).as_str()).send().await.expect(303);
    assert_eq!(landed.location_fragment("error").as_deref(), Some("access_denied"));
    assert_eq!(landed.location_fragment("error_code").as_deref(), Some("otp_expired"));
    assert_eq!(landed.location_fragment("sb").as_deref(), Some(""));
}

#[tokio::test]
async fn verify_is_rejected_in_the_order_of_the_contract() {
    let t = TestServer::start().await;
    t.account(ADA, "correct horse").await;
    for (body, status, code, message) in [
        (json!({"token": "1"}), 400, "validation_failed", "Verify requires a verification type"),
        (json!({"type": "email"}), 400, "validation_failed", "Verify requires either a token or a token hash"),
        (
            json!({"type": "email", "token": "1", "token_hash": "2"}),
            400,
            "validation_failed",
            "Verify requires either a token or a token hash",
        ),
        (
            json!({"type": "email", "token": "1"}),
            400,
            "validation_failed",
            "Only an email address or phone number should be provided on verify",
        ),
        (
            json!({"type": "email", "token_hash": "1", "email": ADA}),
            400,
            "validation_failed",
            "Only the token_hash and type should be provided",
        ),
        (json!({"type": "sms", "token_hash": "1"}), 400, "validation_failed", "Invalid email verification type"),
        (json!({"type": "email", "token": "1", "email": "nonsense"}), 422, "validation_failed", "Invalid email format"),
        (
            json!({"type": "sms", "token": "1", "phone": "x"}),
            400,
            "validation_failed",
            "Invalid phone number format (E.164 required)",
        ),
        (
            json!({"type": "email", "token": "000000", "email": ADA}),
            403,
            "otp_expired",
            "Token has expired or is invalid",
        ),
        (
            json!({"type": "email", "token": "1", "email": "no@example.com"}),
            403,
            "otp_expired",
            "Token has expired or is invalid",
        ),
        (json!({"type": "odd", "token": "1", "email": ADA}), 403, "otp_expired", "Token has expired or is invalid"),
        (json!({"type": "email", "token_hash": "abc"}), 403, "otp_expired", SITE_EXPIRED),
    ] {
        let response = ada(&t).sends(t.post("/auth/v1/verify").json(&body)).send().await;
        assert_eq!(response.rejection(), (status, code.to_owned()), "{response:?}");
        assert_eq!(response.json()["message"], message);
    }
    for query in ["", "type=signup", "token=abc"] {
        let response = t.get(&format!("/auth/v1/verify?{query}")).send().await.expect(400);
        assert_eq!(response.rejection(), (400, "validation_failed".into()));
    }
}

#[tokio::test]
async fn a_banned_person_is_rejected_after_the_token() {
    let t = TestServer::start().await;
    t.account(ADA, "correct horse").await;
    ada(&t).requests_code().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    t.execute("update auth.users set banned_until = now() + interval '1 day'").await;
    let wrong = ada(&t).verifies("email", "000000").await;
    assert_eq!(wrong.rejection(), (403, "otp_expired".into()));
    let right = ada(&t).verifies("email", &code).await;
    assert_eq!(right.rejection(), (403, "user_banned".into()));
}

#[tokio::test]
async fn a_link_signs_an_unknown_address_up() {
    let t = TestServer::start().await;
    let fields = json!({"create_user": true, "data": {"name": "Ada"}});
    let response = ada(&t).posts("otp", &fields).await.expect(200);
    assert_eq!(response.json(), json!({}));
    let mail = t.mail_to(ADA).await;
    assert_eq!(mail.subject().as_str(), "Confirm your email address");
    let response = ada(&t).verifies("email", &code_in(mail.html())).await;
    let user = response.expect(200).json()["user"].clone();
    assert_eq!(user["user_metadata"]["name"], "Ada");
    assert!(user["email_confirmed_at"].is_string());

    let posts = async |email: &str, path: &str| {
        t.visitor(email).with_api_version().posts(path, &json!({"create_user": false})).await
    };
    let unknown = posts("no@example.com", "otp").await;
    assert_eq!(unknown.rejection(), (422, "otp_disabled".into()));
    let invalid = posts("nonsense", "otp").await;
    assert_eq!(invalid.rejection(), (422, "otp_disabled".into()));
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    // `/magiclink` has no such field
    posts("no@example.com", "magiclink").await.expect(200);
    assert_eq!(t.count("select count(*) from auth.users").await, 2);
}

#[tokio::test]
async fn create_user_false_is_checked_before_disabled_features() {
    let t = TestServer::with_auth(|settings| {
        settings.email.enabled = false;
        settings.sms.enabled = false;
    })
    .await;
    t.execute(
        "insert into auth.users (instance_id, id, aud, role, email, phone)
         values ('00000000-0000-0000-0000-000000000000', gen_random_uuid(), 'authenticated', 'authenticated',
             'ada@example.com', '15550001111')",
    )
    .await;
    for (body, status, code) in [
        (json!({"email": "no@example.com"}), 422, "otp_disabled"),
        (json!({"phone": "15550002222"}), 422, "otp_disabled"),
        (json!({}), 422, "otp_disabled"),
        (json!({"email": ADA}), 422, "email_provider_disabled"),
        (json!({"phone": "15550001111"}), 400, "phone_provider_disabled"),
    ] {
        let mut asked = body;
        asked["create_user"] = json!(false);
        let response = ada(&t).sends(t.post("/auth/v1/otp").json(&asked)).send().await;
        assert_eq!(response.rejection(), (status, code.to_owned()), "{asked}");
    }
}

#[tokio::test]
async fn a_link_for_an_unconfirmed_account_deletes_the_password_of_the_first_sign_up() {
    let t = TestServer::start().await;
    ada(&t).with_password("of-a-stranger").signs_up().await.expect(200);
    ada(&t).requests_code().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    ada(&t).verifies("email", &code).await.expect(200);
    let stranger = ada(&t).with_password("of-a-stranger").signs_in().await;
    assert_eq!(stranger.rejection(), (400, "invalid_credentials".into()));
}

#[tokio::test]
async fn recovery_of_an_unconfirmed_account_confirms_it_without_its_password() {
    let t = TestServer::start().await;
    ada(&t).with_password("of-a-stranger").signs_up().await.expect(200);
    ada(&t).requests_recovery().await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 1).await.html());
    let owner = t.member_with(ada(&t).verifies("recovery", &code).await.expect(200).json());
    let stranger = ada(&t).with_password("of-a-stranger").signs_in().await;
    assert_eq!(stranger.rejection(), (400, "invalid_credentials".into()));
    owner.changes_account(&json!({"password": "her-own-one"})).await.expect(200);
    t.sign_in(ADA, "her-own-one").await;
}

#[tokio::test]
async fn unknown_addresses_get_the_same_response_and_no_mail() {
    let t = TestServer::start().await;
    let stranger = t.visitor("no@example.com").with_api_version();
    assert_eq!(stranger.requests_recovery().await.expect(200).json(), json!({}));
    for verify_type in ["signup", "email_change"] {
        assert_eq!(stranger.requests_again(verify_type).await.expect(200).json(), json!({}));
    }
    t.account(ADA, "correct horse").await;
    assert_eq!(ada(&t).requests_again("signup").await.expect(200).json(), json!({}));
    assert_eq!(t.mails().len(), 1);
    assert_eq!(t.count("select count(*) from portico.mail_outbox").await, 0);
}

#[tokio::test]
async fn messages_to_an_address_keep_an_interval() {
    let t = TestServer::with_auth(|settings| settings.email.max_frequency = std::time::Duration::from_secs(60)).await;
    ada(&t).signs_up().await.expect(200);
    t.clock().advance(Duration::seconds(7));
    for (path, fields) in
        [("signup", json!({"password": "another-one"})), ("resend", json!({"type": "signup"})), ("otp", json!({}))]
    {
        let response = ada(&t).posts(path, &fields).await;
        assert_eq!(response.rejection(), (429, "over_email_send_rate_limit".into()), "{path}");
        let message = "For security purposes, you can only request this after 53 seconds.";
        assert_eq!(response.json()["message"], message);
        assert_eq!(response.header("retry-after"), Some("53"));
    }
    t.clock().advance(Duration::seconds(53));
    ada(&t).requests_again("signup").await.expect(200);
    let link = link_in(t.nth_mail_to(ADA, 1).await.html());
    t.get(link.as_str()).send().await.expect(303).location_fragment("access_token").unwrap();
    t.sign_in(ADA, "correct horse").await;
}

#[tokio::test]
async fn mails_have_an_hourly_limit() {
    let t = TestServer::with_auth(|settings| {
        settings.rate_limits.emails = Some(portico_auth::settings::SendLimit::PerHour(2));
    })
    .await;
    for number in 0..3 {
        let person = t.visitor(&format!("a{number}@example.com")).with_api_version();
        let response = person.requests_code().await;
        if number < 2 {
            response.expect(200);
        } else {
            assert_eq!(response.rejection(), (429, "over_email_send_rate_limit".into()));
            assert_eq!(response.json()["message"], "email rate limit exceeded");
            assert_eq!(response.header("retry-after"), Some("3600"));
            assert_eq!(response.header("x-ratelimit-name"), Some("emails-sent"));
        }
    }
    // A rejected email leaves nothing behind
    assert_eq!(t.count("select count(*) from auth.users").await, 2);
}

#[tokio::test]
async fn a_recovery_with_a_proof_key_gives_a_code_by_link_and_a_session_by_code() {
    let t = TestServer::start().await;
    t.account(ADA, "correct horse").await;
    let pkce = Pkce::new();
    let key = json!({"code_challenge": pkce.challenge, "code_challenge_method": "s256"});
    ada(&t).posts("recover", &key).await.expect(200);
    let link = link_in(t.nth_mail_to(ADA, 1).await.html());
    assert!(link.query_pairs().any(|(name, value)| name == "token" && value.starts_with("pkce_")));
    let landed = t.get(link.as_str()).send().await.expect(303);
    assert_eq!(method_of(&t.exchange(&landed, &pkce.verifier).await.expect(200)), "recovery");

    // POST always returns a session, even for a flow with a proof key
    ada(&t).posts("recover", &key).await.expect(200);
    let code = code_in(t.nth_mail_to(ADA, 2).await.html());
    assert_eq!(method_of(&ada(&t).verifies("recovery", &code).await.expect(200)), "otp");
}

#[tokio::test]
async fn an_expired_link_of_a_flow_with_a_proof_key_reports_in_query_and_fragment() {
    let t = TestServer::start().await;
    let landed = t.get("/auth/v1/verify?type=recovery&token=pkce_abc").send().await.expect(303);
    assert_eq!(landed.location_query("error_code").as_deref(), Some("otp_expired"));
    assert_eq!(landed.location_fragment("error_code").as_deref(), Some("otp_expired"));
    assert_eq!(landed.location_fragment("sb").as_deref(), Some(""));
    assert!(landed.header("cache-control").is_some_and(|value| value.contains("no-store")));
}

#[tokio::test]
async fn links_lead_only_to_allowed_targets() {
    let t = TestServer::with_auth(|settings| {
        settings.site_url = "https://app.example.com".into();
        settings.redirect_allow_list = vec!["https://*.example.org/**".into()];
    })
    .await;
    for (number, (asked, expected)) in [
        ("https://a.example.org/x?y=1", "https://a.example.org/x?y=1"),
        ("https://app.example.com/welcome", "https://app.example.com/welcome"),
        ("https://evil.example.net/", "https://app.example.com/"),
        ("https://app.example.com%0d%0aSet-Cookie:a=b", "https://app.example.com/"),
        ("javascript:alert(1)", "https://app.example.com/"),
    ]
    .iter()
    .enumerate()
    {
        let address = format!("a{number}@example.com");
        let target: String = form_urlencoded::byte_serialize(asked.replace("%0d%0a", "\r\n").as_bytes()).collect();
        let person = t.visitor(&address).with_api_version();
        let signup = format!("signup?redirect_to={target}");
        person.posts(&signup, &json!({"password": "correct horse"})).await.expect(200);
        let landed = person.opens_link().await.expect(303);
        let mut location = landed.location();
        location.set_fragment(None);
        assert_eq!(location.as_str(), *expected);
    }
}
