//! `grant_type=id_token` without the name of a provider: the allowed issuers of the project.

use serde_json::{Value, json};

use crate::id_token::id_token;
use crate::misbehaving::{CLIENT_ID, Provider, server_and};

#[tokio::test]
async fn a_token_of_an_allowed_issuer_must_be_for_one_of_the_projects_clients() {
    let (provider, issuer) = (Provider::start().await, Provider::start().await);
    let t = server_and("google", &provider, |auth| {
        auth.allowed_id_token_issuers = [(issuer.base.clone(), vec![CLIENT_ID.to_owned(), "phone".to_owned()])].into();
    })
    .await;
    let signed = |audience: Value| {
        let mut claims = issuer.claims(&t, None);
        claims["aud"] = audience;
        issuer.key.sign(&claims)
    };
    // Anyone can register a client at such an issuer, also an app that wants to impersonate its
    // users here
    for (audience, client_id) in [("evil-app", "evil-app"), ("evil-app", CLIENT_ID), ("phone", CLIENT_ID)] {
        let body = json!({"issuer": issuer.base, "client_id": client_id, "id_token": signed(audience.into())});
        let refused = id_token(&t, &body).await.expect(400).json();
        let text = format!("Unacceptable audience in id_token: [{audience}]");
        assert_eq!(refused, json!({"error": "invalid request", "error_description": text}));
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    for client_id in [CLIENT_ID, "phone"] {
        let body = json!({"issuer": issuer.base, "client_id": client_id, "id_token": signed(client_id.into())});
        let user = id_token(&t, &body).await.expect(200).json()["user"].clone();
        assert_eq!(user["app_metadata"]["provider"], json!(issuer.base));
    }
    // Tokens of other issuers are rejected
    let other = Provider::start().await;
    let body =
        json!({"issuer": other.base, "client_id": CLIENT_ID, "id_token": other.key.sign(&other.claims(&t, None))});
    let refused = id_token(&t, &body).await;
    assert_eq!(refused.rejection(), (400, "provider_disabled".into()));
    for built_in in ["https://appleid.apple.com", "https://issuer.example.com"] {
        let body = json!({"issuer": built_in, "client_id": "x", "id_token": "a.b.c"});
        assert_eq!(id_token(&t, &body).await.status, 400, "{built_in}");
    }
}
