//! The S3 protocol: requests that are signed, and what is refused. The clients' tests have the
//! operations themselves.

mod bad_input;
mod body;
mod buckets;
mod object;
mod parts;
mod signature;

use aws_lc_rs::{digest, hmac};
use http::Method;
use portico_base::Secret;
use portico_storage::{S3AccessKey, S3Settings, StorageSettings};
use portico_testkit::{Request, TestResponse};
use serde_json::json;
use time::macros::format_description;

use super::helper::Files;

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
pub fn upload_id(response: &TestResponse) -> String {
    response.text().split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned()
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
