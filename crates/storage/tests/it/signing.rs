//! Signed URLs for downloads and uploads.

use serde_json::{Value, json};

use super::helper::{Files, OWN_FOLDER, assert_error, own};

impl Files {
    /// Signs a URL as the service and returns it.
    async fn signed(&self, object: &str, seconds: u64) -> String {
        let request = self.post(&format!("/object/sign/{object}")).json(&json!({ "expiresIn": seconds }));
        let signed = self.service(request).send().await.expect(200).json();
        signed["signedURL"].as_str().unwrap().to_owned()
    }

    fn token(&self, claims: &Value) -> String {
        self.t.keys().ring.sign_with_secret(claims).unwrap()
    }
}

#[tokio::test]
async fn a_signed_url_opens_one_object_until_it_expires() {
    let f = Files::with_buckets().await;
    f.store("files/u1/a.txt", "hello").await.expect(200);
    f.store("files/u1/b.txt", "other").await.expect(200);
    let url = f.signed("files/u1/a.txt", 60).await;
    assert!(url.starts_with("/object/sign/files/u1/a.txt?token=ey"), "{url}");
    let sent = f.get(&url).send().await.expect(200);
    assert_eq!((sent.text().as_str(), sent.header("cache-control")), ("hello", Some("private")));
    assert!(sent.header("expires").unwrap().ends_with("GMT"));
    assert_eq!(
        f.get(&format!("{url}&download=x.txt")).header("range", "bytes=1-2").send().await.expect(206).text(),
        "el"
    );
    f.head(&url).send().await.expect(200);
    let other = url.replace("a.txt", "b.txt");
    assert_error(&f.get(&other).send().await, 400, "400", "InvalidSignature", "Invalid signature");
    let forged = format!("{}A", url);
    assert_eq!(f.get(&forged).send().await.json()["code"], "InvalidJWT");
    let endless = f.get(&f.signed("files/u1/a.txt", 1_000_000_000_000_000).await).send().await.expect(200);
    assert_eq!(endless.header("expires"), Some("Fri, 31 Dec 9999 23:59:59 GMT"));
    let missing = f.get("/object/sign/files/u1/a.txt").send().await;
    assert_error(&missing, 400, "400", "InvalidRequest", "querystring must have required property 'token'");
    f.t.clock().advance(time::Duration::seconds(61));
    assert_error(&f.get(&url).send().await, 400, "400", "InvalidJWT", "\"exp\" claim timestamp check failed");
}

#[tokio::test]
async fn a_token_of_which_any_character_is_another_is_rejected() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    let url = f.signed("files/a", 60).await;
    let (path, token) = url.split_once("?token=").unwrap();
    // The least change: also of the bits that fill up the last byte and have no meaning
    let changed = |at: usize| {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let place = alphabet.iter().position(|byte| *byte == token.as_bytes()[at]);
        let other = place.map_or('A', |place| alphabet[place ^ 1].into());
        format!("{}{other}{}", &token[..at], &token[at + 1..])
    };
    for at in 0..token.len() {
        let response = f.get(&format!("{path}?token={}", changed(at))).send().await;
        assert_eq!((response.status, response.json()["code"].as_str()), (400, Some("InvalidJWT")), "{at}");
    }
    assert_eq!(f.get(&url).send().await.expect(200).text(), "hello");
}

#[tokio::test]
async fn keys_with_reserved_characters_work_in_signed_urls() {
    let f = Files::with_buckets().await;
    let (name, encoded) = ("a b?&=+,;:@$/!'()*.txt", "a%20b%3F%26%3D%2B%2C%3B%3A%40%24%2F!'()*.txt");
    f.store(&format!("files/{encoded}"), "hello").await.expect(200);
    let url = f.signed(&format!("files/{encoded}"), 60).await;
    let token = url.split("?token=").nth(1).unwrap();
    assert!(url.starts_with(&format!("/object/sign/files/{name}?token=")), "the key is not encoded: {url}");
    assert_eq!(f.get(&format!("/object/sign/files/{encoded}?token={token}")).send().await.expect(200).text(), "hello");
}

#[tokio::test]
async fn many_urls_are_signed_at_once_for_what_the_caller_can_read() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    let alice = f.t.member("alice@example.com").await;
    let mine = own(&alice, "a");
    alice.sends(f.post(&format!("/object/files/{mine}")).body("mine")).send().await.expect(200);
    f.store("files/hidden", "x").await.expect(200);
    let body = json!({ "expiresIn": 60, "paths": [mine, "hidden", "nothing", "\u{0}"] });
    let signed = alice.sends(f.post("/object/sign/files").json(&body)).send().await.expect(200).json();
    let url = signed[0]["signedURL"].as_str().unwrap();
    assert_eq!(f.get(url).send().await.expect(200).text(), "mine");
    let error = "Either the object does not exist or you do not have access to it";
    assert_eq!(signed[1], json!({ "error": error, "path": "hidden", "signedURL": null }));
    assert_eq!((&signed[2]["path"], &signed[3]["error"]), (&json!("nothing"), &json!(error)));
    for (body, message) in [
        (json!({ "expiresIn": 0, "paths": ["a"] }), "body/expiresIn must be >= 1".to_owned()),
        (json!({ "paths": ["a"] }), "body must have required property 'expiresIn'".to_owned()),
        (
            json!({ "expiresIn": 1, "paths": vec!["a"; 1001] }),
            "body/paths must NOT have more than 1000 items".to_owned(),
        ),
    ] {
        let refused = alice.sends(f.post("/object/sign/files").json(&body)).send().await;
        assert_error(&refused, 400, "400", "InvalidRequest", &message);
    }
    for path in ["files/hidden", "files/nothing", "nothing/a"] {
        let refused =
            alice.sends(f.post(&format!("/object/sign/{path}")).json(&json!({ "expiresIn": 60 }))).send().await;
        assert_error(&refused, 400, "404", "NoSuchKey", "Object not found");
    }
}

#[tokio::test]
async fn the_types_of_a_bucket_apply_to_a_signed_upload_and_not_to_its_url() {
    let f = Files::with_buckets().await;
    f.bucket("images", json!({ "allowed_mime_types": ["image/*"] })).await;
    let sign = f.post("/object/upload/sign/images/a").json(&json!({}));
    let url = f.service(sign).send().await.expect(200).json()["url"].as_str().unwrap().to_owned();
    let refused = f.put(&url).header("content-type", "text/plain").body("hello").send().await;
    assert_error(&refused, 400, "415", "InvalidMimeType", "mime type text/plain is not supported");
    f.put(&url).header("content-type", "image/png").body("hello").send().await.expect(200);
}

#[tokio::test]
async fn a_signed_upload_url_stores_one_object_for_its_owner() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    let alice = f.t.member("alice@example.com").await;
    let path = own(&alice, "new.txt");
    let signed = alice
        .sends(f.post(&format!("/object/upload/sign/files/{path}")).json(&json!({})))
        .send()
        .await
        .expect(200)
        .json();
    let (url, token) = (signed["url"].as_str().unwrap(), signed["token"].as_str().unwrap());
    assert_eq!(url, format!("/object/upload/sign/files/{path}?token={token}"));
    let stored = f.put(url).header("content-type", "text/plain").body("hello").send().await.expect(200).json();
    assert_eq!(stored, json!({ "Key": format!("files/{path}") }));
    let owner: String = f.t.query("select owner_id from storage.objects").await[0].get(0);
    assert_eq!(owner, alice.id());
    // `x-upsert` of the request does not matter
    let again = f.put(url).header("x-upsert", "true").body("changed").send().await;
    assert_error(&again, 400, "409", "KeyAlreadyExists", "The resource already exists");
    let refused = alice.sends(f.post(&format!("/object/upload/sign/files/{path}"))).send().await;
    assert_eq!(refused.json()["error"], "Duplicate");
    let denied = alice.sends(f.post("/object/upload/sign/files/elsewhere")).send().await;
    assert_eq!(denied.json()["code"], "AccessDenied");
    let upsert = f.post(&format!("/object/upload/sign/files/{path}")).header("x-upsert", "true");
    let signed = alice.sends(upsert).send().await.expect(200).json();
    f.put(signed["url"].as_str().unwrap()).body("changed").send().await.expect(200);
    assert_eq!(f.content(&format!("files/{path}")).await, "changed");
    // Two hours
    f.t.clock().advance(time::Duration::seconds(7201));
    assert_eq!(f.put(signed["url"].as_str().unwrap()).body("x").send().await.json()["code"], "InvalidJWT");
}

#[tokio::test]
async fn a_token_for_one_object_stores_and_opens_no_other() {
    let f = Files::with_buckets().await;
    f.bucket("other", json!({})).await;
    for path in ["files/a", "files/b", "other/a"] {
        f.store(path, "before").await.expect(200);
    }
    let upload = f.service(f.post("/object/upload/sign/files/a").header("x-upsert", "true")).send().await.expect(200);
    let upload = upload.json()["token"].as_str().unwrap().to_owned();
    let download = f.signed("files/a", 60).await;
    let download = download.split("?token=").nth(1).unwrap();
    for path in [
        "files/b",
        "files/new",
        "files/a/",
        "files//a",
        "files/A",
        "files/a%20",
        "files/a%2F..%2Fb",
        "other/a",
        "none/a",
    ] {
        let put = f.put(&format!("/object/upload/sign/{path}?token={upload}")).body("after").send().await;
        assert_error(&put, 400, "400", "InvalidSignature", "Invalid signature");
        let get = f.get(&format!("/object/sign/{path}?token={download}")).send().await;
        assert_error(&get, 400, "400", "InvalidSignature", "Invalid signature");
        f.head(&format!("/object/sign/{path}?token={download}")).send().await.expect(400);
    }
    for path in ["files/a", "files/b", "other/a"] {
        assert_eq!(f.content(path).await, "before");
    }
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 3);
    f.has_files(3).await;
}

#[tokio::test]
async fn a_token_of_another_purpose_opens_nothing() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    let upload =
        f.service(f.post("/object/upload/sign/files/a").header("x-upsert", "true")).send().await.expect(200).json();
    let upload = upload["token"].as_str().unwrap();
    let download = f.signed("files/a", 60).await;
    let download = download.split("?token=").nth(1).unwrap();
    let get = |token: &str| f.get(&format!("/object/sign/files/a?token={token}")).send();
    let put = |token: &str| f.put(&format!("/object/upload/sign/files/a?token={token}")).body("x").send();
    let wrong_download = "Token is not scoped for download";
    assert_error(&get(upload).await, 400, "400", "InvalidSignature", wrong_download);
    assert_error(&put(download).await, 400, "400", "InvalidSignature", "Token is not scoped for upload");
    let exp = f.t.clock().now().unix_timestamp() + 60;
    for claims in [
        json!({ "url": "files/a", "scope": "download", "role": "anon", "exp": exp }),
        json!({ "url": "files/a", "sub": "u", "exp": exp }),
        json!({ "url": "files/a", "scope": null, "exp": exp }),
        json!({ "url": "files/a", "scope": "upload", "exp": exp }),
        json!({ "url": "files/a", "upsert": true, "exp": exp }),
    ] {
        assert_error(&get(&f.token(&claims)).await, 400, "400", "InvalidSignature", wrong_download);
    }
    for token in [f.t.api_keys().anon_jwt(), f.t.api_keys().service_role_jwt()] {
        assert_error(&get(token).await, 400, "400", "InvalidSignature", wrong_download);
    }
    let foreign = portico_tokens::KeyRing::hs256(&"another secret of another server".into());
    let foreign = foreign.sign(&json!({ "url": "files/a", "scope": "download", "exp": exp })).unwrap();
    assert_error(&get(&foreign).await, 400, "400", "InvalidJWT", "signature verification failed");
    // Tokens of earlier versions have no scope
    assert_eq!(get(&f.token(&json!({ "url": "files/a", "exp": exp }))).await.expect(200).text(), "hello");
    put(&f.token(&json!({ "url": "files/a", "upsert": true, "exp": exp }))).await.expect(200);
    // And no token of a URL is one of a caller
    assert_eq!(f.get("/bucket").bearer(download).send().await.expect(200).json(), json!([]));
}

#[tokio::test]
async fn a_link_never_names_an_object_of_another_bucket() {
    let f = Files::with_buckets().await;
    f.t.execute("insert into storage.buckets (id, name) values ('files/a', 'files/a')").await;
    f.store("files/a/b", "secret").await.expect(200);
    f.store("files%2Fa/b", "own").await.expect(200);
    let sign = |path: &str| f.service(f.post(path).json(&json!({ "expiresIn": 60 }))).send();
    let refused = sign("/object/sign/files%2Fa/b").await;
    assert_error(&refused, 400, "400", "InvalidBucketName", "Bucket name invalid");
    let signed = sign("/object/sign/files/a/b").await.expect(200).json()["signedURL"].as_str().unwrap().to_owned();
    assert_eq!(f.get(&signed).send().await.expect(200).text(), "secret");
    let other = f.get(&signed.replace("files/a/b", "files%2Fa/b")).send().await;
    assert_error(&other, 400, "400", "InvalidSignature", "Invalid signature");
}
