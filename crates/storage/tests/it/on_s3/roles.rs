//! The keys of a role, from an independent implementation of the platform's services.

use std::fs;

use portico_storage::{BackendSettings, S3StoreCredentials, S3StoreRole};

use super::helper::Files;
use super::place::server_url;

#[tokio::test]
async fn content_is_stored_with_the_keys_of_a_role() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    fs::write(&token_file, "of the service account").unwrap();
    for role in [
        S3StoreRole::Instance { metadata_url: server_url().to_owned() },
        S3StoreRole::WebIdentity {
            sts_url: server_url().to_owned(),
            role_arn: "arn:aws:iam::123456789012:role/portico".to_owned(),
            session_name: "portico".to_owned(),
            token_file,
        },
    ] {
        let f = Files::with(|settings| {
            let BackendSettings::S3 { store, .. } = &mut settings.backend else {
                unreachable!("the backend is a store")
            };
            store.credentials = S3StoreCredentials::Role(Box::new(role));
        })
        .await;
        f.bucket("files", serde_json::json!({})).await;
        f.store("files/a", "one").await.expect(200);
        assert_eq!(f.content("files/a").await, "one");
    }
}
