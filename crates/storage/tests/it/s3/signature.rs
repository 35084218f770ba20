//! Signatures, and the pages that may use a published access key.

use http::Method;
use portico_base::{AllowedOrigins, Secret};
use portico_storage::{S3AccessKey, S3Settings};

use super::super::helper::Files;
use super::{KEY, SECRET, assert_refused, put, request, start};

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
            "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?><Error>\
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
