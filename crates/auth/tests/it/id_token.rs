//! `grant_type=id_token`: apps sign in with a token that the provider gave them.

use portico_testkit::{TestResponse, TestServer, claims_of};
use serde_json::{Value, json};

use crate::misbehaving::{Key, Provider, return_from_provider, server_with};
use crate::provider::{assert_nothing_is_stored, flow};

pub async fn id_token(server: &TestServer, body: &Value) -> TestResponse {
    server.post("/auth/v1/token?grant_type=id_token").json(body).send().await
}

/// Returns the SHA-256 of a nonce in lower-case hexadecimal.
fn nonce_hash(nonce: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, nonce.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_app_signs_in_with_an_id_token() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    let mut claims = provider.claims(&server, Some(&nonce_hash("nonce-1")));
    claims["aud"] = "the-phone-app".into();
    let body = json!({"provider": "google", "id_token": provider.key.sign(&claims), "nonce": "nonce-1"});
    let session = id_token(&server, &body).await.expect(200).json();
    assert_eq!(session["user"]["email"], "ada@example.com");
    assert_eq!(claims_of(session["access_token"].as_str().unwrap())["amr"][0]["method"], "oauth");
    assert!(session.get("provider_token").is_none() && session.get("weak_password").is_none());
    // By issuer instead of name
    let by_issuer =
        json!({"issuer": provider.base, "client_id": "x", "id_token": body["id_token"], "nonce": "nonce-1"});
    let again = id_token(&server, &by_issuer).await.expect(200).json();
    assert_eq!(again["user"]["id"], session["user"]["id"]);
}

#[tokio::test]
async fn an_id_token_that_is_not_valid_is_rejected_with_the_documented_error() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    let now = server.clock().now().unix_timestamp();
    let signed = |change: &dyn Fn(&mut Value)| {
        let mut claims = provider.claims(&server, None);
        change(&mut claims);
        provider.key.sign(&claims)
    };
    let good = signed(&|_| {});
    let oauth = [
        (json!({}), "id_token required"),
        (json!({"id_token": good}), "provider or client_id and issuer required"),
        (json!({"id_token": good, "issuer": "x"}), "provider or client_id and issuer required"),
        (
            json!({"id_token": good, "provider": "google", "link_identity": true}),
            "Linking requires a valid user access token in Authorization",
        ),
        (json!({"id_token": "nonsense", "provider": "google"}), "Bad ID token"),
        (
            json!({"id_token": Key::new("first").sign(&provider.claims(&server, None)), "provider": "google"}),
            "Bad ID token",
        ),
        (json!({"id_token": signed(&|claims| claims["exp"] = (now - 1).into()), "provider": "google"}), "Bad ID token"),
        (
            json!({"id_token": signed(&|claims| claims["iss"] = "https://x".into()), "provider": "google"}),
            "Bad ID token",
        ),
        (
            json!({"id_token": signed(&|claims| claims["at_hash"] = "AAAA".into()), "provider": "google", "access_token": "at"}),
            "Bad ID token",
        ),
        (
            json!({"id_token": signed(&|claims| claims["sub"] = "".into()), "provider": "google"}),
            "Missing sub claim in id_token",
        ),
        (
            json!({"id_token": signed(&|claims| claims["aud"] = "other".into()), "provider": "google"}),
            "Unacceptable audience in id_token: [other]",
        ),
        (
            json!({"id_token": good, "provider": "google", "nonce": "n"}),
            "Passed nonce and nonce in id_token should either both exist or not.",
        ),
        (
            json!({"id_token": signed(&|claims| claims["nonce"] = "n".into()), "provider": "google"}),
            "Passed nonce and nonce in id_token should either both exist or not.",
        ),
        (
            json!({"id_token": signed(&|claims| claims["nonce"] = "n".into()), "provider": "google", "nonce": "n"}),
            "Nonces mismatch",
        ),
    ];
    for (body, text) in oauth {
        let response = id_token(&server, &body).await.expect(400).json();
        assert_eq!(response["error_description"], text, "{body}");
        let kind = if text == "Nonces mismatch" { "invalid nonce" } else { "invalid request" };
        assert_eq!(response["error"], kind);
    }
    let plain = [
        (json!({"id_token": good, "provider": "github"}), "validation_failed"),
        (json!({"id_token": good, "provider": "nobody"}), "validation_failed"),
        (json!({"id_token": good, "provider": "kakao"}), "provider_disabled"),
        (json!({"id_token": good, "provider": "apple"}), "validation_failed"),
        (json!({"id_token": "nonsense", "provider": "azure"}), "validation_failed"),
        (json!({"id_token": good, "provider": "azure"}), "validation_failed"),
        (json!({"id_token": good, "provider": "google", "issuer": "https://x"}), "validation_failed"),
        (json!({"id_token": good, "issuer": "https://evil.example", "client_id": "x"}), "provider_disabled"),
    ];
    for (body, code) in plain {
        assert_eq!(id_token(&server, &body).await.rejection(), (400, code.to_owned()), "{body}");
    }
    assert_nothing_is_stored(&server).await;
}

#[tokio::test]
async fn a_signed_in_user_links_by_id_token() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    let session = server.signed_in("eve@example.com", "correct horse").await;
    let body = json!({"provider": "google", "id_token": provider.key.sign(&provider.claims(&server, None)), "link_identity": true});
    let link =
        async |token: &str| server.post("/auth/v1/token?grant_type=id_token").bearer(token).json(&body).send().await;
    assert_eq!(link("nonsense").await.status, 403);
    let linked = link(session["access_token"].as_str().unwrap()).await.expect(200).json();
    assert_eq!(linked["user"]["id"], session["user"]["id"]);
    assert_eq!(linked["user"]["identities"].as_array().unwrap().len(), 2);
    assert_ne!(linked["refresh_token"], session["refresh_token"], "a new session");
    let again = link(session["access_token"].as_str().unwrap()).await;
    assert_eq!(again.rejection(), (422, "identity_already_exists".into()));
}

#[tokio::test]
async fn an_account_with_a_confirmed_number_is_not_given_to_the_owner_of_its_unverified_address() {
    let provider = Provider::start().await;
    let server = server_with("google", &provider).await;
    server.signed_in("eve@example.com", "correct-horse").await;
    let claim = "update auth.users set phone = '15550009999', phone_confirmed_at = now(), email = 'ada@example.com',
                        email_confirmed_at = null";
    server.execute(claim).await;
    server
        .execute(
            "update auth.identities set provider = 'github', provider_id = '1',
                    identity_data = '{\"sub\": \"1\", \"email\": \"ada@example.com\", \"email_verified\": false}'",
        )
        .await;
    let eve = server.query("select id from auth.users").await;
    let started = flow(&server).await;
    provider.gives(provider.key.sign(&provider.claims(&server, started.nonce.as_deref())));
    let response = return_from_provider(&server, &started).await;
    let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{response:?}"));
    assert_ne!(claims_of(&token)["sub"], json!(eve[0].get::<_, uuid::Uuid>(0).to_string()));
    assert_eq!(server.count("select count(*) from auth.users").await, 2);
}
