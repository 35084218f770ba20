//! The S3 protocol, as `portico_storage::s3` names its parts.

#[path = "../../src/s3/chunked.rs"]
mod chunked;
#[path = "../../src/s3/payload.rs"]
mod payload;
#[path = "../../src/s3/query.rs"]
mod query;
#[path = "../../src/s3/signature.rs"]
mod signature;
#[path = "../../src/s3/xml.rs"]
mod xml;

use futures_util::{FutureExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use portico_base::Secret;
use time::macros::datetime;

use self::payload::PayloadBody;
use self::query::S3Query;
use self::signature::{RequestSignature, SignedRequest};
use self::xml::{XmlElement, XmlWriter};
use crate::{PIECES, body, lines};

/// Reads a request: the first line is the query, the next are headers up to an empty one, and the
/// others are the body.
pub fn check_signature(input: &[u8]) {
    let (line, mut rest) = lines(input);
    let Ok(query) = std::str::from_utf8(line).map(S3Query::parse) else { return };
    let Ok(query) = query else { return };
    let again = S3Query::parse(&query.canonical()).expect("a canonical query is a query");
    assert_eq!(again.canonical(), query.canonical());

    let mut headers = HeaderMap::new();
    while !rest.is_empty() && headers.len() < 100 {
        let (line, next) = lines(rest);
        rest = next;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_at(line.iter().position(|&byte| byte == b':').unwrap_or(line.len()));
        let value = HeaderValue::from_bytes(value.strip_prefix(b":").unwrap_or(value).trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
    }
    let Ok(signature) = RequestSignature::read(&headers, &query) else { return };
    let _ = signature.check_scope(Some("local"));
    let _ = signature.check_time(datetime!(2026-08-01 09:00 UTC));
    let secret = Secret::new("a secret that no input has");
    let request = SignedRequest {
        method: &Method::PUT,
        headers: &headers,
        path: "/b/%61",
        query: &query,
        hosts: &["h".to_owned()],
    };
    assert!(signature.verify(&request, &secret).is_err());

    let outcomes = PIECES.map(|piece| {
        let key = signature.scope.signing().signing_key(&secret);
        let mut content = PayloadBody::new(body(rest, piece), &headers, &signature, key).ok()?;
        let mut whole = Vec::new();
        while let Some(chunk) = content.next().now_or_never().expect("a body in memory") {
            whole.extend_from_slice(&chunk.ok()?);
        }
        Some(whole)
    });
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
    if let Some(whole) = &outcomes[0] {
        assert!(whole.len() <= rest.len());
        if signature.payload().starts_with("STREAMING") {
            let length = payload::content_length(&headers, &signature);
            assert_eq!(length.ok().flatten(), Some(whole.len() as u64));
        } else {
            assert_eq!(whole, rest);
        }
    }
}

/// Reads a document.
pub fn check_xml(input: &[u8]) {
    for root in ["Delete", "CompleteMultipartUpload", "CreateBucketConfiguration"] {
        let Ok(read) = XmlElement::parse(input, root) else { continue };
        if !is_plain(&read) {
            continue;
        }
        // Writing replaces characters that no document has, and nothing else
        let written = write(&read);
        let again = XmlElement::parse(written.as_bytes(), root).expect("a written document is one");
        assert_eq!(write(&again), written);
    }
}

/// Returns true if a tree has only names that a writer writes.
fn is_plain(element: &XmlElement) -> bool {
    element.name.bytes().all(|byte| byte.is_ascii_alphanumeric()) && element.children.iter().all(is_plain)
}

fn write(element: &XmlElement) -> String {
    fn content(xml: &mut XmlWriter, element: &XmlElement) {
        xml.escaped(&element.text);
        for child in &element.children {
            xml.element(&child.name, |xml| content(xml, child));
        }
    }
    let mut xml = XmlWriter::new();
    xml.root(&element.name, |xml| content(xml, element));
    xml.into_text()
}
