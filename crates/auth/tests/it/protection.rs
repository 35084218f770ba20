//! Captchas, limits by address, and the addresses that may be sent email.

use axum::routing::post;
use axum::{Json, Router};
use portico_auth::settings::{CaptchaProvider, CaptchaSettings};
use portico_base::Secret;
use portico_testkit::TestServer;
use serde_json::{Value, json};

use crate::local_server::serve;
use crate::phone::with_phones;

const ADA: &str = "ada@example.com";

/// Starts a captcha service that accepts one token.
async fn captcha_service() -> String {
    let app = Router::new().route(
        "/siteverify",
        post(async |body: String| {
            let form: Vec<(String, String)> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
            let field = |name: &str| form.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            let is_right = field("secret") == Some("our-secret") && field("response") == Some("solved");
            Json(json!({"success": is_right, "error-codes": if is_right { json!([]) } else { json!(["invalid-input-response"]) }}))
        }),
    );
    format!("{}/siteverify", serve(app).await)
}

#[tokio::test]
async fn captchas_protect_the_endpoints_that_people_call() {
    let url = captcha_service().await;
    let t = TestServer::with_auth(|settings| {
        settings.allow_insecure_loopback_providers = true;
        settings.captcha = Some(CaptchaSettings {
            provider: CaptchaProvider::Turnstile,
            secret: Secret::new("our-secret"),
            timeout: std::time::Duration::from_secs(10),
            verify_url: Some(url),
        });
    })
    .await;
    let body = |token: Value| json!({"email": ADA, "password": "correct-horse", "gotrue_meta_security": {"captcha_token": token}});
    for (path, token, reason) in [
        ("signup", Value::Null, "no captcha_token found"),
        ("signup", json!("guessed"), "invalid-input-response"),
        ("otp", Value::Null, "no captcha_token found"),
        ("recover", Value::Null, "no captcha_token found"),
        ("resend", Value::Null, "no captcha_token found"),
        ("token?grant_type=password", Value::Null, "no captcha_token found"),
        ("token?grant_type=web3", Value::Null, "no captcha_token found"),
    ] {
        let response = t.post(&format!("/auth/v1/{path}")).json(&body(token)).send().await;
        assert_eq!(response.rejection(), (400, "captcha_failed".into()), "{path}");
        assert_eq!(response.json()["msg"], format!("captcha protection: request disallowed ({reason})"));
    }
    t.post("/auth/v1/signup").json(&body(json!("solved"))).send().await.expect(200);
    let operator = t.api_keys().service_role_jwt();
    let other = json!({"email": "eve@example.com", "password": "correct-horse"});
    t.post("/auth/v1/signup").bearer(operator).json(&other).send().await.expect(200);
}

#[tokio::test]
async fn requests_of_one_address_are_limited() {
    let t = TestServer::with_auth(|settings| settings.rate_limits.header = Some("x-real-ip".into())).await;
    let verify = async |from: &str| {
        let email = format!("{}@example.com", portico_base::random::alphanumeric(12));
        t.visitor(&email).with_header("x-real-ip", from).verifies("email", "000000").await
    };
    for _ in 0..30 {
        assert_eq!(verify("192.0.2.1, 10.0.0.1").await.rejection(), (403, "otp_expired".into()));
    }
    let refused = verify("192.0.2.1").await;
    assert_eq!(refused.rejection(), (429, "over_request_rate_limit".into()));
    assert_eq!(refused.json()["msg"], "Request rate limit reached");
    assert_eq!(refused.header("retry-after"), Some("10"));
    assert_eq!(refused.header("x-ratelimit-name"), Some("verify"));
    assert_eq!(verify("192.0.2.2").await.rejection(), (403, "otp_expired".into()));
    t.clock().advance(time::Duration::seconds(10));
    assert_eq!(verify("192.0.2.1").await.rejection(), (403, "otp_expired".into()));
}

/// Codes typed for Ada's account, at many client addresses.
struct Guesses<'a> {
    server: &'a TestServer,
    code: String,
}

impl<'a> Guesses<'a> {
    async fn begin(server: &'a TestServer) -> Self {
        server.account(ADA, "correct-horse").await;
        server.visitor(ADA).requests_code().await.expect(200);
        let code = portico_testkit::code_in(server.nth_mail_to(ADA, 1).await.html());
        Self { server, code }
    }

    async fn verify(&self, token: &str, from: &str) -> portico_testkit::TestResponse {
        self.server.visitor(ADA).from_address(from).verifies("email", token).await
    }

    /// Returns the limit that rejects a wrong code. `None`: the code is rejected as wrong.
    async fn limit_of_a_wrong_one(&self, from: &str) -> Option<String> {
        let wrong = if self.code == "000000" { "000001" } else { "000000" };
        let response = self.verify(wrong, from).await;
        match response.rejection() {
            (403, code) if code == "otp_expired" => None,
            (429, code) if code == "over_request_rate_limit" => response.header("x-ratelimit-name").map(str::to_owned),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn guesses_at_codes_are_limited_and_do_not_lock_the_owner_out() {
    let t = TestServer::start().await;
    let guesses = Guesses::begin(&t).await;
    for _ in 0..10 {
        assert_eq!(guesses.limit_of_a_wrong_one("192.0.2.66").await, None);
    }
    assert_eq!(guesses.limit_of_a_wrong_one("192.0.2.66").await.as_deref(), Some("codes-per-address"));
    assert_eq!(guesses.verify(&guesses.code, "192.0.2.66").await.rejection().0, 429, "not even the right one");
    guesses.verify(&guesses.code, "198.51.100.7").await.expect(200);
}

#[tokio::test]
async fn a_code_cannot_be_guessed_from_many_addresses_or_over_many_days() {
    let t = TestServer::start().await;
    let guesses = Guesses::begin(&t).await;
    let mut stranger = 0;
    // An attacker with any number of addresses, until a limit of the account applies
    let mut exhaust = async || {
        for tries in 0.. {
            stranger += 1;
            match guesses.limit_of_a_wrong_one(&format!("192.0.{}.{}", stranger / 250, stranger % 250)).await {
                None => {}
                Some(limit) => return (tries, limit),
            }
        }
        unreachable!()
    };
    assert_eq!(exhaust().await, (50, "codes-per-account".into()));
    let mut tried = 50;
    for _ in 0..24 {
        t.clock().advance(time::Duration::hours(1));
        tried += exhaust().await.0;
    }
    assert!((190..=200).contains(&tried), "{tried} in a day");
    assert_eq!(exhaust().await.1, "codes-per-day");

    // The link of the email is not counted
    t.post("/auth/v1/otp").json(&json!({"email": ADA})).send().await.expect(200);
    let link = portico_testkit::link_in(t.nth_mail_to(ADA, 2).await.html());
    let followed = t.get(link.as_str()).send().await.expect(303);
    assert!(followed.location_fragment("access_token").is_some(), "{followed:?}");
}

#[tokio::test]
async fn right_codes_are_not_counted() {
    let t = TestServer::start().await;
    t.account(ADA, "correct-horse").await;
    for number in 1..=12 {
        t.post("/auth/v1/otp").json(&json!({"email": ADA})).send().await.expect(200);
        let code = portico_testkit::code_in(t.nth_mail_to(ADA, number).await.html());
        let body = json!({"type": "email", "email": ADA, "token": code});
        t.post("/auth/v1/verify").json(&body).send().await.expect(200);
    }
}

#[tokio::test]
async fn a_link_cannot_be_computed_from_an_address_and_guessed_codes() {
    let t = TestServer::start().await;
    t.account(ADA, "correct-horse").await;
    t.post("/auth/v1/otp").json(&json!({"email": ADA})).send().await.expect(200);
    let code = portico_testkit::code_in(t.nth_mail_to(ADA, 1).await.html());
    // The form that GoTrue stores, which can be computed for all codes
    let guess = portico_base::hash::sha224_hex(format!("{ADA}{code}").as_bytes());
    for body in [json!({"type": "magiclink", "token_hash": guess}), json!({"type": "email", "token_hash": guess})] {
        assert_eq!(t.post("/auth/v1/verify").json(&body).send().await.rejection(), (403, "otp_expired".into()));
    }
    let link = t.get(&format!("/auth/v1/verify?type=magiclink&token={guess}")).send().await.expect(303);
    assert_eq!(link.location_fragment("error_code").as_deref(), Some("otp_expired"));
    let body = json!({"type": "email", "email": ADA, "token": code});
    t.post("/auth/v1/verify").json(&body).send().await.expect(200);

    // A token that GoTrue stored is still accepted
    t.post("/auth/v1/otp").json(&json!({"email": ADA})).send().await.expect(200);
    let hash = portico_base::hash::sha224_hex(format!("{ADA}123456").as_bytes());
    t.execute(&format!("update auth.users set recovery_token = '{hash}'")).await;
    let body = json!({"type": "email", "email": ADA, "token": "123456"});
    t.post("/auth/v1/verify").json(&body).send().await.expect(200);
}

#[tokio::test]
async fn limits_on_messages_do_not_reveal_accounts() {
    let t = TestServer::with_auth(|settings| {
        settings.email.max_frequency = std::time::Duration::from_secs(60);
        settings.rate_limits.emails = Some(portico_auth::settings::SendLimit::PerHour(5));
    })
    .await;
    t.account(ADA, "correct-horse").await;
    t.clock().advance(time::Duration::minutes(2));
    let ask = async |path: &str, email: &str| {
        let body = json!({"type": "signup", "email": email, "password": "correct-horse"});
        let response = t.post(&format!("/auth/v1/{path}")).json(&body).send().await;
        (response.status, response.header("retry-after").map(str::to_owned))
    };
    for path in ["recover", "resend"] {
        let first = (ask(path, ADA).await, ask(path, "nobody@example.com").await);
        assert_eq!((first.0.0, first.1.0), (200, 200), "{path}");
        t.clock().advance(time::Duration::seconds(7));
        let second = (ask(path, ADA).await, ask(path, "nobody@example.com").await);
        assert_eq!(second.0, second.1, "{path}");
        assert_eq!(second.0.1.as_deref(), Some("53"), "{path}");
        t.clock().advance(time::Duration::minutes(2));
    }
    // A new address is first sent its confirmation; one with an account seems to be treated alike
    for expected in [200, 429] {
        assert_eq!(ask("signup", ADA).await.0, expected);
        assert_eq!(ask("signup", "new@example.com").await.0, expected);
    }
    t.clock().advance(time::Duration::minutes(2));
    // The limit of the whole service
    for number in 0..5 {
        let _ = ask("signup", &format!("new{number}@example.com")).await;
    }
    assert_eq!(ask("recover", ADA).await.0, 429);
    assert_eq!(ask("recover", "nobody@example.com").await.0, 429);
}

#[tokio::test]
async fn another_audience_does_not_reveal_accounts() {
    let t = TestServer::start().await;
    t.account(ADA, "correct-horse").await;
    let body = json!({"email": ADA, "password": "correct-horse"});
    let response = t.post("/auth/v1/signup").header("x-jwt-aud", "other").json(&body).send().await.expect(200).json();
    assert_eq!(response["identities"], json!([]));
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn another_audience_does_not_reveal_numbers() {
    let t = TestServer::with_auth(|settings| {
        settings.sms.enabled = true;
        settings.sms.test_otps.insert("15550001111".into(), "123456".into());
    })
    .await;
    let body = json!({"phone": "15550001111", "password": "correct-horse"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
    for path in ["signup", "otp"] {
        let response = t.post(&format!("/auth/v1/{path}")).header("x-jwt-aud", "other").json(&body).send().await;
        response.expect(200);
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

/// Signs Eve in to an account with Ada's address, unverified, by an identity of her own.
async fn squatted(with_phone: bool) -> (TestServer, Value) {
    let t = TestServer::start().await;
    let eve = t.signed_in("eve@example.com", "correct-horse").await;
    let phone = if with_phone { "phone = '15550009999', phone_confirmed_at = now()," } else { "" };
    for sql in [
        format!("update auth.users set {phone} email = '{ADA}', encrypted_password = '', email_confirmed_at = null"),
        format!(
            "update auth.identities set provider = 'github', provider_id = '1',
                    identity_data = '{{\"sub\": \"1\", \"email\": \"{ADA}\", \"email_verified\": false}}'"
        ),
    ] {
        t.execute(&sql).await;
    }
    if with_phone {
        t.execute(
            "insert into auth.identities (provider_id, user_id, identity_data, provider, created_at, updated_at)
             select id::text, id, '{\"phone\": \"15550009999\"}', 'phone', now(), now() from auth.users",
        )
        .await;
    }
    (t, eve)
}

/// Requests an email for Ada and follows its link. Returns her user.
async fn prove(t: &TestServer, path: &str) -> Value {
    let ada = t.visitor(ADA);
    ada.posts(path, &json!({"password": "adas-own-password"})).await.expect(200);
    t.member_of(&ada.opens_link().await.expect(303)).account().await
}

#[tokio::test]
async fn an_account_with_an_unverified_address_is_signed_out_when_the_owner_proves_it() {
    for (path, with_phone) in [("signup", false), ("otp", false), ("recover", false), ("recover", true)] {
        let (t, eve) = squatted(with_phone).await;
        prove(&t, path).await;

        let refused = t.refresh(&eve).await;
        assert_eq!(refused.status, 400, "{path} {refused:?}");
        let token = eve["access_token"].as_str().unwrap();
        assert_eq!(t.get("/auth/v1/user").bearer(token).send().await.status, 403, "{path}");
        assert_eq!(t.count("select count(*) from auth.identities where provider = 'github'").await, 0, "{path}");
        assert_eq!(t.count("select count(*) from auth.users where phone is not null").await, 0, "{path}");
        assert_eq!(t.count("select count(*) from auth.identities where provider = 'phone'").await, 0, "{path}");
    }
}

#[tokio::test]
async fn an_account_with_a_proved_number_loses_only_its_unverified_address() {
    for path in ["signup", "otp"] {
        let (t, eve) = squatted(true).await;
        let ada = prove(&t, path).await;
        let eve = t.get("/auth/v1/user").bearer(eve["access_token"].as_str().unwrap()).send().await.expect(200).json();
        assert_ne!(ada["id"], eve["id"], "{path}");
        assert_eq!((&eve["email"], &eve["phone"]), (&json!(""), &json!("15550009999")), "{path}");
        assert_eq!((&ada["email"], &ada["phone"]), (&json!(ADA), &json!("")), "{path}");
        assert_eq!(ada["app_metadata"]["providers"], json!(["email"]), "{path}");
    }
}

#[tokio::test]
async fn only_authorized_addresses_are_sent_mail() {
    let t =
        TestServer::with_auth(|settings| settings.email.authorized_addresses = vec!["Ada@example.com".into()]).await;
    t.visitor("ada+shop@example.com").signs_up().await.expect(200);
    assert_eq!(t.visitor("eve@example.com").signs_up().await.rejection(), (400, "email_address_not_authorized".into()));
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn test_numbers_have_fixed_codes() {
    let t = TestServer::with_auth(|settings| {
        with_phones(settings);
        settings.sms.test_otps.insert("15550001111".into(), "123456".into());
    })
    .await;
    let sent = t.visitor_with_phone("+1 555 000 1111").requests_code().await.expect(200);
    assert_eq!(sent.json(), json!({}));
    let tokens = t.visitor_with_phone("+15550001111").verifies("sms", "123456").await.expect(200).json();
    let user = &tokens["user"];
    assert_eq!((&user["phone"], &user["email"]), (&json!("15550001111"), &json!("")));
    assert!(user["phone_confirmed_at"].is_string());
    assert_eq!(user["app_metadata"]["provider"], "phone");
    let ada = t.visitor_with_phone("15550001111");
    let again = ada.requests_code().await.expect(200);
    assert_eq!(again.json(), json!({"message_id": "test-otp"}));
    assert_eq!(ada.verifies("sms", "654321").await.rejection(), (403, "otp_expired".into()));

    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    let channel = ada.posts("otp", &json!({"channel": "whatsapp"})).await;
    assert_eq!(channel.rejection(), (400, "validation_failed".into()));
}

#[tokio::test]
async fn a_number_without_confirmations_is_confirmed_at_sign_up() {
    let t = TestServer::with_auth(|settings| {
        settings.sms.enabled = true;
        settings.sms.autoconfirm = true;
    })
    .await;
    let ada = t.visitor_with_phone("15550001111");
    let member = t.member_with(ada.signs_up_with(&json!({"data": {"a": 1}})).await.expect(200).json());
    assert_eq!(member.session()["user"]["identities"][0]["provider"], "phone");
    ada.signs_in().await.expect(200);
    let user = member.changes_account(&json!({"phone": "15550003333"})).await.expect(200).json();
    assert_eq!(user["phone"], "15550003333");
    let again = t.visitor_with_phone("15550003333").signs_up().await;
    assert_eq!(again.rejection(), (422, "user_already_exists".into()));
}
