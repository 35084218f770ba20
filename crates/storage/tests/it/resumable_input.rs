//! Requests of the resumable protocol that are wrong, and what they leave behind.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use serde_json::json;

use super::helper::{Files, OWN_FOLDER, assert_error, streamed};
use super::resumable::{BYTES, assert_refused, metadata, object, url_of};

const PATH: &str = "/upload/resumable";

#[tokio::test]
async fn a_request_without_a_valid_token_is_refused_before_the_protocol() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 5).await;
    for request in [f.creation("b", 1), f.patch(&url, 0, "hello"), f.tus(Method::DELETE, &url)] {
        let refused = request.send().await;
        assert_error(&refused, 400, "403", "AccessDenied", "Invalid Compact JWS");
        assert_eq!(refused.header("access-control-allow-origin"), Some("*"));
    }
    f.tus(Method::HEAD, &url).send().await.expect(400);
    let broken = f.t.post("/storage/v1/upload/resumable").header("authorization", "Bearer broken").send().await;
    assert_error(&broken, 400, "403", "AccessDenied", "Invalid Compact JWS");
    assert_eq!(f.unfinished(), 2);
}

#[tokio::test]
async fn headers_of_another_form_are_named() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 5).await;
    let bare = f.post(PATH).header("upload-length", "1").header("upload-metadata", &object("b"));
    let refused = f.service(bare).send().await;
    assert_refused(&refused, 412, "Tus-Resumable Required");
    assert_eq!(refused.header("tus-version"), Some("1.0.0"));
    let post = || f.tus(Method::POST, PATH);
    let length = "Upload-Length or Upload-Defer-Length header required";
    for (request, status, text) in [
        (post().header("upload-metadata", &object("b")), 400, length),
        (
            post()
                .header("upload-length", "1")
                .header("upload-defer-length", "1")
                .header("upload-metadata", &object("b")),
            400,
            length,
        ),
        (post().header("upload-length", "-1").header("upload-metadata", &object("b")), 400, "Invalid upload-length"),
        (
            post().header("upload-defer-length", "2").header("upload-metadata", &object("b")),
            400,
            "Invalid upload-defer-length",
        ),
        (post().header("upload-length", "1"), 400, "Metadata header is required"),
        (post().header("upload-length", "1").header("upload-metadata", "a b c"), 400, "Invalid upload-metadata"),
        (f.creation("b", 1).header("content-type", "text/plain").body("x"), 400, "Invalid content-type"),
        (
            f.creation("b", 1).header("upload-concat", "partial"),
            501,
            "Concatenation is not supported: turn parallel uploads off",
        ),
        (f.tus(Method::PATCH, &url).header("content-type", BYTES).body("hello"), 403, "Upload-Offset header required"),
        (f.tus(Method::PATCH, &url).header("upload-offset", "0"), 403, "Content-Type header required"),
        (f.patch(&url, 0, "hello").header("upload-length", "x"), 400, "Invalid upload-length"),
        (f.tus(Method::PUT, PATH), 404, "Not found"),
        (f.tus(Method::GET, &url), 404, "Not found"),
        (f.tus(Method::PATCH, PATH), 404, "Not found"),
        (f.tus(Method::POST, &url), 404, "Not found"),
    ] {
        assert_refused(&f.service(request).send().await, status, text);
    }
    assert_eq!(f.unfinished(), 2, "only the first upload is there");
}

#[tokio::test]
async fn a_method_can_be_named_by_a_header() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 5).await;
    let request = f.tus(Method::POST, &url).header("x-http-method-override", "PATCH").header("upload-offset", "0");
    f.service(request.header("content-type", BYTES).body("hello")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "hello");
}

#[tokio::test]
async fn metadata_that_names_no_object_creates_nothing() {
    let f = Files::with_buckets().await;
    f.bucket("images", json!({ "allowed_mime_types": ["image/*"], "file_size_limit": 10 })).await;
    let create = |pairs: &[(&str, &str)], length: &str| {
        let request = f.tus(Method::POST, PATH).header("upload-length", length);
        f.service(request.header("upload-metadata", &metadata(pairs))).send()
    };
    let required = "Metadata header is required";
    for (pairs, length, status, text) in [
        (&[("objectName", "a")][..], "1", 400, required),
        (&[("bucketName", "files")], "1", 400, required),
        (&[("bucketName", "files"), ("objectName", "")], "1", 400, required),
        (&[("bucketName", "a/b"), ("objectName", "a")], "1", 400, "Bucket name invalid"),
        (&[("bucketName", ".."), ("objectName", "a")], "1", 400, "Bucket name invalid"),
        (&[("bucketName", "files"), ("objectName", "../a")], "1", 400, "Invalid key: ../a"),
        (&[("bucketName", "files"), ("objectName", "a/\u{0}")], "1", 400, "Invalid key: a/\u{0}"),
        (&[("bucketName", "files"), ("objectName", "ä")], "1", 400, "Invalid key: ä"),
        (&[("bucketName", "none"), ("objectName", "a")], "1", 404, "Bucket not found"),
        (&[("bucketName", "files"), ("objectName", "a")], "52428801", 413, "Maximum size exceeded"),
        (
            &[("bucketName", "images"), ("objectName", "a"), ("contentType", "image/png")],
            "11",
            413,
            "Maximum size exceeded",
        ),
        (
            &[("bucketName", "images"), ("objectName", "a"), ("contentType", "text/plain")],
            "1",
            415,
            "mime type text/plain is not supported",
        ),
        (
            &[("bucketName", "images"), ("objectName", "a")],
            "1",
            415,
            "mime type application/octet-stream is not supported",
        ),
    ] {
        assert_refused(&create(pairs, length).await, status, text);
    }
    let long = "x".repeat(2501);
    assert_refused(
        &create(&[("bucketName", "files"), ("objectName", &long)], "1").await,
        400,
        &format!("Invalid key: {long}"),
    );
    // Bytes that are no text
    let bytes = format!("bucketName {},objectName {}", STANDARD.encode("files"), STANDARD.encode([0xff, 0xfe]));
    let request = f.tus(Method::POST, PATH).header("upload-length", "1").header("upload-metadata", &bytes);
    assert_refused(&f.service(request).send().await, 400, required);
    f.has_files(0).await;
}

#[tokio::test]
async fn ids_of_another_form_or_of_no_upload_are_refused() {
    let f = Files::with_buckets().await;
    let version = "5f0e7a0c-52b1-4a3f-9c55-0f0a6a9c3b11";
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let traversal = encoded(&format!("files/a/../../{version}"));
    for (id, status, text) in [
        ("x".to_owned(), 400, "Invalid upload id"),
        ("a/b".to_owned(), 400, "Invalid upload id"),
        ("..%2F..%2Fetc".to_owned(), 400, "Invalid upload id"),
        (encoded("files/a/version"), 400, "Invalid upload id"),
        (encoded("files/a/../../journal/x"), 400, "Invalid upload id"),
        (encoded(&format!("files/a/{version}")), 404, "The file for this url was not found"),
        (traversal, 404, "The file for this url was not found"),
    ] {
        let url = format!("{PATH}/{id}");
        for request in [f.patch(&url, 0, "x"), f.tus(Method::DELETE, &url)] {
            assert_refused(&f.service(request).send().await, status, text);
        }
        f.service(f.tus(Method::HEAD, &url)).send().await.expect(status);
    }
    f.has_files(0).await;
}

#[tokio::test]
async fn offsets_and_lengths_that_lie_change_nothing() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 10).await;
    f.service(f.patch(&url, 0, "01234")).send().await.expect(204);
    for offset in [0, 4, 6, 10, 1_000_000] {
        let refused = f.service(f.patch(&url, offset, "56789")).send().await;
        assert_refused(&refused, 409, "Upload-Offset conflict");
        assert_eq!(refused.header("connection"), Some("close"));
    }
    assert_refused(&f.service(f.patch(&url, 5, "56789X")).send().await, 413, "upload's size exceeded");
    // The same without a declared length: nothing of it stays
    let chunks = || streamed(futures_util::stream::iter([b"56".to_vec(), b"789".to_vec(), b"X".to_vec()]));
    assert_refused(&f.service(f.patch(&url, 5, chunks())).send().await, 413, "upload's size exceeded");
    let head = f.service(f.tus(Method::HEAD, &url)).send().await.expect(200);
    assert_eq!(head.header("upload-offset"), Some("5"));
    f.service(f.patch(&url, 5, "56789")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "0123456789");
    let longer = f.service(f.creation("b", 2).header("content-type", BYTES).body("123")).send().await;
    assert_refused(&longer, 413, "upload's size exceeded");
    let request = f.creation("b", 2).header("content-type", BYTES).body(chunks());
    assert_refused(&f.service(request).send().await, 413, "upload's size exceeded");
    f.has_files(2).await;
}

#[tokio::test]
async fn a_length_that_follows_is_limited_like_any_other() {
    let f = Files::with_buckets().await;
    f.bucket("small", json!({ "file_size_limit": 6 })).await;
    let named = metadata(&[("bucketName", "small"), ("objectName", "a")]);
    let creation = || f.tus(Method::POST, PATH).header("upload-defer-length", "1").header("upload-metadata", &named);
    let url = url_of(&f.service(creation()).send().await.expect(201));
    f.service(f.patch(&url, 0, "0123")).send().await.expect(204);
    for request in [
        f.patch(&url, 4, "4567"),
        f.patch(&url, 4, streamed(futures_util::stream::iter([b"45".to_vec(), b"67".to_vec()]))),
        creation().header("content-type", BYTES).body("0123456"),
    ] {
        assert_refused(&f.service(request).send().await, 413, "upload's size exceeded");
    }
    let declared = f.patch(&url, 4, "4567").header("upload-length", "8");
    assert_refused(&f.service(declared).send().await, 413, "Maximum size exceeded");
    f.service(f.patch(&url, 4, "45").header("upload-length", "6")).send().await.expect(204);
    assert_eq!(f.content("small/a").await, "012345");
}

#[tokio::test]
async fn a_user_has_a_bounded_number_of_unfinished_uploads() {
    let mut f = Files::with(|settings| settings.max_pending_uploads = 2).await;
    f.bucket("files", json!({})).await;
    f.t.migrate(OWN_FOLDER).await;
    let (alice, bob) = (f.t.member("alice@example.com").await, f.t.member("bob@example.com").await);
    let [alice_id, bob_id] = [&alice, &bob].map(|member| member.id().to_string());
    let [alice_token, bob_token] = [&alice, &bob].map(|member| member.access_token().to_owned());
    let create = |f: &Files, id: &str, token: &str, name: &str| f.creation(&format!("{id}/{name}"), 5).bearer(token);
    let first = url_of(&create(&f, &alice_id, &alice_token, "a").send().await.expect(201));
    let second = url_of(&create(&f, &alice_id, &alice_token, "b").send().await.expect(201));
    let refused = create(&f, &alice_id, &alice_token, "c").send().await;
    assert_refused(&refused, 429, "Too many unfinished uploads: finish or terminate some of them first");
    assert_eq!(f.unfinished(), 4);
    create(&f, &bob_id, &bob_token, "a").send().await.expect(201);
    for name in ["d", "e", "f"] {
        f.created(name, 5).await;
    }
    f.t.restart().await;
    create(&f, &alice_id, &alice_token, "c").send().await.expect(429);
    f.patch(&first, 0, "hello").bearer(&alice_token).send().await.expect(204);
    let third = url_of(&create(&f, &alice_id, &alice_token, "c").send().await.expect(201));
    create(&f, &alice_id, &alice_token, "g").send().await.expect(429);
    f.tus(Method::DELETE, &second).bearer(&alice_token).send().await.expect(204);
    create(&f, &alice_id, &alice_token, "g").send().await.expect(201);
    f.patch(&third, 0, "hello").bearer(&alice_token).send().await.expect(204);
}
