//! Column encryption.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use portico_auth::settings::{AuthSettings, EncryptionSettings};
use portico_testkit::TestServer;
use serde_json::{Value, json};
use uuid::Uuid;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct horse";
pub const OLD: [u8; 32] = [1; 32];
pub const NEW: [u8; 32] = [2; 32];

/// Starts a server that knows both keys. `current` encrypts new values.
pub fn encrypting(auth: &mut AuthSettings, current: Option<&str>) {
    auth.encryption = EncryptionSettings {
        current: current.map(str::to_owned),
        keys: [("old", OLD), ("new", NEW)]
            .into_iter()
            .map(|(name, key)| (name.to_owned(), URL_SAFE_NO_PAD.encode(key).as_str().into()))
            .collect(),
    };
}

/// Encrypts a value as the hosted service does, without the code under test.
pub fn encrypted(name: &str, master: &[u8; 32], row: Uuid, text: &str) -> String {
    struct Length;
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            32
        }
    }
    let mut key = [0; 32];
    let info = row.to_string();
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(master);
    extracted.expand(&[info.as_bytes()], Length).unwrap().fill(&mut key).unwrap();
    let mut data = text.as_bytes().to_vec();
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap())
        .seal_in_place_append_tag(Nonce::assume_unique_for_key([9; 12]), Aad::empty(), &mut data)
        .unwrap();
    json!({"key_id": name, "alg": "aes-gcm-hkdf", "data": STANDARD.encode(data), "nonce": STANDARD.encode([9; 12])})
        .to_string()
}

async fn stored_password(server: &TestServer) -> String {
    server.query("select encrypted_password from auth.users").await[0].get(0)
}

async fn stored_key(server: &TestServer) -> (Uuid, String) {
    let row = &server.query("select id, refresh_token_hmac_key from auth.sessions").await[0];
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn new_passwords_are_encrypted_and_accepted_everywhere() {
    let server = TestServer::with_auth(|auth| encrypting(auth, Some("new"))).await;
    let session = server.signed_in(ADA, PASSWORD).await;
    let stored: Value = serde_json::from_str(&stored_password(&server).await).unwrap();
    assert_eq!((stored["key_id"].as_str(), stored["alg"].as_str()), (Some("new"), Some("aes-gcm-hkdf")));

    server.visitor(ADA).signs_in().await.expect(200);
    assert_eq!(
        server.visitor(ADA).with_password("wrong").signs_in().await.rejection(),
        (400, "invalid_credentials".into())
    );
    let change = |password: &'static str| {
        let token = session["access_token"].as_str().unwrap();
        server.put("/auth/v1/user").bearer(token).json(&json!({ "password": password })).send()
    };
    assert_eq!(change(PASSWORD).await.rejection(), (422, "same_password".into()));
    change("another horse").await.expect(200);
    assert!(stored_password(&server).await.starts_with(r#"{"key_id":"new""#));
    server.visitor(ADA).with_password("another horse").signs_in().await.expect(200);
}

#[tokio::test]
async fn a_sign_in_stores_an_outdated_form_anew() {
    let server = TestServer::with_auth(|auth| encrypting(auth, Some("new"))).await;
    server.account(ADA, PASSWORD).await;
    let id: Uuid = server.query("select id from auth.users").await[0].get(0);
    // A lower cost than the server's own is outdated
    let clear = "$2a$10$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy";
    for form in [clear.to_owned(), encrypted("old", &OLD, id, clear)] {
        server.query_with("update auth.users set encrypted_password = $1", &[&form]).await;
        server.visitor(ADA).with_password("").signs_in().await.expect(400);
        server.visitor(ADA).with_password("allmine").signs_in().await.expect(400);
        assert_eq!(stored_password(&server).await, form, "only the owner's sign-in writes");
    }
    let hash = bcrypt::hash_with_result("moved in", 4).unwrap().format_for_version(bcrypt::Version::TwoY);
    for form in [hash.clone(), encrypted("old", &OLD, id, &hash), encrypted("new", &NEW, id, &hash)] {
        server.query_with("update auth.users set encrypted_password = $1", &[&form]).await;
        server.visitor(ADA).with_password("moved in").signs_in().await.expect(200);
        let after = stored_password(&server).await;
        assert!(after.starts_with(r#"{"key_id":"new""#), "{after}");
        server.visitor(ADA).with_password("moved in").signs_in().await.expect(200);
        assert_eq!(stored_password(&server).await.len(), after.len());
    }
}

#[tokio::test]
async fn values_of_other_keys_and_rows_are_not_decrypted_and_cause_no_failure() {
    let server = TestServer::with_auth(|auth| encrypting(auth, None)).await;
    server.account(ADA, PASSWORD).await;
    let id: Uuid = server.query("select id from auth.users").await[0].get(0);
    let hash = stored_password(&server).await;
    assert!(hash.starts_with("$2a$"), "without a current key nothing is encrypted");
    for form in [
        encrypted("lost", &OLD, id, &hash),
        encrypted("new", &OLD, id, &hash),
        encrypted("old", &OLD, Uuid::from_u128(1), &hash),
        "{}".to_owned(),
    ] {
        server.query_with("update auth.users set encrypted_password = $1", &[&form]).await;
        assert_eq!(server.visitor(ADA).signs_in().await.rejection(), (400, "invalid_credentials".into()), "{form}");
    }
    let form = encrypted("old", &OLD, id, &hash);
    server.query_with("update auth.users set encrypted_password = $1", &[&form]).await;
    server.visitor(ADA).signs_in().await.expect(200);
    assert_eq!(stored_password(&server).await, form);
}

#[tokio::test]
async fn session_keys_are_encrypted_and_stored_anew_at_a_refresh() {
    let server = TestServer::with_auth(|auth| {
        encrypting(auth, Some("new"));
        auth.refresh.algorithm_version = 2;
    })
    .await;
    let first = server.signed_in(ADA, PASSWORD).await;
    let (id, column) = stored_key(&server).await;
    assert!(column.starts_with(r#"{"key_id":"new""#));
    let second = server.refresh(&first).await.expect(200).json();

    // As in a dump: the same key, unencrypted and with another master key
    let key = URL_SAFE_NO_PAD.encode([7; 32]);
    let mut current = second;
    for form in [key.clone(), encrypted("old", &OLD, id, &key), encrypted("new", &NEW, id, &key)] {
        let is_current = form.contains(r#""key_id":"new""#);
        server
            .query_with("update auth.sessions set refresh_token_hmac_key = $1, refresh_token_counter = 5", &[&form])
            .await;
        let token = portico_auth::session::refresh_token::SessionKey::from_column(&key).unwrap().token(id, 5);
        current = server.refresh(&json!({ "refresh_token": token })).await.expect(200).json();
        let (_, after) = stored_key(&server).await;
        assert_eq!(after == form, is_current, "{form}");
        assert!(after.contains(r#""key_id":"new""#));
        assert_eq!(server.count("select refresh_token_counter from auth.sessions").await, 6);
    }
    server.refresh(&current).await.expect(200);

    let lost = encrypted("lost", &OLD, id, &key);
    server.query_with("update auth.sessions set refresh_token_hmac_key = $1", &[&lost]).await;
    assert_eq!(server.refresh(&current).await.rejection(), (400, "refresh_token_not_found".into()));
}
