//! Uploads: raw bodies and forms, replacement, limits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::helper::{Files, assert_error, streamed};
use super::resumable::{BYTES, assert_refused, metadata};

/// Returns a form as the official client sends it.
fn form(parts: &[(&str, &str, &str)]) -> (String, Vec<u8>) {
    let mut body = String::new();
    for (name, headers, content) in parts {
        body.push_str(&format!(
            "--BOUNDARY\r\nContent-Disposition: form-data; name=\"{name}\"{headers}\r\n\r\n{content}\r\n"
        ));
    }
    body.push_str("--BOUNDARY--\r\n");
    ("multipart/form-data; boundary=BOUNDARY".into(), body.into_bytes())
}

const FILE: &str = "; filename=\"x.txt\"\r\nContent-Type: text/plain";

#[tokio::test]
async fn a_raw_body_is_stored_with_its_headers() {
    let f = Files::with_buckets().await;
    let request = f
        .post("/object/files/u1/me.txt")
        .header("content-type", "text/plain")
        .header("cache-control", "max-age=3600")
        .header("x-robots-tag", "noindex")
        .header("x-metadata", &STANDARD.encode(r#"{"album":"x"}"#));
    let stored = f.service(request.body("hello")).send().await.expect(200).json();
    assert_eq!(stored["Key"], "files/u1/me.txt");
    let row = &f.t.query("select id::text, metadata, user_metadata, owner_id, version from storage.objects").await[0];
    assert_eq!(stored["Id"], row.get::<_, String>(0));
    let mut metadata: Value = row.get(1);
    assert!(metadata["lastModified"].take().as_str().unwrap().ends_with('Z'));
    let expected = json!({
        "eTag": "\"5d41402abc4b2a76b9719d911017c592\"", "size": 5, "mimetype": "text/plain", "cacheControl": "max-age=3600",
        "lastModified": null, "contentLength": 5, "httpStatusCode": 200, "xRobotsTag": "noindex",
    });
    assert_eq!(metadata, expected);
    assert_eq!(row.get::<_, Value>(2), json!({ "album": "x" }));
    assert_eq!(row.get::<_, Option<String>>(3), None);
    let version: String = row.get(4);
    assert_eq!(f.place.read(&format!("files/u1/me.txt/{version}")).await, b"hello");
    f.has_files(1).await;
    for (request, sent) in [(f.get("/object/files/u1/me.txt"), "noindex"), (f.head("/object/files/u1/me.txt"), "none")]
    {
        assert_eq!(f.service(request).send().await.expect(200).header("x-robots-tag"), Some(sent));
    }
}

#[tokio::test]
async fn a_form_is_stored_with_its_fields_in_any_order() {
    let f = Files::with_buckets().await;
    let fields = [("cacheControl", "", "3600"), ("metadata", "", r#"{"a":1}"#), ("", FILE, "hello")];
    // The type is known before the content, and stays
    let reversed = [
        ("", FILE, "hello"),
        ("userMetadata", "", r#"{"a":1}"#),
        ("cacheControl", "", "3600"),
        ("contentType", "", "text/html"),
    ];
    for (name, parts) in [("a", &fields[..]), ("b", &reversed)] {
        let (kind, body) = form(parts);
        let request =
            f.post(&format!("/object/files/{name}")).header("content-type", &kind).header("x-upsert", "false");
        f.service(request.body(body)).send().await.expect(200);
        let info = f.service(f.get(&format!("/object/info/files/{name}"))).send().await.expect(200).json();
        assert_eq!(
            (&info["content_type"], &info["cache_control"], &info["size"]),
            (&json!("text/plain"), &json!("max-age=3600"), &json!(5))
        );
        assert_eq!(info["metadata"], json!({ "a": 1 }));
    }
    let (kind, body) = form(&[("contentType", "", "image/png"), ("file", FILE, "x")]);
    f.service(f.post("/object/files/c").header("content-type", &kind).body(body)).send().await.expect(200);
    let info = f.service(f.get("/object/info/files/c")).send().await.expect(200).json();
    assert_eq!(
        (&info["content_type"], &info["cache_control"], &info["metadata"]),
        (&json!("image/png"), &json!("no-cache"), &json!({}))
    );
}

#[tokio::test]
async fn policies_see_metadata_that_follow_the_file_of_a_form() {
    let f = Files::with_buckets().await;
    f.t.migrate("create policy plain on storage.objects for insert to authenticated with check (user_metadata -> 'approved' is null)")
        .await;
    let alice = f.t.member("alice@example.com").await;
    for (metadata, status) in [(r#"{"approved":true}"#, 400), (r#"{"album":"x"}"#, 200)] {
        let (kind, body) = form(&[("", FILE, "hello"), ("metadata", "", metadata)]);
        let request = f.post("/object/files/a").header("content-type", &kind);
        alice.sends(request.body(body)).send().await.expect(status);
    }
    f.has_files(1).await;
}

#[tokio::test]
async fn a_form_without_a_file_or_with_two_stores_nothing() {
    let f = Files::with_buckets().await;
    for (parts, message) in [
        (&[("cacheControl", "", "1")][..], "No content provided"),
        (&[("a", FILE, "x"), ("b", FILE, "y")], "reach files limit"),
    ] {
        let (kind, body) = form(parts);
        let refused = f.service(f.post("/object/files/a").header("content-type", &kind).body(body)).send().await;
        assert_error(&refused, 400, "400", "InvalidRequest", message);
    }
    let (kind, mut body) = form(&[("a", FILE, "x")]);
    body.truncate(body.len() - 16);
    let refused = f.service(f.post("/object/files/a").header("content-type", &kind).body(body)).send().await;
    assert_error(&refused, 400, "400", "InvalidRequest", "Unexpected end of form");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_files(0).await;
}

#[tokio::test]
async fn an_object_is_replaced_only_if_the_request_says_so() {
    let f = Files::with_buckets().await;
    let first = f.store("files/a", "one").await.expect(200).json();
    let refused = f.store("files/a", "two").await;
    assert_error(&refused, 400, "409", "KeyAlreadyExists", "The resource already exists");
    assert_eq!(f.content("files/a").await, "one");

    let upsert = f.post("/object/files/a").header("x-upsert", "true").header("content-type", "text/plain");
    let second = f.service(upsert.body("two")).send().await.expect(200).json();
    assert_eq!(first["Id"], second["Id"], "the row is kept");
    assert_eq!(f.content("files/a").await, "two");
    f.service(f.put("/object/files/a").body("three")).send().await.expect(200);
    f.service(f.put("/object/files/new").body("four")).send().await.expect(200);
    assert_eq!((f.content("files/a").await, f.content("files/new").await), ("three".into(), "four".into()));
    // The versions that were replaced are deleted
    f.has_files(2).await;
}

#[tokio::test]
async fn the_limits_of_the_bucket_apply_in_every_mode() {
    let f = Files::with(|settings| settings.file_size_limit = 100_000).await;
    f.bucket("small", json!({ "file_size_limit": 10, "allowed_mime_types": ["text/plain"] })).await;
    f.bucket("large", json!({})).await;
    let too_large = "The object exceeded the maximum allowed size";
    let declared = f.store("small/a", "12345678901").await;
    assert_error(&declared, 400, "413", "EntityTooLarge", too_large);
    let chunked = || streamed(futures_util::stream::iter((0..200).map(|_| vec![b'x'; 1000])));
    for bucket in ["small", "large"] {
        let request = f.post(&format!("/object/{bucket}/a")).header("content-type", "text/plain").body(chunked());
        assert_error(&f.service(request).send().await, 400, "413", "EntityTooLarge", too_large);
    }
    let (kind, body) = form(&[("", FILE, &"x".repeat(11))]);
    let in_form = f.service(f.post("/object/small/a").header("content-type", &kind).body(body)).send().await;
    assert_error(&in_form, 400, "413", "EntityTooLarge", too_large);
    let kind = f.service(f.post("/object/small/a").header("content-type", "image/png").body("x")).send().await;
    assert_error(&kind, 400, "415", "InvalidMimeType", "mime type image/png is not supported");
    let malformed = f.service(f.post("/object/small/a").header("content-type", "text").body("x")).send().await;
    assert_error(&malformed, 400, "415", "InvalidMimeType", "Invalid Content-Type header");
    let malformed = f.service(f.post("/bucket").header("content-type", "garbage").body(r#"{"name":"b"}"#)).send().await;
    assert_error(&malformed, 400, "415", "InvalidMimeType", "Invalid Content-Type header");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_files(0).await;

    f.store("small/a", "1234567890").await.expect(200);
    // The mark of an empty folder has no type and no content
    let mark = f
        .service(f.post("/object/small/f/.emptyFolderPlaceholder").header("content-type", "application/json").body(""))
        .send()
        .await;
    mark.expect(200);
    let filled = f.service(f.post("/object/small/g/.emptyFolderPlaceholder").body("x")).send().await;
    assert_error(&filled, 400, "413", "EntityTooLarge", too_large);
}

#[tokio::test]
async fn a_stalled_upload_is_ended_and_leaves_nothing() {
    let f = Files::with(|settings| settings.idle_timeout = std::time::Duration::from_millis(200)).await;
    f.bucket("files", json!({})).await;
    let stalled = futures_util::stream::iter([vec![b'x'; 1000]]).chain(futures_util::stream::pending());
    let request = f.post("/object/files/a").body(streamed(stalled));
    let refused = f.service(request).send().await;
    assert_error(&refused, 408, "408", "RequestTimeout", "The upload sent nothing for too long");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_files(0).await;
}

#[tokio::test]
async fn a_slow_upload_is_ended_and_leaves_nothing() {
    let f = Files::with(|settings| {
        settings.min_upload_rate = 1 << 40;
        settings.min_rate_after = std::time::Duration::from_millis(50);
    })
    .await;
    f.bucket("files", json!({})).await;
    // It is never idle, and its rate is too low from that time on
    let steady = futures_util::stream::repeat(vec![b'x'; 10]).then(async |chunk| {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        chunk
    });
    let refused = f.service(f.post("/object/files/a").body(streamed(steady))).send().await;
    assert_error(&refused, 408, "408", "RequestTimeout", "The request arrived too slowly");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_files(0).await;
}

#[tokio::test]
async fn fields_that_do_not_end_in_time_are_rejected() {
    let f = Files::with(|settings| settings.fields_timeout = std::time::Duration::from_millis(300)).await;
    f.bucket("files", json!({})).await;
    let slow = "The request arrived too slowly";
    let endless =
        |begin: &[u8]| streamed(futures_util::stream::iter([begin.to_vec()]).chain(futures_util::stream::pending()));
    let request = f.post("/object/list/files").header("content-type", "application/json");
    let refused = f.service(request.body(endless(b"{"))).send().await;
    assert_error(&refused, 408, "408", "RequestTimeout", slow);
    let (kind, before) = form(&[("cacheControl", "", "1")]);
    let (_, behind) = form(&[("", FILE, "hello"), ("cacheControl", "", "1")]);
    for body in [&before[..before.len() - 14], &behind[..behind.len() - 14]] {
        let request = f.post("/object/files/a").header("content-type", &kind).body(endless(body));
        assert_error(&f.service(request).send().await, 408, "408", "RequestTimeout", slow);
    }
    f.has_files(0).await;
}

#[tokio::test]
async fn uploads_of_one_key_at_the_same_time_leave_one_whole_object() {
    let f = Files::with_buckets().await;
    let contents: Vec<String> = (0..8).map(|n| format!("{n}").repeat(200_000)).collect();
    let uploads = contents
        .iter()
        .map(|content| f.service(f.post("/object/files/a").header("x-upsert", "true").body(content.clone())).send());
    for stored in futures_util::future::join_all(uploads).await {
        stored.expect(200);
    }
    let content = f.content("files/a").await;
    assert!(contents.contains(&content));
    f.has_files(1).await;
    // Without replacement exactly one of them is stored
    let uploads = contents.iter().map(|content| f.store("files/b", content));
    let statuses: Vec<u16> = futures_util::future::join_all(uploads).await.iter().map(|stored| stored.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    f.has_files(2).await;
}

#[tokio::test]
async fn content_that_is_not_of_its_declared_type_is_rejected_where_types_are_sniffed() {
    let allowed = Files::with_buckets().await;
    let f = Files::with(|settings| settings.sniff_mime_types = true).await;
    f.bucket("files", json!({})).await;
    let png = b"\x89PNG\r\n\x1a\n".to_vec();
    let put = |f: &Files, name: &str, kind: &str, content: Vec<u8>| {
        f.service(f.post(&format!("/object/files/{name}")).header("content-type", kind).body(content))
    };
    put(&f, "a", "image/png", png.clone()).send().await.expect(200);
    put(&f, "b", "image/png", Vec::new()).send().await.expect(200);
    put(&f, "c", "text/plain", png.clone()).send().await.expect(200);
    f.has_files(3).await;
    let disguised = put(&f, "d", "image/png", b"<html>".to_vec()).send().await;
    assert_error(&disguised, 400, "415", "InvalidMimeType", "the content does not begin as image/png does");
    let request = f.tus(http::Method::POST, "/upload/resumable").header("upload-length", "6").header(
        "upload-metadata",
        &metadata(&[("bucketName", "files"), ("objectName", "d"), ("contentType", "image/png")]),
    );
    let request = request.header("content-type", BYTES).body("<html>");
    assert_refused(&f.service(request).send().await, 415, "the content does not begin as image/png does");
    // A copy with another type is content of that type
    let retyped = json!({ "bucketId": "files", "sourceKey": "a", "destinationKey": "e", "copyMetadata": false, "metadata": { "mimetype": "image/gif" } });
    let request = f.post("/object/copy").header("x-upsert", "true").json(&retyped);
    let copied = f.service(request).send().await;
    assert_error(&copied, 400, "415", "InvalidMimeType", "the content does not begin as image/gif does");
    f.has_files(3).await;
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 3);
    put(&allowed, "d", "image/png", b"<html>".to_vec()).send().await.expect(200);
    allowed.has_files(1).await;
}
