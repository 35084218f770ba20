//! Properties of signatures. The signer of these tests shares no code with the verification.

use aws_lc_rs::{digest, hmac};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use portico_base::Secret;
use proptest::prelude::*;

use super::query::S3Query;
use super::signature::{RequestSignature, SignedRequest};
use crate::error::Result;

const DATE: &str = "20260801T090000Z";
const SECRET: &str = "a secret of a client";

/// A request as its client means it.
#[derive(Debug, Clone)]
struct ClientRequest {
    method: Method,
    host: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    payload: String,
    region: String,
}

/// A request as it is sent.
#[derive(Debug, Clone)]
struct SentRequest {
    method: Method,
    host: String,
    path: String,
    query: String,
    headers: HeaderMap,
}

fn sha256(text: &str) -> String {
    hex::encode(digest::digest(&digest::SHA256, text.as_bytes()))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn percent(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || kept.contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn pairs_of(query: &[(String, String)]) -> Vec<String> {
    query.iter().map(|(name, value)| format!("{}={}", percent(name, b""), percent(value, b""))).collect()
}

impl ClientRequest {
    fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", &DATE[..8], self.region)
    }

    /// Returns the signature of a query and of headers in the order of their names.
    fn signature(&self, query: &[(String, String)], headers: &[(String, String)], payload: &str) -> String {
        let mut encoded: Vec<[String; 2]> =
            query.iter().map(|(name, value)| [percent(name, b""), percent(value, b"")]).collect();
        encoded.sort();
        let query = encoded.iter().map(|[name, value]| format!("{name}={value}")).collect::<Vec<_>>().join("&");
        let mut lines = String::new();
        for (name, value) in headers {
            let words: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
            lines.push_str(&format!("{name}:{}\n", words.join(" ")));
        }
        let names = headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let path = percent(&self.path, b"/");
        let canonical = format!("{}\n{path}\n{query}\n{lines}\n{names}\n{payload}", self.method);
        let text = format!("AWS4-HMAC-SHA256\n{DATE}\n{}\n{}", self.scope(), sha256(&canonical));
        let mut key = format!("AWS4{SECRET}").into_bytes();
        for field in self.scope().split('/') {
            key = mac(&key, field);
        }
        hex::encode(mac(&key, &text))
    }

    /// Returns the headers with those that every signature covers, in the order of their names.
    fn signed_headers(&self, added: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        headers.push(("host".to_owned(), self.host.clone()));
        headers.extend(added.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        headers.sort();
        headers
    }

    fn sent(&self, query: String, headers: &[(String, String)]) -> SentRequest {
        let header = |(name, value): &(String, String)| {
            (HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let (method, host, path) = (self.method.clone(), self.host.clone(), percent(&self.path, b"/"));
        SentRequest { method, host, path, query, headers: headers.iter().map(header).collect() }
    }

    /// Signs with the header `Authorization`.
    fn signed(&self) -> SentRequest {
        let headers = self.signed_headers(&[("x-amz-date", DATE), ("x-amz-content-sha256", &self.payload)]);
        let signature = self.signature(&self.query, &headers, &self.payload);
        let names = headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let mut sent = self.sent(pairs_of(&self.query).join("&"), &headers);
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential=key/{}, SignedHeaders={names}, Signature={signature}", self.scope());
        sent.headers.insert("authorization", HeaderValue::from_str(&authorization).unwrap());
        sent
    }

    /// Signs with the query.
    fn presigned(&self) -> SentRequest {
        let headers = self.signed_headers(&[]);
        let names = headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let mut query = self.query.clone();
        for (name, value) in [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", &format!("key/{}", self.scope())),
            ("X-Amz-Date", DATE),
            ("X-Amz-Expires", "60"),
            ("X-Amz-SignedHeaders", &names),
        ] {
            query.push((name.to_owned(), value.to_owned()));
        }
        let signature = self.signature(&query, &headers, "UNSIGNED-PAYLOAD");
        query.push(("X-Amz-Signature".to_owned(), signature));
        self.sent(pairs_of(&query).join("&"), &headers)
    }
}

impl SentRequest {
    fn verify(&self, secret: &str) -> Result<()> {
        let query = S3Query::parse(&self.query)?;
        let signature = RequestSignature::read(&self.headers, &query)?;
        let hosts = [self.host.clone()];
        let SentRequest { method, headers, path, .. } = self;
        let request = SignedRequest { method, headers, path, query: &query, hosts: &hosts };
        signature.verify(&request, &Secret::new(secret)).map(drop)
    }

    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        changed
    }

    /// Returns the requests that differ in one thing which the signature covers.
    fn all_changed(&self) -> Vec<Self> {
        let mut all = vec![
            self.changed(|sent| sent.method = Method::from_bytes(b"OTHER").unwrap()),
            self.changed(|sent| sent.path.push('x')),
            self.changed(|sent| sent.path.insert_str(0, "/x")),
            self.changed(|sent| sent.host.push('x')),
            self.changed(|sent| sent.query.push_str("&x=1")),
        ];
        for (at, _) in self.query.match_indices('=') {
            all.push(self.changed(|sent| sent.query.insert(at + 1, '1')));
        }
        for name in self.headers.keys().filter(|name| *name != "host") {
            let text = self.headers[name].to_str().unwrap();
            // The date and the signature have no meaning with another length
            let last = if text.ends_with('1') { "2" } else { "1" };
            let texts = [format!("{}{last}", &text[..text.len() - 1]), format!("{text}x"), format!("x{text}")];
            for text in texts.iter().filter(|text| text.trim() != self.headers[name].to_str().unwrap().trim()) {
                let value = HeaderValue::from_str(text).unwrap();
                all.push(self.changed(|sent| drop(sent.headers.insert(name, value))));
            }
        }
        all
    }
}

fn requests() -> impl Strategy<Value = ClientRequest> {
    let names = ["range", "content-type", "x-amz-meta-a", "x-amz-copy-source", "x-amz-acl"];
    let headers =
        prop::collection::btree_map(prop::sample::select(names.to_vec()), "[a-zA-Z0-9,;=/]([a-z ]{0,8}[a-z])?", 0..4);
    let query = prop::collection::vec(("[a-z é&=+/%]{1,5}", "[a-zA-Z0-9 é&=+/%]{0,6}"), 0..4);
    let methods = prop::sample::select(vec![Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::HEAD]);
    let payload = prop_oneof![Just("UNSIGNED-PAYLOAD".to_owned()), "[0-9a-f]{64}"];
    (methods, "[a-z]{1,8}(:[1-9][0-9]{0,3})?", "/[a-zA-Z0-9 é/+&%~'*]{0,12}", query, headers, payload, "[a-z0-9-]{1,9}")
        .prop_map(|(method, host, path, query, headers, payload, region)| {
            let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            ClientRequest { method, host, path, query, headers, payload, region }
        })
}

proptest! {
    #[test]
    fn what_a_client_signs_is_verified_and_nothing_else(request in requests()) {
        for sent in [request.signed(), request.presigned()] {
            prop_assert_eq!(sent.verify(SECRET), Ok(()), "{:?}", sent);
            prop_assert!(sent.verify("another secret").is_err());
            for changed in sent.all_changed() {
                prop_assert!(changed.verify(SECRET).is_err(), "{:?}", changed);
            }
        }
    }
}
