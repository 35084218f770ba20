//! The S3 protocol: signatures, bodies that are not what was signed, and bad input. The clients'
//! tests have the operations themselves.

use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use http::Method;
use portico_base::{AllowedOrigins, Secret};
use portico_storage::{S3AccessKey, S3Settings, StorageSettings};
use portico_testkit::{Request, TestResponse};
use serde_json::json;
use time::macros::format_description;

use crate::helper::{Files, streamed};

const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "a secret of sufficient length";

/// A request to be signed.
#[derive(Clone)]
pub struct Signed<'a> {
    pub method: Method,
    pub path: &'a str,
    /// In canonical order.
    pub query: &'a str,
    /// Signed headers besides host, date and hash.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: Vec<u8>,
    /// The hash of the body, or a word in its place; `None`: the hash.
    pub hash: Option<&'a str>,
    /// The access token of the user who signs with the anon key; `None`: the access key signs.
    pub token: Option<&'a str>,
}

/// Returns a request without a body.
pub fn request<'a>(method: Method, path: &'a str) -> Signed<'a> {
    Signed { method, path, query: "", headers: &[], body: Vec::new(), hash: None, token: None }
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub fn hash(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

/// As [`start_with`], with the usual settings.
pub async fn start() -> Files {
    start_with(|_| {}).await
}

/// Starts a server with changed settings, the protocol and the bucket `files`.
pub async fn start_with(change: impl FnOnce(&mut StorageSettings)) -> Files {
    let key = S3AccessKey { id: KEY.into(), secret: Secret::new(SECRET) };
    let settings = S3Settings { region: "local".into(), access_keys: vec![key], pages: None };
    let f = Files::with(|storage| {
        storage.s3 = Some(settings);
        change(storage);
    })
    .await;
    f.bucket("files", json!({})).await;
    f
}

impl Signed<'_> {
    /// Signs the request with the time of the server.
    pub fn sign(&self, f: &Files) -> Request {
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let date = f.t.clock().now().format(&format).unwrap();
        let host = f.t.base().strip_prefix("http://").unwrap();
        let hash_of_body = hash(&self.body);
        let payload = self.hash.unwrap_or(&hash_of_body);
        let mut headers = vec![("host", host), ("x-amz-content-sha256", payload), ("x-amz-date", &date)];
        headers.extend_from_slice(self.headers);
        headers.extend(self.token.map(|token| ("x-amz-security-token", token)));
        let secret = if self.token.is_some() { f.t.api_keys().anon_jwt() } else { SECRET };
        headers.sort_unstable();
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let path = format!("/storage/v1/s3{}", self.path);
        let canonical = format!("{}\n{path}\n{}\n{lines}\n{names}\n{payload}", self.method, self.query);
        let scope = format!("{}/local/s3/aws4_request", &date[..8]);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hash(canonical.as_bytes()));
        let sign = |key: &[u8], text: &str| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
        };
        let key = [&date[..8], "local", "s3", "aws4_request"]
            .iter()
            .fold(format!("AWS4{secret}").into_bytes(), |key, part| sign(&key, part));
        let signature = hex::encode(sign(&key, &text));
        let mut signed = f.t.request(self.method.clone(), &format!("{path}?{}", self.query)).header(
            "authorization",
            &format!("AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"),
        );
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            signed = signed.header(name, value);
        }
        signed.body(self.body.clone())
    }

    pub async fn send(&self, f: &Files) -> TestResponse {
        self.sign(f).send().await
    }
}

/// Asserts that a response is an error of the protocol.
#[track_caller]
pub fn assert_refused(response: &TestResponse, status: u16, code: &str) {
    let text = response.text();
    assert_eq!((response.status, text.contains(&format!("<Code>{code}</Code>"))), (status, true), "{text}");
}

/// Begins an upload in parts of `/files/a`. Returns its id.
pub async fn begin(f: &Files) -> String {
    upload_id(&Signed { query: "uploads=", ..request(Method::POST, "/files/a") }.send(f).await)
}

/// Returns the id of an upload that has begun.
pub fn upload_id(answer: &TestResponse) -> String {
    answer.text().split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned()
}

/// Returns the ETag of the newest part with a number.
pub async fn etag_of(f: &Files, number: u16) -> String {
    let newest = format!(
        "select etag from storage.s3_multipart_uploads_parts where part_number = {number} order by created_at desc limit 1"
    );
    f.t.query(&newest).await[0].get(0)
}

/// Returns the request that completes the upload of `/files/a` which the query names.
pub fn complete<'a>(query: &'a str, parts: &[(u16, &str)]) -> Signed<'a> {
    let part =
        |(number, etag): &(u16, &str)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    let parts: String = parts.iter().map(part).collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into_bytes();
    Signed { query, body, ..request(Method::POST, "/files/a") }
}

/// Returns the request that stores a text.
pub fn put<'a>(path: &'a str, body: &str) -> Signed<'a> {
    Signed { body: body.as_bytes().to_vec(), ..request(Method::PUT, path) }
}

#[tokio::test]
async fn a_request_without_a_valid_signature_is_refused() {
    let f = start().await;
    put("/files/a", "content").send(&f).await.expect(200);
    let without = f.get("/s3/files/a").send().await;
    assert_eq!(
        (without.status, without.header("content-type"), without.text().as_str()),
        (
            403,
            Some("application/xml; charset=utf-8"),
            "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?><Error xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Resource>files/a</Resource><Code>AccessDenied</Code><Message>Missing signature</Message></Error>"
        )
    );
    // The keys of other services are no signature
    assert_refused(&f.service(f.get("/s3/files/a")).send().await, 403, "AccessDenied");
    assert_eq!(f.head("/s3/files/a").send().await.expect(403).text(), "");
    let get = request(Method::GET, "/files/a");
    assert_eq!(get.send(&f).await.expect(200).text(), "content");
    let unsigned = get.sign(&f).header("x-amz-security-token", "x").send().await;
    assert_refused(&unsigned, 403, "AccessDenied");
    let late = get.sign(&f);
    f.t.clock().advance(time::Duration::minutes(16));
    assert_refused(&late.send().await, 403, "RequestTimeTooSkewed");
}

#[tokio::test]
async fn a_body_that_is_not_what_was_signed_leaves_nothing() {
    let f = start().await;
    let other = hash(b"other");
    let chunked = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    let of_five = [("x-amz-decoded-content-length", "5"), ("x-amz-trailer", "x-amz-checksum-crc32")];
    for (hash, headers, body, status, code) in [
        (Some(other.as_str()), &[][..], "content", 400, "XAmzContentSHA256Mismatch"),
        (None, &[("x-amz-checksum-crc32", "AAAAAA==")], "content", 400, "BadDigest"),
        (None, &[("x-amz-checksum-crc32c", "AAAAAA==")], "content", 400, "BadDigest"),
        (None, &[("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")], "content", 400, "BadDigest"),
        (None, &[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], "content", 400, "BadDigest"),
        (Some(chunked), &of_five, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", 400, "BadDigest"),
        (Some(chunked), &of_five, "5\r\nhello\r\n0\r\n\r\n", 400, "BadDigest"),
        (Some(chunked), &of_five, "4\r\nhell\r\n0\r\n\r\n", 400, "IncompleteBody"),
        (Some(chunked), &of_five, "5\r\nhello\r\n", 400, "IncompleteBody"),
        (Some(chunked), &of_five, "5\r\nhelloo\r\n0\r\n\r\n", 400, "InvalidRequest"),
        (Some(chunked), &[], "5\r\nhello\r\n0\r\n\r\n", 400, "MissingContentLength"),
        (Some("STREAMING-OTHER"), &[], "x", 400, "InvalidArgument"),
    ] {
        let request = Signed { hash, headers, ..put("/files/a", body) };
        assert_refused(&request.send(&f).await, status, code);
    }
    let long = format!("{}\r\n", "0".repeat(300));
    let request = Signed { hash: Some(chunked), headers: &of_five, ..put("/files/a", &long) };
    assert_refused(&request.send(&f).await, 413, "EntityTooLarge");
    f.has_files(0).await;
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    for (name, value) in [("crc32", "NhCmhg=="), ("crc32c", "mnG7TA=="), ("crc64nvme", "M3eFcAZSQlc=")] {
        let trailer = format!("x-amz-checksum-{name}");
        let good = format!("5\r\nhello\r\n0\r\n{trailer}:{value}\r\n\r\n");
        let headers = &[("x-amz-decoded-content-length", "5"), ("x-amz-trailer", trailer.as_str())];
        Signed { hash: Some(chunked), headers, ..put("/files/a", &good) }.send(&f).await.expect(200);
        assert_eq!(f.content("files/a").await, "hello");
        let other = Signed { hash: Some(chunked), headers, ..put("/files/a", &good.replace("hello", "other")) };
        assert_refused(&other.send(&f).await, 400, "BadDigest");
    }
}

#[tokio::test]
async fn an_object_is_replaced_on_condition_of_its_version() {
    let f = start().await;
    let put_if =
        |etag: &'static [(&'static str, &'static str)], body: &str| Signed { headers: etag, ..put("/files/a", body) };
    let of_one = &[("if-match", "\"f97c5d29941bfb1b2fdab0874906ab82\"")];
    assert_refused(&put_if(of_one, "two").send(&f).await, 404, "NoSuchKey");
    put("/files/a", "one").send(&f).await.expect(200);
    assert_refused(&put_if(&[("if-match", "\"0\"")], "two").send(&f).await, 412, "PreconditionFailed");
    // Both of them have seen the same version
    let contenders = [put_if(of_one, "two"), put_if(of_one, "three")];
    let outcomes = futures_util::future::join_all(contenders.iter().map(|put| put.send(&f))).await;
    let mut statuses: Vec<u16> = outcomes.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
    let winner = if outcomes[0].status == 200 { "two" } else { "three" };
    assert_eq!(f.content("files/a").await, winner);
    put_if(&[("if-match", "*")], "four").send(&f).await.expect(200);
    let both = &[("if-match", "*"), ("if-none-match", "*")];
    assert_refused(&put_if(both, "five").send(&f).await, 501, "NotImplemented");
    assert_eq!(f.content("files/a").await, "four");
    f.has_files(1).await;
}

#[tokio::test]
async fn an_object_is_read_as_its_only_part() {
    let f = start().await;
    put("/files/a", "hello").send(&f).await.expect(200);
    f.store("files/empty", "").await.expect(200);
    for method in [Method::GET, Method::HEAD] {
        let part = Signed { query: "partNumber=1", ..request(method.clone(), "/files/a") }.send(&f).await.expect(206);
        assert_eq!((part.header("content-range"), part.header("content-length")), (Some("bytes 0-4/5"), Some("5")));
        let empty = Signed { query: "partNumber=1", ..request(method.clone(), "/files/empty") }.send(&f).await;
        assert_eq!((empty.status, empty.header("content-range")), (200, None));
        Signed { query: "partNumber=2", ..request(method, "/files/a") }.send(&f).await.expect(416);
    }
    for (query, headers, status, code) in [
        ("partNumber=2", &[][..], 416, "InvalidPartNumber"),
        ("partNumber=0", &[], 400, "InvalidArgument"),
        ("partNumber=x", &[], 400, "InvalidArgument"),
        ("partNumber=1", &[("range", "bytes=0-1")], 400, "InvalidRequest"),
    ] {
        let part = Signed { query, headers, ..request(Method::GET, "/files/a") };
        assert_refused(&part.send(&f).await, status, code);
    }
}

#[tokio::test]
async fn documents_that_do_not_arrive_take_bounded_memory() {
    let f = start_with(|storage| storage.upload_wait = Duration::from_millis(100)).await;
    let delete = Signed {
        query: "delete=",
        body: b"<Delete><Object><Key>a</Key></Object></Delete>".to_vec(),
        hash: Some("UNSIGNED-PAYLOAD"),
        ..request(Method::POST, "/files")
    };
    delete.send(&f).await.expect(200);
    // Half of the memory, which is the part of one address
    let stalled = (0..8).map(|_| tokio::spawn(delete.sign(&f).body(streamed(futures_util::stream::pending())).send()));
    let stalled: Vec<_> = stalled.collect();
    loop {
        let response = delete.send(&f).await;
        if response.status != 200 {
            assert_refused(&response, 429, "SlowDown");
            break;
        }
    }
    stalled.iter().for_each(tokio::task::JoinHandle::abort);
    while delete.send(&f).await.status != 200 {}
}

#[tokio::test]
async fn names_and_parameters_that_are_not_possible_are_refused() {
    let f = start().await;
    let long = format!("/files/{}", "x".repeat(2501));
    for (path, code) in [
        ("/files/a/../b", "InvalidKey"),
        ("/files/a/./b", "InvalidKey"),
        ("/files/%00", "InvalidKey"),
        ("/files/a%0Ab", "InvalidKey"),
        ("/files/%C3%A4", "InvalidKey"),
        ("/files/a%CC%88", "InvalidKey"),
        (long.as_str(), "KeyTooLongError"),
    ] {
        // A client would not send some of these as they are
        let response = put(path, "x").send(&f).await;
        assert!(matches!(response.status, 400 | 403), "{path} {}", response.text());
        assert!(response.status == 403 || response.text().contains(code), "{path} {}", response.text());
    }
    for (method, path, query, status, code) in [
        (Method::PUT, "/files/a", "tagging=", 501, "NotImplemented"),
        (Method::GET, "/files/a", "acl=", 501, "NotImplemented"),
        (Method::GET, "/files", "policy=", 501, "NotImplemented"),
        (Method::GET, "/files", "versions=", 501, "NotImplemented"),
        (Method::DELETE, "/files", "lifecycle=", 501, "NotImplemented"),
        (Method::PUT, "/files", "cors=", 501, "NotImplemented"),
        (Method::POST, "/files/a", "restore=", 501, "NotImplemented"),
        (Method::GET, "/files", "list-type=3", 400, "InvalidArgument"),
        (Method::GET, "/files", "list-type=2&max-keys=x", 400, "InvalidArgument"),
        (Method::GET, "/files", "continuation-token=x&list-type=2", 400, "InvalidParameter"),
        (Method::PUT, "/files/a", "partNumber=0&uploadId=x", 400, "InvalidArgument"),
        (Method::PUT, "/files/a", "partNumber=10001&uploadId=x", 400, "InvalidArgument"),
        (Method::PUT, "/files/a", "partNumber=1&uploadId=..%2Fx", 404, "NoSuchUpload"),
        (Method::PATCH, "/files/a", "", 405, "MethodNotAllowed"),
        (Method::GET, "/missing", "", 404, "NoSuchBucket"),
    ] {
        let body = if method == Method::PUT { b"x".to_vec() } else { Vec::new() };
        let response = Signed { query, body, ..request(method, path) }.send(&f).await;
        assert_refused(&response, status, code);
    }
    f.has_files(0).await;
}

#[tokio::test]
async fn bodies_that_are_not_their_document_are_malformed() {
    let f = start().await;
    let bomb = format!(
        "<!DOCTYPE Delete [<!ENTITY a \"{}\">]><Delete><Object><Key>&a;</Key></Object></Delete>",
        "x".repeat(100)
    );
    let many = format!("<Delete>{}</Delete>", "<Object><Key>a</Key></Object>".repeat(1001));
    for body in ["", "x", "<Delete/>", "<Delete><Object/></Delete>", "<Other/>", &bomb, &many, "<Delete>"] {
        let delete = Signed { query: "delete=", body: body.as_bytes().to_vec(), ..request(Method::POST, "/files") };
        assert_refused(&delete.send(&f).await, 400, "MalformedXML");
    }
    let large = "x".repeat(4 * 1024 * 1024 + 1);
    let delete = Signed { query: "delete=", body: large.into_bytes(), ..request(Method::POST, "/files") };
    assert_refused(&delete.send(&f).await, 413, "EntityTooLarge");
    for body in [
        "<CompleteMultipartUpload/>",
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
        "<CompleteMultipartUpload><Part><PartNumber>0</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>",
    ] {
        let complete = Signed { query: "uploadId=x", body: body.into(), ..request(Method::POST, "/files/a") };
        assert_refused(&complete.send(&f).await, 400, "MalformedXML");
    }
}

#[tokio::test]
async fn a_private_object_is_sent_with_its_own_caching_unless_that_is_for_shared_caches() {
    let f = start().await;
    for (stored, sent) in [
        ("max-age=60", "max-age=60"),
        ("max-age=60,immutable", "max-age=60,immutable"),
        ("public, max-age=60", "private, max-age=60"),
        ("s-maxage=60", "private"),
        ("max-age=0, must-revalidate", "private, max-age=0, must-revalidate"),
    ] {
        let upload = f.service(f.post("/object/files/a")).header("x-upsert", "true").header("cache-control", stored);
        upload.body("x").send().await.expect(200);
        let read = request(Method::GET, "/files/a").send(&f).await.expect(200);
        assert_eq!(read.header("cache-control"), Some(sent), "{stored}");
    }
}

#[tokio::test]
async fn other_websites_cannot_use_a_published_access_key() {
    let f = start().await;
    let key = S3AccessKey { id: KEY.into(), secret: Secret::new(SECRET) };
    let pages = Some(AllowedOrigins::new(["https://app.example"]));
    let settings = S3Settings { region: "local".into(), access_keys: vec![key], pages };
    let guarded = Files::with(|storage| storage.s3 = Some(settings)).await;
    let list = request(Method::GET, "/");
    for (header, value, status) in [
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("origin", "https://app.example", 200),
        ("sec-fetch-site", "same-origin", 200),
        ("user-agent", "a program", 200),
    ] {
        list.sign(&guarded).header(header, value).send().await.expect(status);
        list.sign(&f).header(header, value).send().await.expect(200);
    }
}
