//! `POST /token`: passwords, code exchanges, and unknown grants.

use portico_testkit::{Pkce, TestResponse, TestServer, claims_of, link_in};
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse";

#[tokio::test]
async fn a_sign_in_with_a_password_returns_the_response_of_the_contract() {
    let server = TestServer::start().await;
    let id = server.account("ada@example.com", PASSWORD).await;

    let response = server.visitor(" Ada@Example.com ").signs_in().await.expect(200);

    let body = response.json();
    assert_eq!(body["token_type"], "bearer");
    assert_eq!(body["expires_in"], 3600);
    let now = server.clock().now().unix_timestamp();
    assert_eq!(body["expires_at"], now + 3600);
    assert_eq!(body["weak_password"], Value::Null);
    assert!(body.as_object().unwrap().contains_key("weak_password"));
    assert_eq!(body["user"]["id"], id);
    assert_eq!(body["user"]["identities"].as_array().unwrap().len(), 1);
    assert!(body["user"]["last_sign_in_at"].is_string());
    let refresh_token = body["refresh_token"].as_str().unwrap();
    assert_eq!(refresh_token.len(), 12);
    assert_eq!(response.header("sb-auth-refresh-token-prefix"), Some(&refresh_token[..5]));
    assert_eq!(response.header("sb-auth-user-id"), Some(id.as_str()));
    assert_eq!(response.header("cache-control"), Some("no-store"));

    let claims = claims_of(body["access_token"].as_str().unwrap());
    assert_eq!(claims["sub"], id);
    assert_eq!(claims["aud"], "authenticated");
    assert_eq!(claims["role"], "authenticated");
    assert_eq!(claims["iss"], format!("{}/auth/v1", server.base()));
    assert_eq!((&claims["iat"], &claims["exp"]), (&json!(now), &json!(now + 3600)));
    assert_eq!((&claims["email"], &claims["phone"]), (&json!("ada@example.com"), &json!("")));
    assert_eq!(claims["aal"], "aal1");
    assert_eq!(claims["amr"], json!([{"method": "password", "timestamp": now}]));
    assert_eq!(claims["is_anonymous"], false);
    assert_eq!(claims["app_metadata"], json!({"provider": "email", "providers": ["email"]}));
    assert_eq!(claims["session_id"], response.header("sb-auth-session-id").unwrap());
    for absent in ["nbf", "jti"] {
        assert!(claims.get(absent).is_none());
    }
    assert!(server.actions().await.contains(&"login".to_owned()));
}

#[tokio::test]
async fn a_failed_sign_in_is_rejected_with_the_codes_of_the_contract() {
    let server = TestServer::start().await;
    server.account("ada@example.com", PASSWORD).await;
    server.account("eve@example.com", PASSWORD).await;
    server
        .execute("update auth.users set banned_until = now() + interval '1 day' where email = 'eve@example.com'")
        .await;
    let unconfirmed = json!({"email": "new@example.com", "password": PASSWORD});
    server.visitor("new@example.com").signs_up().await.expect(200);

    let cases = [
        (json!({"email": "ada@example.com", "password": "wrong"}), 400, "invalid_credentials"),
        (json!({"email": "nobody@example.com", "password": PASSWORD}), 400, "invalid_credentials"),
        (json!({"email": "not an address", "password": PASSWORD}), 400, "invalid_credentials"),
        (json!({"email": "ada@example.com"}), 400, "invalid_credentials"),
        (json!({"email": "ada@example.com", "phone": "123", "password": PASSWORD}), 400, "validation_failed"),
        (json!({"password": PASSWORD}), 400, "validation_failed"),
        (json!({"phone": "15551234567", "password": PASSWORD}), 422, "phone_provider_disabled"),
        (json!({"email": "eve@example.com", "password": "wrong"}), 400, "user_banned"),
        (unconfirmed, 400, "email_not_confirmed"),
        (json!({"email": "new@example.com", "password": "wrong"}), 400, "invalid_credentials"),
        (json!({"email": 5}), 400, "bad_json"),
        (json!([]), 400, "bad_json"),
    ];
    for (body, status, code) in cases {
        assert_eq!(
            server.post("/auth/v1/token?grant_type=password").json(&body).send().await.rejection(),
            (status, code.to_owned()),
            "{body}"
        );
    }
    assert_eq!(server.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn unknown_grants_and_malformed_bodies_are_rejected() {
    let server = TestServer::start().await;
    for target in ["/auth/v1/token", "/auth/v1/token?grant_type=", "/auth/v1/token?grant_type=magic"] {
        let response = server.post(target).json(&json!({})).send().await;
        assert_eq!(response.rejection(), (400, "invalid_credentials".into()));
        assert_eq!(response.json()["msg"], "unsupported_grant_type");
    }
    for body in [&b""[..], b"{", b"\xff\xfe", b"{\"email\":\"\xff\"}"] {
        for grant in ["password", "refresh_token", "pkce", "id_token"] {
            let response = server.post(&format!("/auth/v1/token?grant_type={grant}")).body(body.to_vec()).send().await;
            assert_eq!(response.rejection(), (400, "bad_json".into()), "{grant} {body:?}");
        }
    }
    let huge = vec![b' '; 1024 * 1024 + 1];
    let response = server.post("/auth/v1/token?grant_type=password").body(huge).send().await;
    assert_eq!(response.status, 413);
    assert_eq!(server.get("/auth/v1/token").send().await.status, 405);
}

#[tokio::test]
async fn a_form_names_its_grant_as_oauth_libraries_write_it() {
    let server = TestServer::start().await;
    server.account("ada@example.com", PASSWORD).await;
    let post = |fields: &'static [(&'static str, &'static str)]| server.post("/auth/v1/token").form(fields).send();
    let fields = &[("grant_type", "password"), ("email", "ada@example.com"), ("password", PASSWORD)];
    let session = post(fields).await.expect(200).json();
    let token = session["refresh_token"].as_str().unwrap();
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
    server.post("/auth/v1/token").form(&fields).send().await.expect(200);

    let magic = post(&[("grant_type", "magic"), ("email", "ada@example.com")]).await;
    assert_eq!(magic.rejection(), (400, "invalid_credentials".into()));
    assert_eq!(magic.json()["msg"], "unsupported_grant_type");
    let nul = post(&[("grant_type", "password"), ("email", "a\0"), ("password", PASSWORD)]).await;
    assert_eq!(nul.rejection(), (400, "bad_json".into()));
    let typed = post(&[("grant_type", "id_token"), ("id_token", "x"), ("link_identity", "true")]).await;
    assert_eq!(typed.rejection(), (400, "bad_json".into()), "a text is no truth value");
    // `curl -d` says that JSON is a form
    let json = json!({"email": "ada@example.com", "password": PASSWORD}).to_string();
    let response = server
        .post("/auth/v1/token?grant_type=password")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(json)
        .send()
        .await;
    response.expect(200);
}

/// Finishes an email flow with a proof key and returns the redirect with its code.
async fn redirect_of_a_mail(server: &TestServer, pkce: &Pkce) -> TestResponse {
    server.account("ada@example.com", PASSWORD).await;
    let key = json!({"code_challenge": pkce.challenge, "code_challenge_method": "s256"});
    server.visitor("ada@example.com").posts("recover", &key).await.expect(200);
    // The first is the confirmation of the new account
    let mail = server.nth_mail_to("ada@example.com", 1).await;
    server.get(link_in(mail.html()).as_str()).send().await.expect(303)
}

#[tokio::test]
async fn a_code_is_exchanged_once_and_only_with_its_verifier() {
    let server = TestServer::start().await;
    let pkce = Pkce::new();
    let code = redirect_of_a_mail(&server, &pkce).await.location_query("code").unwrap();
    let exchange = async |code: &str, verifier: &str| {
        let body = json!({"auth_code": code, "code_verifier": verifier});
        server.post("/auth/v1/token?grant_type=pkce").json(&body).send().await
    };

    assert_eq!(exchange(&code, "").await.rejection(), (400, "validation_failed".into()));
    assert_eq!(exchange("", &pkce.verifier).await.rejection(), (400, "validation_failed".into()));
    assert_eq!(exchange(&code, &Pkce::new().verifier).await.rejection(), (400, "bad_code_verifier".into()));
    let unknown = "0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10";
    assert_eq!(exchange(unknown, &pkce.verifier).await.rejection(), (404, "flow_state_not_found".into()));
    let session = exchange(&code, &pkce.verifier).await.expect(200).json();
    assert_eq!(claims_of(session["access_token"].as_str().unwrap())["amr"][0]["method"], "recovery");
    assert!(session.get("weak_password").is_none() && session.get("provider_token").is_none());
    assert_eq!(exchange(&code, &pkce.verifier).await.rejection(), (404, "flow_state_not_found".into()));
    assert_eq!(server.count("select count(*) from auth.flow_state").await, 0);
}

#[tokio::test]
async fn two_concurrent_exchanges_of_one_code_make_one_session() {
    let server = TestServer::start().await;
    let pkce = Pkce::new();
    let redirect = redirect_of_a_mail(&server, &pkce).await;
    let exchanges = (0..8).map(|_| server.exchange(&redirect, &pkce.verifier));
    let responses = futures_util::future::join_all(exchanges).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    assert_eq!(server.count("select count(*) from auth.sessions").await, 1);
}

#[tokio::test]
async fn an_expired_flow_and_a_banned_person_get_no_session() {
    let server = TestServer::start().await;
    let pkce = Pkce::new();
    let redirect = redirect_of_a_mail(&server, &pkce).await;
    let exchange = async || server.exchange(&redirect, &pkce.verifier).await;
    server.execute("update auth.users set banned_until = now() + interval '1 day'").await;
    assert_eq!(exchange().await.rejection(), (403, "user_banned".into()));
    server.execute("update auth.users set banned_until = null").await;
    server.clock().advance(time::Duration::seconds(301));
    assert_eq!(exchange().await.rejection(), (422, "flow_state_expired".into()));
}

#[tokio::test]
async fn a_link_may_be_opened_after_the_expiry_of_a_flow() {
    let server = TestServer::start().await;
    let pkce = Pkce::new();
    let key = json!({"code_challenge": pkce.challenge, "code_challenge_method": "s256"});
    let ada = server.visitor("ada@example.com");
    ada.signs_up_with(&key).await.expect(200);
    server.mail_to("ada@example.com").await;
    server.clock().advance(time::Duration::minutes(50));
    let redirect = ada.opens_link().await.expect(303);
    server.clock().advance(time::Duration::minutes(4));
    let session = server.exchange(&redirect, &pkce.verifier).await.expect(200).json();
    assert_eq!(claims_of(session["access_token"].as_str().unwrap())["amr"][0]["method"], "email/signup");
}

#[tokio::test]
async fn a_code_that_was_not_issued_is_rejected() {
    let server = TestServer::start().await;
    let pkce = Pkce::new();
    let key = json!({"code_challenge": pkce.challenge, "code_challenge_method": "s256"});
    let ada = server.visitor("ada@example.com");
    ada.signs_up_with(&key).await.expect(200);
    let code: String = server.query("select auth_code from auth.flow_state").await[0].get(0);
    let body = json!({"auth_code": code, "code_verifier": pkce.verifier});
    let response = server.post("/auth/v1/token?grant_type=pkce").json(&body).send().await;
    assert_eq!(response.rejection(), (404, "flow_state_not_found".into()));
}

#[tokio::test]
async fn keys_are_published() {
    let server = TestServer::start().await;
    let response = server.get("/auth/v1/.well-known/jwks.json").send().await.expect(200);
    assert!(response.json()["keys"].is_array());
    assert_eq!(response.header("cache-control"), Some("public, max-age=600"));
    let document = server.get("/auth/v1/.well-known/openid-configuration").send().await.expect(200).json();
    assert_eq!(document["issuer"], format!("{}/auth/v1", server.base()));
    let other = server.get("/auth/v1/.well-known/oauth-authorization-server").send().await;
    assert_eq!(other.rejection(), (404, "feature_disabled".into()));
}
