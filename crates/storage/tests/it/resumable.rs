//! Resumable uploads: the protocol, and what becomes of the object.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use portico_testkit::{Member, Request, TestResponse};
use serde_json::{Value, json};

use super::helper::{Files, OWN_FOLDER, own};

/// The content type of bytes of an upload.
pub const BYTES: &str = "application/offset+octet-stream";
const RLS: &str = "new row violates row-level security policy";
const PATH: &str = "/upload/resumable";

/// Returns `Upload-Metadata`.
pub fn metadata(pairs: &[(&str, &str)]) -> String {
    pairs.iter().map(|(key, value)| format!("{key} {}", STANDARD.encode(value))).collect::<Vec<_>>().join(",")
}

/// Returns the metadata of an object of the bucket `files`.
pub fn object(name: &str) -> String {
    metadata(&[("bucketName", "files"), ("objectName", name), ("contentType", "text/plain")])
}

impl Files {
    /// Builds a request of the protocol.
    pub fn tus(&self, method: Method, url: &str) -> Request {
        let url = if url.starts_with("http") { url.to_owned() } else { format!("/storage/v1{url}") };
        self.t.request(method, &url).header("tus-resumable", "1.0.0")
    }

    /// Builds a request that creates an upload.
    pub fn creation(&self, name: &str, length: usize) -> Request {
        let request = self.tus(Method::POST, PATH).header("upload-length", &length.to_string());
        request.header("upload-metadata", &object(name))
    }

    /// Builds a request with bytes of an upload.
    pub fn patch(&self, url: &str, offset: usize, bytes: impl Into<reqwest::Body>) -> Request {
        let request = self.tus(Method::PATCH, url).header("upload-offset", &offset.to_string());
        request.header("content-type", BYTES).body(bytes)
    }

    /// Creates an upload as the service. Returns its URL.
    pub async fn created(&self, name: &str, length: usize) -> String {
        url_of(&self.service(self.creation(name, length)).send().await.expect(201))
    }

    /// Returns the number of files of unfinished uploads.
    pub fn unfinished(&self) -> usize {
        std::fs::read_dir(self.t.files().join("resumable")).unwrap().count()
    }
}

/// Returns the URL of a new upload.
#[track_caller]
pub fn url_of(response: &TestResponse) -> String {
    response.header("location").expect("a new upload has an address").to_owned()
}

/// Asserts that a response is an error of the protocol.
#[track_caller]
pub fn assert_refused(response: &TestResponse, status: u16, text: &str) {
    assert_eq!((response.status, response.text().trim_end()), (status, text), "{response:?}");
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
}

#[tokio::test]
async fn an_upload_in_parts_becomes_an_object_at_its_end() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    let alice = f.t.member("alice@example.com").await;
    let name = own(&alice, "deep/one.txt");
    let pairs = [
        ("bucketName", "files"),
        ("objectName", name.as_str()),
        ("contentType", "text/plain"),
        ("cacheControl", "3600"),
        ("metadata", r#"{"album":"x"}"#),
        ("own", "kept"),
    ];
    let request = f.tus(Method::POST, PATH).header("upload-length", "10").header("upload-metadata", &metadata(&pairs));
    let created = alice.sends(request).send().await.expect(201);
    let url = url_of(&created);
    let id = url.strip_prefix(&format!("{}/storage/v1/upload/resumable/", f.t.base())).expect("the URL is absolute");
    let id = String::from_utf8(URL_SAFE_NO_PAD.decode(id).unwrap()).unwrap();
    let version = id.strip_prefix(&format!("files/{name}/")).unwrap();
    assert_eq!((created.header("upload-offset"), created.header("tus-complete")), (None, None));

    let patched = alice.sends(f.patch(&url, 0, "01234")).send().await.expect(204);
    assert_eq!((patched.header("upload-offset"), patched.header("tus-complete")), (Some("5"), None));
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    let head = alice.sends(f.tus(Method::HEAD, &url)).send().await.expect(200);
    let facts = ["upload-offset", "upload-length", "cache-control", "tus-resumable"].map(|name| head.header(name));
    assert_eq!(facts, [Some("5"), Some("10"), Some("no-store"), Some("1.0.0")]);
    let mut stored = pairs;
    stored[3].1 = "max-age=3600";
    assert_eq!(head.header("upload-metadata"), Some(metadata(&stored).as_str()));

    let last = alice.sends(f.patch(&url, 5, "56789")).send().await.expect(204);
    assert_eq!((last.header("upload-offset"), last.header("tus-complete")), (Some("10"), Some("1")));
    let row = &f.t.query("select version, owner_id, metadata, user_metadata, name from storage.objects").await[0];
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (version, alice.id()));
    let mut facts: Value = row.get(2);
    facts["lastModified"].take();
    let expected = json!({
        "eTag": "\"781e5e245d69b566979b86e28d23f2c7\"", "size": 10, "mimetype": "text/plain", "cacheControl": "max-age=3600",
        "lastModified": null, "contentLength": 10, "httpStatusCode": 200,
    });
    assert_eq!((facts, row.get::<_, Value>(3)), (expected, json!({ "album": "x" })));
    let read = alice.sends(f.get(&format!("/object/files/{name}"))).send().await.expect(200);
    assert_eq!((read.text().as_str(), read.header("content-type")), ("0123456789", Some("text/plain")));
    // The object, and the record of the finished upload
    f.has_files(2).await;
}

#[tokio::test]
async fn a_finished_upload_is_described_while_its_object_is_there() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 1).await;
    f.service(f.patch(&url, 0, "x")).send().await.expect(204);
    let head = f.service(f.tus(Method::HEAD, &url)).send().await.expect(200);
    assert_eq!((head.header("upload-offset"), head.header("upload-length")), (Some("1"), Some("1")));
    assert_eq!(head.header("upload-expires"), None);
    let again = f.service(f.patch(&url, 1, "").header("x-upsert", "true")).send().await.expect(204);
    assert_eq!((again.header("upload-offset"), again.header("tus-complete")), (Some("1"), Some("1")));
    assert_refused(&f.service(f.patch(&url, 1, "")).send().await, 409, "The resource already exists");
    let ended = f.service(f.tus(Method::DELETE, &url).header("x-upsert", "true")).send().await;
    assert_refused(&ended, 400, "Cannot terminate an already completed upload");
    assert_refused(&f.service(f.tus(Method::DELETE, &url)).send().await, 409, "The resource already exists");
    // A client that stores the file again needs another upload
    f.service(f.delete("/object/files/a")).send().await.expect(200);
    f.service(f.tus(Method::HEAD, &url)).send().await.expect(404);
}

#[tokio::test]
async fn an_upload_is_complete_with_its_creation_if_the_request_has_all_bytes() {
    let f = Files::with_buckets().await;
    let whole = f.service(f.creation("whole", 5).header("content-type", BYTES).body("hello")).send().await.expect(201);
    assert_eq!((whole.header("upload-offset"), whole.header("tus-complete")), (Some("5"), Some("1")));
    let empty = f.service(f.creation("empty", 0)).send().await.expect(201);
    assert_eq!((empty.header("upload-offset"), empty.header("tus-complete")), (None, Some("1")));
    let half = f.service(f.creation("half", 10).header("content-type", BYTES).body("hello")).send().await.expect(201);
    assert_eq!((half.header("upload-offset"), half.header("tus-complete")), (Some("5"), None));
    f.service(f.patch(&url_of(&half), 5, "world")).send().await.expect(204);
    let contents = [f.content("files/whole").await, f.content("files/empty").await, f.content("files/half").await];
    assert_eq!(contents, ["hello", "", "helloworld"]);
}

#[tokio::test]
async fn a_length_can_follow_later() {
    let f = Files::with_buckets().await;
    let creation = |name: &str| {
        let request = f.tus(Method::POST, PATH).header("upload-defer-length", "1");
        f.service(request.header("upload-metadata", &object(name))).send()
    };
    let url = url_of(&creation("a").await.expect(201));
    f.service(f.patch(&url, 0, "hello")).send().await.expect(204);
    let head = f.service(f.tus(Method::HEAD, &url)).send().await.expect(200);
    assert_eq!((head.header("upload-defer-length"), head.header("upload-length")), (Some("1"), None));
    let short = f.service(f.patch(&url, 5, "").header("upload-length", "4")).send().await;
    assert_refused(&short, 400, "Upload-Length or Upload-Defer-Length header required");
    f.service(f.patch(&url, 5, "").header("upload-length", "8")).send().await.expect(204);
    let again = f.service(f.patch(&url, 5, "").header("upload-length", "9")).send().await;
    assert_refused(&again, 400, "Upload-Length or Upload-Defer-Length header required");
    f.service(f.patch(&url, 5, "you")).send().await.expect(204);
    // With the last bytes, and behind them
    let url = url_of(&creation("b").await.expect(201));
    f.service(f.patch(&url, 0, "hello").header("upload-length", "5")).send().await.expect(204);
    let url = url_of(&creation("c").await.expect(201));
    f.service(f.patch(&url, 0, "hello")).send().await.expect(204);
    f.service(f.patch(&url, 5, "").header("upload-length", "5")).send().await.expect(204);
    let contents = [f.content("files/a").await, f.content("files/b").await, f.content("files/c").await];
    assert_eq!(contents, ["helloyou", "hello", "hello"]);
}

#[tokio::test]
async fn an_existing_object_is_replaced_only_by_requests_that_say_so() {
    let f = Files::with_buckets().await;
    f.store("files/a", "old").await.expect(200);
    assert_refused(&f.service(f.creation("a", 3)).send().await, 409, "The resource already exists");
    let created = f.service(f.creation("a", 3).header("x-upsert", "true")).send().await.expect(201);
    let url = url_of(&created);
    assert_refused(&f.service(f.patch(&url, 0, "new")).send().await, 409, "The resource already exists");
    assert_eq!(f.content("files/a").await, "old");
    f.service(f.patch(&url, 0, "new").header("x-upsert", "true")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "new");
    f.has_files(2).await;
}

#[tokio::test]
async fn an_upload_is_ended_by_its_client() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 10).await;
    f.service(f.patch(&url, 0, "hello")).send().await.expect(204);
    f.service(f.tus(Method::DELETE, &url)).send().await.expect(204);
    for request in [f.tus(Method::HEAD, &url), f.patch(&url, 5, "world"), f.tus(Method::DELETE, &url)] {
        f.service(request).send().await.expect(404);
    }
    f.has_files(0).await;
}

#[tokio::test]
async fn an_upload_expires_and_is_deleted() {
    let f = Files::with_buckets().await;
    let created = f.service(f.creation("a", 10)).send().await.expect(201);
    let url = url_of(&created);
    let until = f.t.clock().now() + time::Duration::days(1);
    let expires = httpdate::fmt_http_date(until.into());
    assert_eq!(created.header("upload-expires"), Some(expires.as_str()));
    let patched = f.service(f.patch(&url, 0, "hello")).send().await.expect(204);
    let head = f.service(f.tus(Method::HEAD, &url)).send().await.expect(200);
    assert_eq!(
        (patched.header("upload-expires"), head.header("upload-expires")),
        (Some(expires.as_str()), Some(expires.as_str()))
    );
    // Also waits for the clean-up at the start of the server
    f.t.storage().clean_up(std::time::Duration::from_secs(3600)).await;
    assert_eq!(f.unfinished(), 2);
    f.t.clock().advance(time::Duration::days(1));
    assert_refused(&f.service(f.patch(&url, 5, "world")).send().await, 410, "The file for this url no longer exists");
    f.service(f.tus(Method::HEAD, &url)).send().await.expect(410);
    f.t.storage().clean_up(std::time::Duration::from_secs(3600)).await;
    f.service(f.tus(Method::HEAD, &url)).send().await.expect(404);
    f.has_files(0).await;
}

#[tokio::test]
async fn the_address_of_an_upload_is_the_one_that_the_client_uses() {
    let f = Files::with_buckets().await;
    for (headers, expected) in [
        (
            &[("x-forwarded-host", "files.example.com"), ("x-forwarded-proto", "https")][..],
            "https://files.example.com/storage/v1/upload/resumable/",
        ),
        (
            &[("x-forwarded-host", "a.example"), ("x-forwarded-port", "8443"), ("x-forwarded-proto", "https")],
            "https://a.example:8443/storage/v1/upload/resumable/",
        ),
        (
            &[("x-forwarded-host", "a.example:81"), ("x-forwarded-prefix", "/backend")],
            "http://a.example:81/backend/storage/v1/upload/resumable/",
        ),
    ] {
        let request = headers.iter().fold(f.creation("a", 1), |request, (name, value)| request.header(name, value));
        let url = url_of(&f.service(request).send().await.expect(201));
        assert!(url.starts_with(expected), "{url}");
    }
    let f = Files::with(|settings| settings.https = true).await;
    f.bucket("files", json!({})).await;
    assert!(f.created("a", 1).await.starts_with("https://127.0.0.1:"));
}

#[tokio::test]
async fn a_signed_url_stores_its_object_alone_without_a_token() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    let alice = f.t.member("alice@example.com").await;
    let name = own(&alice, "signed.txt");
    let sign = |name: &str| alice.sends(f.post(&format!("/object/upload/sign/files/{name}"))).send();
    let token = sign(&name).await.expect(200).json()["token"].as_str().unwrap().to_owned();
    let other = sign(&own(&alice, "other.txt")).await.expect(200).json()["token"].as_str().unwrap().to_owned();
    let create = |name: &str| {
        f.tus(Method::POST, "/upload/resumable/sign")
            .header("upload-length", "5")
            .header("upload-metadata", &object(name))
    };
    assert_refused(&create(&name).send().await, 400, "Missing x-signature header");
    assert_refused(&create(&name).header("x-signature", &other).send().await, 400, "Invalid signature");
    assert_refused(&create(&name).header("x-signature", "x").send().await, 400, "Invalid Compact JWS");
    let download =
        alice.sends(f.post(&format!("/object/sign/files/{name}")).json(&json!({ "expiresIn": 60 }))).send().await;
    assert_eq!(download.status, 400, "there is nothing to download yet");
    let url = url_of(&create(&name).header("x-signature", &token).send().await.expect(201));
    assert!(url.contains("/storage/v1/upload/resumable/sign/"), "{url}");
    for (request, text) in [
        (f.patch(&url, 0, "hello"), "Missing x-signature header"),
        (f.patch(&url, 0, "hello").header("x-signature", &other), "Invalid signature"),
    ] {
        assert_refused(&request.send().await, 400, text);
    }
    let patched = f.patch(&url, 0, "hel").header("x-signature", &token).send().await.expect(204);
    assert_eq!(patched.header("upload-offset"), Some("3"));
    let head = f.tus(Method::HEAD, &url).header("x-signature", &token).send().await.expect(200);
    assert_eq!(head.header("upload-offset"), Some("3"));
    f.patch(&url, 3, "lo").header("x-signature", &token).send().await.expect(204);
    let row = &f.t.query("select owner_id from storage.objects").await[0];
    assert_eq!(row.get::<_, &str>(0), alice.id());
    // Without the right to replace
    assert_refused(&create(&name).header("x-signature", &token).send().await, 409, "The resource already exists");
    assert_refused(
        &f.patch(&url, 5, "").header("x-signature", &token).header("x-upsert", "true").send().await,
        409,
        "The resource already exists",
    );
}

#[tokio::test]
async fn pages_of_other_origins_may_use_the_protocol() {
    let f = Files::with_buckets().await;
    let preflight =
        f.t.request(Method::OPTIONS, "/storage/v1/upload/resumable/abc")
            .header("origin", "https://app.example")
            .header("access-control-request-method", "PATCH")
            .header("access-control-request-headers", "authorization,tus-resumable,upload-offset");
    let allowed = preflight.send().await.expect(204);
    for (name, value) in [
        ("tus-version", "1.0.0"),
        ("tus-extension", "creation,creation-with-upload,creation-defer-length,termination,expiration"),
        ("tus-max-size", "52428800"),
        ("access-control-allow-origin", "*"),
        ("access-control-allow-methods", "POST, HEAD, PATCH, OPTIONS, DELETE"),
        ("access-control-max-age", "86400"),
    ] {
        assert_eq!(allowed.header(name), Some(value));
    }
    let headers = allowed.header("access-control-allow-headers").unwrap().to_lowercase();
    for name in
        ["authorization", "apikey", "x-client-info", "x-upsert", "x-signature", "tus-resumable", "upload-metadata"]
    {
        assert!(headers.split(", ").any(|header| header == name), "{name}");
    }
    f.tus(Method::OPTIONS, PATH).send().await.expect(204);
    let created = f.service(f.creation("a", 1)).header("origin", "https://app.example").send().await.expect(201);
    let exposed = created.header("access-control-expose-headers").unwrap();
    for name in ["Location", "Upload-Offset", "Upload-Length", "Upload-Expires", "Tus-Complete", "Tus-Resumable"] {
        assert!(exposed.split(", ").any(|header| header == name), "{name}");
    }
}

#[tokio::test]
async fn the_rights_of_the_caller_are_tested_with_every_request() {
    let f = Files::with_buckets().await;
    f.t.migrate(
        "create policy typed on storage.objects for insert to authenticated
           with check (metadata ->> 'mimetype' = 'text/plain' and (metadata ->> 'contentLength')::int <= 10
             and storage.allow_any_operation(array['tus.upload.create', 'tus.upload.part', 'tus.upload.delete']))",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    assert_refused(&alice.sends(f.creation("big", 11)).send().await, 403, RLS);
    let typed = metadata(&[("bucketName", "files"), ("objectName", "image"), ("contentType", "image/png")]);
    let request = f.tus(Method::POST, PATH).header("upload-length", "1").header("upload-metadata", &typed);
    assert_refused(&alice.sends(request).send().await, 403, RLS);
    let url = url_of(&alice.sends(f.creation("a", 10)).send().await.expect(201));
    alice.sends(f.patch(&url, 0, "01234")).send().await.expect(204);
    alice.sends(f.tus(Method::HEAD, &url)).send().await.expect(200);
    f.t.migrate("drop policy typed on storage.objects").await;
    for request in [f.patch(&url, 5, "56789"), f.tus(Method::DELETE, &url)] {
        assert_refused(&alice.sends(request).send().await, 403, RLS);
    }
    alice.sends(f.tus(Method::HEAD, &url)).send().await.expect(403);
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    // An upsert needs the rights of one
    f.t.migrate("create policy anyone on storage.objects for insert to authenticated with check (true)").await;
    assert_refused(&alice.sends(f.patch(&url, 5, "56789").header("x-upsert", "true")).send().await, 403, RLS);
    alice.sends(f.patch(&url, 5, "56789")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "0123456789");
}

#[tokio::test]
async fn an_upload_belongs_to_the_user_who_created_it() {
    let f = Files::with_buckets().await;
    // Both may write every name
    f.t.migrate("create policy anyone on storage.objects to authenticated using (true) with check (true)").await;
    let (alice, mallory) = (f.t.member("alice@example.com").await, f.t.member("mallory@example.com").await);
    let url = url_of(&alice.sends(f.creation("a", 10)).send().await.expect(201));
    alice.sends(f.patch(&url, 0, "01234")).send().await.expect(204);
    let missing = "The file for this url was not found";
    let every = |member: &Member<'_>| {
        [f.patch(&url, 5, "XXXXX"), f.patch(&url, 0, "XXXXX"), f.tus(Method::DELETE, &url)]
            .map(|request| member.sends(request))
    };
    for request in every(&mallory) {
        assert_refused(&request.send().await, 404, missing);
    }
    mallory.sends(f.tus(Method::HEAD, &url)).send().await.expect(404);
    assert_eq!(f.anon(f.patch(&url, 5, "XXXXX")).send().await.status, 404);
    // The id with another object
    let id = url.rsplit('/').next().unwrap();
    let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(id).unwrap()).unwrap();
    for other in [
        decoded.replacen("files/", "site/", 1),
        decoded.replacen("/a/", "/b/", 1),
        decoded.replacen("/a/", "/x/../a/", 1),
    ] {
        let url = format!("{PATH}/{}", URL_SAFE_NO_PAD.encode(other));
        assert_refused(&alice.sends(f.patch(&url, 5, "56789")).send().await, 404, missing);
    }
    alice.sends(f.patch(&url, 5, "56789")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "0123456789");
}
