//! The S3 protocol: signatures, bodies that are not what was signed, and bad input. The clients'
//! tests have the operations themselves.

use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use http::Method;
use portico_base::{AllowedOrigins, Secret};
use portico_storage::{S3AccessKey, S3Settings};
use portico_testkit::{Request, TestResponse};
use serde_json::json;
use time::macros::format_description;

use crate::helper::Files;

const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "a secret of sufficient length";

/// A request to be signed.
#[derive(Clone)]
struct Signed<'a> {
    method: Method,
    path: &'a str,
    /// In canonical order.
    query: &'a str,
    /// Signed headers besides host, date and hash.
    headers: &'a [(&'a str, &'a str)],
    body: Vec<u8>,
    /// The hash of the body, or a word in its place; `None`: the hash.
    hash: Option<&'a str>,
}

fn request<'a>(method: Method, path: &'a str) -> Signed<'a> {
    Signed { method, path, query: "", headers: &[], body: Vec::new(), hash: None }
}

fn hash(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

async fn start() -> Files {
    let key = S3AccessKey { id: KEY.into(), secret: Secret::new(SECRET) };
    let settings = S3Settings { region: "local".into(), access_keys: vec![key], pages: None };
    let f = Files::with(|storage| storage.s3 = Some(settings)).await;
    f.bucket("files", json!({})).await;
    f
}

impl Signed<'_> {
    /// Signs the request with the time of the server.
    fn sign(&self, f: &Files) -> Request {
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let date = f.t.clock().now().format(&format).unwrap();
        let host = f.t.base().strip_prefix("http://").unwrap();
        let hash_of_body = hash(&self.body);
        let payload = self.hash.unwrap_or(&hash_of_body);
        let mut headers = vec![("host", host), ("x-amz-content-sha256", payload), ("x-amz-date", &date)];
        headers.extend_from_slice(self.headers);
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
            .fold(format!("AWS4{SECRET}").into_bytes(), |key, part| sign(&key, part));
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

    async fn send(&self, f: &Files) -> TestResponse {
        self.sign(f).send().await
    }
}

#[track_caller]
fn assert_refused(response: &TestResponse, status: u16, code: &str) {
    let text = response.text();
    assert_eq!((response.status, text.contains(&format!("<Code>{code}</Code>"))), (status, true), "{text}");
}

fn put<'a>(path: &'a str, body: &str) -> Signed<'a> {
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
    let good = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    Signed { hash: Some(chunked), headers: &of_five, ..put("/files/a", good) }.send(&f).await.expect(200);
    assert_eq!(f.content("files/a").await, "hello");
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

#[tokio::test]
async fn abandoned_uploads_in_parts_are_ended() {
    let f = start().await;
    let begin = Signed { query: "uploads=", ..request(Method::POST, "/files/a") };
    let answer = begin.send(&f).await.expect(200).text();
    let id = answer.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let query = format!("partNumber=1&uploadId={id}");
    Signed { query: &query, ..put("/files/a", "part") }.send(&f).await.expect(200);
    f.has_files(1).await;
    let storage = f.t.storage();
    assert_eq!(storage.end_abandoned_uploads(Duration::from_secs(3600)).await, Ok(Vec::new()));
    storage.clean_up(Duration::ZERO).await;
    f.has_files(1).await;
    f.t.execute("update storage.s3_multipart_uploads set created_at = now() - interval '2 hours'").await;
    // A part has arrived since
    assert_eq!(storage.end_abandoned_uploads(Duration::from_secs(3600)).await, Ok(Vec::new()));
    f.t.execute("update storage.s3_multipart_uploads_parts set created_at = now() - interval '2 hours'").await;
    f.t.execute(
        "create function public.keep() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger keep before delete on storage.s3_multipart_uploads for each row execute function public.keep()",
    )
    .await;
    assert_eq!(storage.end_abandoned_uploads(Duration::from_secs(3600)).await, Ok(Vec::new()));
    f.has_files(1).await;
    f.t.execute("drop trigger keep on storage.s3_multipart_uploads").await;
    let ended = storage.end_abandoned_uploads(Duration::from_secs(3600)).await;
    assert_eq!(ended, Ok(vec!["files/a".to_owned()]));
    f.has_files(0).await;
    let late = Signed { query: &query, ..put("/files/a", "part") }.send(&f).await;
    assert_refused(&late, 404, "NoSuchUpload");
    assert_eq!(f.t.count("select count(*) from storage.s3_multipart_uploads_parts").await, 0);
    f.has_files(0).await;
}

#[tokio::test]
async fn parts_become_one_object_in_the_order_of_their_numbers() {
    let f = start().await;
    f.store("files/a", "before").await.expect(200);
    let begin = Signed { query: "uploads=", ..request(Method::POST, "/files/a") };
    let answer = begin.send(&f).await.expect(200).text();
    let id = answer.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let first = "a".repeat(5 * 1024 * 1024);
    for (number, content) in [(2, "end"), (1, "replaced"), (1, first.as_str())] {
        let query = format!("partNumber={number}&uploadId={id}");
        Signed { query: &query, ..put("/files/a", content) }.send(&f).await.expect(200);
    }
    assert_eq!(f.content("files/a").await, "before");
    let rows = "select part_number, etag from storage.s3_multipart_uploads_parts order by part_number, created_at desc";
    let parts = f.t.query(rows).await;
    let of = |number: i32| {
        let part = parts.iter().find(|part| part.get::<_, i32>(0) == number).unwrap();
        let etag: String = part.get(1);
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let body = format!("<CompleteMultipartUpload>{}{}</CompleteMultipartUpload>", of(1), of(2));
    let query = format!("uploadId={id}");
    // The checksum of the object, which the document does not have
    let headers = &[("x-amz-checksum-crc32", "AAAAAA==")];
    let complete = Signed { query: &query, headers, body: body.into_bytes(), ..request(Method::POST, "/files/a") };
    let completed = complete.send(&f).await.expect(200).text();
    assert!(completed.contains("-2"), "{completed}");
    assert!(f.content("files/a").await == format!("{first}end"));
    f.has_files(1).await;
}

#[tokio::test]
async fn an_upload_is_completed_once() {
    let f = start().await;
    let begin = Signed { query: "uploads=", ..request(Method::POST, "/files/a") };
    let answer = begin.send(&f).await.expect(200).text();
    let id = answer.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let query = format!("partNumber=1&uploadId={id}");
    Signed { query: &query, ..put("/files/a", "part") }.send(&f).await.expect(200);
    let etag = f.t.query("select etag from storage.s3_multipart_uploads_parts").await[0].get::<_, String>(0);
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let query = format!("uploadId={id}");
    let complete = Signed { query: &query, body: body.into_bytes(), ..request(Method::POST, "/files/a") };
    let outcomes = futures_util::future::join_all((0..6).map(|_| complete.send(&f))).await;
    let statuses: Vec<u16> = outcomes.iter().map(|response| response.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 404 | 409)), "{statuses:?}");
    assert_eq!(f.content("files/a").await, "part");
    f.t.storage().clean_up(Duration::ZERO).await;
    assert_eq!(f.content("files/a").await, "part");
    f.has_files(1).await;
}

#[tokio::test]
async fn parts_that_are_replaced_or_refused_keep_no_space() {
    let f = start().await;
    let begin = Signed { query: "uploads=", ..request(Method::POST, "/files/a") };
    let answer = begin.send(&f).await.expect(200).text();
    let id = answer.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let query = format!("partNumber=1&uploadId={id}");
    for content in ["one", "two", "three", "three"] {
        Signed { query: &query, ..put("/files/a", content) }.send(&f).await.expect(200);
    }
    f.has_files(1).await;
    // A refusal that comes with the row
    f.t.execute(
        "create function public.refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end'; \
         create trigger refuse before insert on storage.s3_multipart_uploads_parts for each row execute function public.refuse()",
    )
    .await;
    let refused = Signed { query: &query, ..put("/files/a", "four") }.send(&f).await;
    assert!(refused.status >= 400, "{}", refused.text());
    let wrong = Signed { query: &query, hash: Some(&hash(b"other")), ..put("/files/a", "five") }.send(&f).await;
    assert_refused(&wrong, 400, "XAmzContentSHA256Mismatch");
    f.has_files(1).await;
    f.t.execute("drop trigger refuse on storage.s3_multipart_uploads_parts").await;
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
        f.t.query("select etag from storage.s3_multipart_uploads_parts").await[0].get::<_, String>(0)
    );
    let query = format!("uploadId={id}");
    let complete = Signed { query: &query, body: body.into_bytes(), ..request(Method::POST, "/files/a") };
    complete.send(&f).await.expect(200);
    assert_eq!(f.content("files/a").await, "three");
    f.has_files(1).await;
}
