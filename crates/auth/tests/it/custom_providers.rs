//! The settings of custom providers.

use portico_auth::AuthSettings;
use portico_testkit::{TestServer, claims_of};
use serde_json::json;
use uuid::Uuid;

use crate::column_encryption::{NEW, OLD, encrypted, encrypting};
use crate::misbehaving::{Provider, begin, begin_at, return_from_provider, server_and};
use crate::oauth::query_of;
use crate::provider::custom;

const ACME: &str = "custom:acme";

async fn server(provider: &Provider, change: impl FnOnce(&mut AuthSettings)) -> TestServer {
    let server = server_and("google", provider, change).await;
    custom(&server, provider).await;
    server
}

#[tokio::test]
async fn an_encrypted_secret_is_decrypted_for_the_provider() {
    let provider = Provider::start().await;
    let server = server(&provider, |auth| encrypting(auth, Some("new"))).await;
    let find = "select id from auth.custom_oauth_providers where identifier = $1";
    let id: Uuid = server.query_with(find, &[&ACME]).await[0].get(0);
    let store = "update auth.custom_oauth_providers set client_secret = $1 where id = $2";
    for (number, form) in
        ["the-secret".to_owned(), encrypted("old", &OLD, id, "the-secret"), encrypted("new", &NEW, id, "the-secret")]
            .into_iter()
            .enumerate()
    {
        server.query_with(store, &[&form, &id]).await;
        let started = begin(&server, ACME).await;
        provider.gives(provider.key.sign(&provider.claims(&server, started.nonce.as_deref())));
        let response = return_from_provider(&server, &started).await;
        let token = response.location_fragment("access_token").unwrap_or_else(|| panic!("{form}: {response:?}"));
        assert_eq!(claims_of(&token)["email"], "ada@example.com");
        assert_eq!(provider.calls("/token")[number].0["client_secret"], "the-secret", "{form}");
    }

    // Encrypted for another row: no flow is started at a provider that would reject this client
    server.query_with(store, &[&encrypted("old", &OLD, Uuid::from_u128(1), "the-secret"), &id]).await;
    let refused = server.get(&format!("/auth/v1/authorize?provider={ACME}")).send().await;
    assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    assert_eq!(refused.json()["msg"], "Unsupported provider: custom provider custom:acme is incomplete");
}

#[tokio::test]
async fn they_have_a_callback_url_of_their_own() {
    let provider = Provider::start().await;
    let elsewhere = |auth: &mut AuthSettings| {
        auth.custom_providers.external_url = Some("https://accounts.example.com/auth/v1/".into());
    };
    let server = server(&provider, elsewhere).await;
    let expected = Some("https://accounts.example.com/auth/v1/callback".to_owned());
    for name in [ACME, "custom:plain"] {
        assert_eq!(query_of(&begin_at(&server, name, "accounts.example.com").await.url, "redirect_uri"), expected);
    }
    let built_in = Some(format!("{}/auth/v1/callback", server.base()));
    assert_eq!(query_of(&begin(&server, "google").await.url, "redirect_uri"), built_in);
}

#[tokio::test]
async fn disabled_providers_are_rejected_by_both_endpoints() {
    let provider = Provider::start().await;
    let server = server(&provider, |auth| auth.custom_providers.enabled = false).await;
    let refused = server.get(&format!("/auth/v1/authorize?provider={ACME}")).send().await;
    assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    assert_eq!(refused.json()["msg"], "Unsupported provider: custom OAuth providers are disabled");
    let body = json!({"provider": ACME, "id_token": "a.b.c"});
    let refused = server.post("/auth/v1/token?grant_type=id_token").json(&body).send().await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(refused.json()["msg"], "Custom OAuth providers are disabled");
    assert!(provider.calls("/.well-known/openid-configuration").is_empty() && provider.calls("/token").is_empty());
}
