//! Imported accounts, and passwords that are rejected.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use portico_auth::settings::BreachCheckSettings;
use portico_testkit::TestServer;
use serde_json::json;

use crate::local_server::serve;

const ADA: &str = "ada@example.com";

/// Inserts an account as seeds and dumps do: no identity, NULL tokens.
async fn insert_imported(t: &TestServer, email: &str, stored: &str) {
    t.query_with(
        "insert into auth.users (instance_id, id, aud, role, email, encrypted_password, email_confirmed_at,
                                 raw_app_meta_data, raw_user_meta_data, created_at, updated_at)
         values ('00000000-0000-0000-0000-000000000000', gen_random_uuid(), 'authenticated', 'authenticated', $1, $2,
                 now(), '{\"provider\":\"email\",\"providers\":[\"email\"]}', '{}', now(), now())",
        &[&email, &stored],
    )
    .await;
}

#[tokio::test]
async fn an_imported_password_that_is_too_long_for_bcrypt_keeps_its_hash() {
    use argon2::PasswordHasher as _;
    let t = TestServer::start().await;
    let long = "correct horse battery staple ".repeat(4);
    let params = argon2::Params::new(64, 1, 1, None).unwrap();
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let salt = argon2::password_hash::SaltString::from_b64("c29tZXNhbHRzYWx0").unwrap();
    let stored = argon2.hash_password(long.as_bytes(), &salt).unwrap().to_string();
    insert_imported(&t, ADA, &stored).await;
    t.sign_in(ADA, &long).await;
    // A new hash would use only the start of it
    let refused = t.visitor(ADA).with_password(&long[..72]).signs_in().await;
    assert_eq!(refused.rejection(), (400, "invalid_credentials".into()));
    t.sign_in(ADA, &long).await;
}

#[tokio::test]
async fn imported_accounts_sign_in_and_are_rehashed() {
    let t = TestServer::start().await;
    for (number, (password, stored)) in [
        ("U*U", "$2b$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
        (
            "user1password",
            "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==$42xEC+ixf3L2lw==$lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==",
        ),
    ]
    .iter()
    .enumerate()
    {
        let email = format!("moved{number}@example.com");
        insert_imported(&t, &email, stored).await;
        t.sign_in(&email, password).await;
        t.sign_in(&email, password).await;
    }
    let left = t.count("select count(*) from auth.users where encrypted_password like '$fbscrypt%'").await;
    assert_eq!(left, 0);
}

/// Starts a range API that knows one password.
async fn breach_service(known: &str) -> String {
    let digest = portico_base::hash::sha1_hex(known.as_bytes()).to_uppercase();
    let digest: Arc<str> = digest.into();
    let app = Router::new().route(
        "/range/{prefix}",
        get(async move |Path(prefix): Path<String>| {
            if digest.starts_with(&prefix) {
                format!("{}:42\r\n{}:0\r\n", &digest[5..], "0".repeat(35))
            } else {
                String::new()
            }
        }),
    );
    format!("{}/range/", serve(app).await)
}

#[tokio::test]
async fn a_breached_password_is_rejected() {
    let url = breach_service("password1").await;
    let t = TestServer::with_auth(|settings| {
        settings.password.breach_check = Some(BreachCheckSettings { url, ..BreachCheckSettings::default() });
    })
    .await;
    let body = json!({"email": ADA, "password": "password1"});
    let response = t.post("/auth/v1/signup").json(&body).send().await.expect(422);
    assert_eq!(response.json()["weak_password"]["reasons"], json!(["pwned"]));
    let body = json!({"email": ADA, "password": "an unknown one"});
    t.post("/auth/v1/signup").json(&body).send().await.expect(200);
}

#[tokio::test]
async fn without_a_response_about_breaches_the_setting_decides() {
    // A port on which nothing listens
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    for fail_closed in [false, true] {
        let url = url.clone();
        let t = TestServer::with_auth(|settings| {
            let check = BreachCheckSettings { url, fail_closed, ..BreachCheckSettings::default() };
            settings.password.breach_check = Some(check);
        })
        .await;
        let body = json!({"email": ADA, "password": "correct-horse"});
        let response = t.post("/auth/v1/signup").json(&body).send().await;
        assert_eq!(response.status, if fail_closed { 500 } else { 200 }, "{response:?}");
        // Existing passwords are still accepted
        insert_imported(&t, "bob@example.com", "$2b$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW").await;
        let hint = &t.sign_in("bob@example.com", "U*U").await["weak_password"];
        let expected = if fail_closed { json!(null) } else { json!(["length"]) };
        assert_eq!(hint["reasons"], expected);
    }
}
