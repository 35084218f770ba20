//! Signing keys that are made, rotated and revoked while servers run.

use std::sync::Arc;
use std::time::Duration;

use portico_auth::settings::EncryptionSettings;
use portico_auth::signing_keys::{ConfiguredKeys, KeyState, SigningKeyError, SigningKeys};
use portico_testkit::TestServer;
use portico_tokens::{Algorithm, CurrentKeys, SECRET_ID, TokenHeader};
use serde_json::Value;

const PASSWORD: &str = "correct horse battery";

/// Returns the signing keys of a server, as the command line opens them.
fn keys_of(server: &TestServer) -> SigningKeys {
    keys_with(server, EncryptionSettings::default(), None)
}

fn keys_with(server: &TestServer, encryption: EncryptionSettings, jwt_secret: Option<&str>) -> SigningKeys {
    let keys = server.keys();
    let jwt_secret = jwt_secret.map_or_else(|| keys.jwt_secret.clone(), Into::into);
    let configured = ConfiguredKeys { ring: Arc::clone(&keys.ring), api: Arc::clone(&keys.api), jwt_secret };
    SigningKeys::new(server.database().clone(), &encryption, configured, server.clock().clone()).unwrap()
}

/// Returns the keys that a server would sign and verify with.
async fn loaded(server: &TestServer, keys: &SigningKeys) -> Result<CurrentKeys, SigningKeyError> {
    let current = CurrentKeys::new(Arc::clone(&server.keys().ring), Arc::clone(&server.keys().api));
    keys.load_into(&current).await.map(|()| current)
}

fn kid(session: &Value) -> String {
    TokenHeader::read(session["access_token"].as_str().unwrap()).unwrap().key_id.unwrap_or_default()
}

async fn user_status(server: &TestServer, session: &Value) -> u16 {
    server.member_with(session.clone()).reads_account().await.status
}

/// Waits until the server signs with the key `id`.
async fn signs_with(server: &TestServer, email: &str, id: &str) -> Value {
    let waiting = async {
        loop {
            let session = server.sign_in(email, PASSWORD).await;
            if kid(&session) == id {
                return session;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the server follows")
}

#[tokio::test]
async fn a_rotation_ends_no_session_and_a_revocation_ends_the_tokens_of_the_key() {
    let server = TestServer::start().await;
    let keys = keys_of(&server);
    let configured = server.keys().ring.signing_id().to_owned();
    let old = server.signed_in("ada@example.com", PASSWORD).await;
    assert_eq!(kid(&old), configured);

    let id = keys.create(Algorithm::Es256).await.unwrap();
    let rotation = keys.rotate(None).await.unwrap();
    assert_eq!((&rotation.in_use, &rotation.previously_used), (&id, &configured));
    assert!(rotation.published_at.is_some(), "caches do not have a key that was made a moment ago");
    let new = signs_with(&server, "ada@example.com", &id).await;
    for session in [&old, &new] {
        assert_eq!(user_status(&server, session).await, 200);
    }
    let published = server.get("/auth/v1/.well-known/jwks.json").send().await;
    assert_eq!(published.header("cache-control"), Some("public, max-age=600"));
    let published = published.json();
    let ids: Vec<&str> = published["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap()).collect();
    assert_eq!(ids, [configured.as_str(), id.as_str()]);
    assert!(published["keys"].as_array().unwrap().iter().all(|key| key.get("d").is_none()), "{published}");

    keys.revoke(&configured, false).await.unwrap();
    let rejected = async { while user_status(&server, &old).await == 200 {} };
    tokio::time::timeout(Duration::from_secs(30), rejected).await.expect("the server follows");
    let response = server.get("/auth/v1/user").bearer(old["access_token"].as_str().unwrap()).send().await;
    assert_eq!(response.rejection(), (403, "bad_jwt".to_owned()));
    assert_eq!(user_status(&server, &new).await, 200);
    // The session of the rejected token is not over
    let refreshed = server.refresh(&old).await.expect(200).json();
    assert_eq!((kid(&refreshed), user_status(&server, &refreshed).await), (id, 200));
}

#[tokio::test]
async fn nodes_that_learn_of_a_rotation_at_different_moments_accept_each_other_s_tokens() {
    let server = TestServer::start().await;
    server.account("ada@example.com", PASSWORD).await;
    let peer = server.peer().await;
    let keys = keys_of(&server);
    let current = loaded(&server, &keys).await.unwrap();
    for algorithm in [Algorithm::Es256, Algorithm::Rs256, Algorithm::EdDsa, Algorithm::Hs256] {
        let id = keys.create(algorithm).await.unwrap();
        keys.rotate(Some(&id)).await.unwrap();
        keys.load_into(&current).await.unwrap();
        let claims = serde_json::json!({ "sub": uuid(&server).await, "role": "authenticated" });
        let token = current.sign(&claims).unwrap();
        assert_eq!(TokenHeader::read(&token).unwrap().key_id, Some(id));
        // No waiting: the request itself lets the node read the keys
        for url in ["/auth/v1/user".to_owned(), peer.url("/auth/v1/user")] {
            assert_eq!(server.get(&url).bearer(&token).send().await.status, 200, "{algorithm:?} {url}");
        }
    }
}

#[tokio::test]
async fn the_discovery_document_has_the_algorithms_of_the_keys() {
    let server = TestServer::start().await;
    server.account("ada@example.com", PASSWORD).await;
    let listed = async || {
        let document = server.get("/auth/v1/.well-known/openid-configuration").send().await.expect(200).json();
        document["id_token_signing_alg_values_supported"].clone()
    };
    assert_eq!(listed().await, serde_json::json!(["RS256", "HS256", "ES256"]));
    let keys = keys_of(&server);
    let id = keys.create(Algorithm::EdDsa).await.unwrap();
    keys.rotate(Some(&id)).await.unwrap();
    signs_with(&server, "ada@example.com", &id).await;
    assert_eq!(listed().await, serde_json::json!(["RS256", "HS256", "ES256", "EdDSA"]));
}

async fn uuid(server: &TestServer) -> String {
    server.query("select id::text from auth.users").await[0].get(0)
}

#[tokio::test]
async fn a_revoked_secret_ends_the_legacy_api_keys_and_the_opaque_ones_stay_valid() {
    let server = TestServer::start().await;
    let keys = keys_of(&server);
    assert!(matches!(keys.revoke(SECRET_ID, false).await, Err(SigningKeyError::SignsApiKeys)));
    keys.revoke(SECRET_ID, true).await.unwrap();
    let current = loaded(&server, &keys).await.unwrap().now();
    let api = server.api_keys();
    assert!(current.ring.verify(api.service_role_jwt(), server.clock().now()).is_err());
    assert_eq!(current.api.role_of(api.service_role_jwt()), None);
    for role in [portico_tokens::ApiRole::Anon, portico_tokens::ApiRole::ServiceRole] {
        let claims = current.ring.verify(current.api.jwt_of(role), server.clock().now()).unwrap();
        assert_eq!(claims.role(), Some(role.as_str()));
    }
    assert_eq!(current.api.role_of(api.secret()), Some(portico_tokens::ApiRole::ServiceRole));
    let listed = keys.list().await.unwrap();
    let secret = listed.iter().find(|key| key.id == SECRET_ID).unwrap();
    assert_eq!((secret.state, secret.configured, secret.revoked_at.is_some()), (KeyState::Revoked, true, true));
}

#[tokio::test]
async fn operations_that_would_leave_nothing_to_sign_with_are_refused() {
    let server = TestServer::start().await;
    let keys = keys_of(&server);
    let configured = server.keys().ring.signing_id().to_owned();
    assert!(matches!(keys.rotate(None).await, Err(SigningKeyError::NoStandbyKey)));
    assert!(matches!(keys.rotate(Some("none")).await, Err(SigningKeyError::UnknownKey(_))));
    assert!(matches!(keys.rotate(Some(&configured)).await, Err(SigningKeyError::NotUsable(_, "in use"))));
    assert!(matches!(keys.rotate(Some(SECRET_ID)).await, Err(SigningKeyError::NotUsable(_, "for verification only"))));
    assert!(matches!(keys.revoke(&configured, true).await, Err(SigningKeyError::InUse(_))));
    assert!(matches!(keys.revoke("none", true).await, Err(SigningKeyError::UnknownKey(_))));

    let first = keys.create(Algorithm::EdDsa).await.unwrap();
    server.clock().advance(time::Duration::SECOND);
    let second = keys.create(Algorithm::Es256).await.unwrap();
    assert_eq!(keys.rotate(None).await.unwrap().in_use, first, "the oldest standby key");
    assert!(matches!(keys.revoke(&first, true).await, Err(SigningKeyError::InUse(_))));
    assert_eq!(keys.rotate(Some(&second)).await.unwrap().previously_used, first);
    keys.revoke(&first, false).await.unwrap();
    keys.revoke(&first, false).await.unwrap();
    assert!(matches!(keys.rotate(Some(&first)).await, Err(SigningKeyError::NotUsable(_, "revoked"))));
    // Back to the configured key
    let back = keys.rotate(Some(&configured)).await.unwrap();
    assert_eq!((back.in_use.as_str(), back.published_at), (configured.as_str(), None));
    let states: Vec<KeyState> = keys.list().await.unwrap().iter().map(|key| key.state).collect();
    use KeyState::{InUse, PreviouslyUsed, Revoked, VerifyOnly};
    assert_eq!(states, [InUse, VerifyOnly, Revoked, PreviouslyUsed]);
    assert_eq!(server.count("select count(*) from portico.signing_keys where jwk is not null").await, 1);
}

#[tokio::test]
async fn two_rotations_at_once_leave_one_key_in_use() {
    let server = TestServer::start().await;
    let keys = keys_of(&server);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(keys.create(Algorithm::Es256).await.unwrap());
    }
    let rotate = |id: &String| {
        let (keys, id) = (keys_of(&server), id.clone());
        tokio::spawn(async move { keys.rotate(Some(&id)).await.map(drop) })
    };
    for task in ids.iter().map(rotate).collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    let count = async |state: &str| {
        server.count(&format!("select count(*) from portico.signing_keys where state = '{state}'")).await
    };
    assert_eq!((count("in_use").await, count("previously_used").await), (1, 3));
}

#[tokio::test]
async fn stored_keys_are_encrypted_and_a_key_that_was_written_without_the_key_is_not_used() {
    let server = TestServer::start().await;
    let keys = keys_of(&server);
    let id = keys.create(Algorithm::Es256).await.unwrap();
    keys.rotate(None).await.unwrap();
    let stored: String = server.query("select jwk from portico.signing_keys").await[0].get(0);
    assert!(stored.contains("aes-gcm-hkdf") && !stored.contains("\"d\"") && !stored.contains("P-256"), "{stored}");

    // With the operator's own key later: rows are rewritten with the next change
    let own = EncryptionSettings {
        current: Some("k1".into()),
        keys: [("k1".to_owned(), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8".into())].into(),
    };
    let with_own = keys_with(&server, own, None);
    with_own.create(Algorithm::Hs256).await.unwrap();
    assert_eq!(server.count("select count(*) from portico.signing_keys where jwk like '%\"k1\"%'").await, 2);
    assert_eq!(loaded(&server, &with_own).await.unwrap().ring().signing_id(), id);

    // Another secret, a plain key and a copied value are not usable; the error names the remedy
    let error = loaded(&server, &keys_with(&server, EncryptionSettings::default(), Some("other"))).await.unwrap_err();
    assert!(error.to_string().contains("Restore the [auth.encryption] key"), "{error}");
    let forged = portico_tokens::generate_jwk(Algorithm::Es256, &id).unwrap().to_string();
    let set = "update portico.signing_keys set jwk = $1 where id = $2";
    server.admin().execute(set, &[&forged, &id]).await.unwrap();
    assert!(matches!(loaded(&server, &with_own).await, Err(SigningKeyError::Unreadable { .. })));
    let copy =
        "update portico.signing_keys set jwk = (select jwk from portico.signing_keys where id <> $1) where id = $1";
    server.admin().execute(copy, &[&id]).await.unwrap();
    assert!(matches!(loaded(&server, &with_own).await, Err(SigningKeyError::Unreadable { .. })));
}

#[tokio::test]
async fn code_of_the_project_cannot_write_signing_keys_and_reads_them_encrypted_at_most() {
    let server = TestServer::start().await;
    let statements = [
        "select * from portico.signing_keys",
        "insert into portico.signing_keys (id, algorithm, state, jwk, created_at) values ('x', 'HS256', 'in_use', 'x', now())",
        "do $$ begin lock table portico.signing_keys; end $$",
        "create trigger mine before insert on portico.signing_keys execute function pg_catalog.suppress_redundant_updates_trigger()",
    ];
    for role in ["postgres", "supabase_auth_admin", "authenticator"] {
        let client = server.database().acting_as(role).await.unwrap();
        // `postgres` reads every table, as on the hosted service
        for statement in statements.iter().skip(usize::from(role == "postgres")) {
            let error = client.batch_execute(statement).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role}: {statement}");
        }
    }
}

#[tokio::test]
async fn the_number_of_keys_is_bounded() {
    let server = TestServer::start().await;
    let keys = keys_of(&server);
    server
        .execute("insert into portico.signing_keys (id, algorithm, state, jwk, created_at) select n, 'ES256', 'standby', 'x', now() from generate_series(1, 32) as n")
        .await;
    assert!(matches!(keys.create(Algorithm::Es256).await, Err(SigningKeyError::TooManyKeys)));
    // Those that cannot be read are left out, and do not stop the server
    assert!(loaded(&server, &keys).await.is_ok());
}
