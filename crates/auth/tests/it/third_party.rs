//! The keys of a third party, fetched from an issuer that responds as the test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::response::IntoResponse as _;
use portico_auth::settings::ThirdPartySettings;
use portico_testkit::TestServer;
use portico_tokens::ThirdPartyIssuer;
use serde_json::{Value, json};

use crate::misbehaving::{Key, Provider};

async fn accepting(provider: &Provider) -> TestServer {
    let third_party = ThirdPartySettings {
        issuer: ThirdPartyIssuer { url: provider.base.clone(), other_names: Vec::new(), audience: None },
        discovery_url: None,
    };
    let server = TestServer::with(|settings| {
        settings.auth.third_party = Some(third_party);
        settings.auth.allow_insecure_loopback_providers = true;
        settings.auth.http_timeout = Duration::from_secs(2);
        settings.rest = Some(Default::default());
    })
    .await;
    let sql = "create table public.notes (id int primary key, owner text); alter table public.notes enable row level security;
               create policy own on public.notes to authenticated using (owner = (select auth.jwt() ->> 'sub'));
               grant select on public.notes to anon, authenticated, service_role; insert into public.notes values (1, 'user_1'), (2, 'user_2')";
    server.migrate(sql).await;
    server
}

fn claims(provider: &Provider, server: &TestServer) -> Value {
    let now = server.clock().now().unix_timestamp();
    json!({ "iss": provider.base, "sub": "user_1", "role": "authenticated", "iat": now, "exp": now + 600 })
}

/// Returns the status and body of a read of all notes.
async fn notes(server: &TestServer, token: &str) -> (u16, Value) {
    let response = server.get("/rest/v1/notes?select=id").bearer(token).send().await;
    (response.status, response.json())
}

#[tokio::test]
async fn a_third_party_s_user_reads_its_own_rows_and_has_no_account() {
    let provider = Provider::start().await;
    let server = accepting(&provider).await;
    let mut claims = claims(&provider, &server);
    let token = provider.key.sign(&claims);
    assert_eq!(notes(&server, &token).await, (200, json!([{ "id": 1 }])));
    let account = server.get("/auth/v1/user").bearer(&token).send().await;
    assert_eq!(account.rejection(), (403, "bad_jwt".to_owned()));

    // Without a role the token is that of a visitor
    claims.as_object_mut().unwrap().remove("role");
    assert_eq!(notes(&server, &provider.key.sign(&claims)).await, (200, json!([])));
    // Its rights end where those of the account service begin, whatever role it names
    claims["role"] = "service_role".into();
    let admin = server.get("/auth/v1/admin/users").bearer(&provider.key.sign(&claims)).send().await;
    assert_eq!(admin.rejection(), (403, "bad_jwt".to_owned()));
    // A token that this server's key signed is this server's, also if it names the third party
    let own = server.keys().ring.sign(&claims).unwrap();
    assert_eq!(server.get("/auth/v1/admin/users").bearer(&own).send().await.status, 200);
    assert_eq!(notes(&server, &own).await, (200, json!([{ "id": 1 }, { "id": 2 }])));
    claims["exp"] = (server.clock().now().unix_timestamp() - 60).into();
    assert_eq!(notes(&server, &provider.key.sign(&claims)).await.0, 401);
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_fetched_when_a_token_names_it_and_invented_ones_do_not_flood_it() {
    let provider = Provider::start().await;
    let server = accepting(&provider).await;
    let claims = claims(&provider, &server);
    assert_eq!(notes(&server, &provider.key.sign(&claims)).await.0, 200);
    let reads = provider.key_reads();
    let second = Key::new("second");
    provider.says("/jwks", json!({ "keys": [second.public()] }));
    assert_eq!(notes(&server, &second.sign(&claims)).await, (200, json!([{ "id": 1 }])));
    // The issuer has withdrawn the first key
    assert_eq!(notes(&server, &provider.key.sign(&claims)).await.0, 401);
    let invented: Vec<String> = (0..20).map(|n| Key::new(&format!("invented-{n}")).sign(&claims)).collect();
    let asked = futures_util::future::join_all(invented.iter().map(|token| notes(&server, token))).await;
    assert!(asked.iter().all(|(status, _)| *status == 401));
    assert!(provider.key_reads() - reads <= 4, "{} reads", provider.key_reads() - reads);
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_delays_no_other_request() {
    let provider = Provider::start().await;
    let hangs = Arc::new(AtomicBool::new(true));
    let base = provider.base.clone();
    let document = json!({ "issuer": base, "jwks_uri": format!("{base}/jwks") });
    let state = Arc::clone(&hangs);
    provider.answers("/.well-known/openid-configuration", move |_| match state.load(Ordering::SeqCst) {
        // A body that never ends
        true => axum::body::Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>())
            .into_response(),
        false => axum::Json(document.clone()).into_response(),
    });
    let server = accepting(&provider).await;
    let claims = claims(&provider, &server);
    let token = provider.key.sign(&claims);
    let waiting = {
        let request = server.get("/rest/v1/notes?select=id").bearer(&token);
        tokio::spawn(async move { request.send().await.status })
    };
    let own = server.keys().ring.sign(&json!({ "sub": "user_2", "role": "authenticated" })).unwrap();
    for _ in 0..20 {
        assert_eq!(notes(&server, &own).await, (200, json!([{ "id": 2 }])));
    }
    assert_eq!(waiting.await.unwrap(), 401);
    hangs.store(false, Ordering::SeqCst);
    let recovered = async { while notes(&server, &token).await.0 != 200 {} };
    tokio::time::timeout(Duration::from_secs(30), recovered).await.expect("the issuer is asked again");
}

#[tokio::test]
async fn documents_of_another_issuer_or_without_a_usable_key_are_not_used() {
    let provider = Provider::start().await;
    let base = provider.base.clone();
    provider.says(
        "/.well-known/openid-configuration",
        json!({ "issuer": "https://other", "jwks_uri": format!("{base}/jwks") }),
    );
    let server = accepting(&provider).await;
    let token = provider.key.sign(&claims(&provider, &server));
    assert_eq!(notes(&server, &token).await.0, 401);
    // The keys of another machine, over plain http
    provider.says("/.well-known/openid-configuration", json!({ "issuer": base, "jwks_uri": "http://192.0.2.1/jwks" }));
    assert_eq!(notes(&server, &token).await.0, 401);
    provider.says("/.well-known/openid-configuration", json!({ "issuer": base, "jwks_uri": format!("{base}/jwks") }));
    provider.says("/jwks", json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0", "kid": "first", "alg": "HS256" }] }));
    assert_eq!(notes(&server, &token).await.0, 401);
}
