//! Downloads, HEAD and info.

use serde_json::json;

use super::helper::{Files, assert_error};

#[tokio::test]
async fn a_public_object_is_sent_with_its_headers() {
    let f = Files::with_buckets().await;
    let request =
        f.post("/object/site/u1/me.txt").header("content-type", "text/plain").header("cache-control", "max-age=60");
    f.service(request.body("hello")).send().await.expect(200);
    for path in ["/object/public/site/u1/me.txt", "/object/site/u1/me.txt", "/object/public/site/u1%2Fme.txt"] {
        let sent = f.get(path).send().await.expect(200);
        assert_eq!(sent.text(), "hello");
        for (name, value) in [
            ("content-type", "text/plain"),
            ("content-length", "5"),
            ("etag", "\"5d41402abc4b2a76b9719d911017c592\""),
            ("cache-control", "max-age=60"),
            ("accept-ranges", "bytes"),
            ("x-robots-tag", "none"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(sent.header(name), Some(value), "{path} {name}");
        }
        assert!(sent.header("last-modified").unwrap().ends_with(" GMT"));
        assert!(sent.header("content-disposition").is_none());
    }
    let named = f.get("/object/public/site/u1/me.txt?download=photo%20one.png").send().await.expect(200);
    let disposition = "attachment; filename=photo%20one.png; filename*=UTF-8''photo%20one.png";
    assert_eq!(named.header("content-disposition"), Some(disposition));
    let unnamed = f.get("/object/public/site/u1/me.txt?download").send().await.expect(200);
    assert_eq!(unnamed.header("content-disposition"), Some("attachment;"));
    // A page may read what it needs
    let exposed = named.header("access-control-expose-headers").unwrap().to_ascii_lowercase();
    for name in ["etag", "content-disposition", "content-length", "content-range", "cache-control", "last-modified"] {
        assert!(exposed.contains(name), "{exposed}");
    }
}

#[tokio::test]
async fn ranges_are_sent_in_part_and_others_rejected() {
    let f = Files::with_buckets().await;
    let content: String = (0..300_000_u32).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    f.store("site/a", &content).await.expect(200);
    f.store("site/empty", "").await.expect(200);
    let get = |range: &str| f.get("/object/public/site/a").header("range", range).send();
    for (range, part, header) in [
        ("bytes=0-4", &content[..5], "bytes 0-4/300000"),
        ("bytes=299990-", &content[299_990..], "bytes 299990-299999/300000"),
        ("bytes=-5", &content[299_995..], "bytes 299995-299999/300000"),
        ("bytes=100-999999", &content[100..], "bytes 100-299999/300000"),
    ] {
        let sent = get(range).await.expect(206);
        assert_eq!((sent.text().as_str(), sent.header("content-range")), (part, Some(header)), "{range}");
    }
    for range in ["bytes=300000-", "bytes=5-4", "bytes=0-1,3-4", "bytes=x", "bytes=-0"] {
        assert_error(&get(range).await, 416, "416", "InvalidRange", "invalid range provided");
    }
    let empty = f.get("/object/public/site/empty").header("range", "bytes=0-").send().await;
    assert_error(&empty, 416, "416", "InvalidRange", "invalid range provided");
    assert_eq!(f.get("/object/public/site/empty").send().await.expect(200).header("content-length"), Some("0"));
    let head = f.head("/object/public/site/a").header("range", "bytes=0-4").send().await.expect(200);
    assert_eq!(head.header("content-length"), Some("300000"));
    assert_eq!(f.get("/object/public/site/a").send().await.expect(200).text(), content);
}

#[tokio::test]
async fn a_client_with_the_current_content_gets_no_body() {
    let f = Files::with_buckets().await;
    f.store("site/a", "hello").await.expect(200);
    let first = f.get("/object/public/site/a").send().await.expect(200);
    let (etag, modified) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    let (weak, several) = (format!("W/{etag}"), format!("\"other\", {etag}"));
    for (name, value) in [
        ("if-none-match", etag),
        ("if-none-match", &weak),
        ("if-none-match", &several),
        ("if-none-match", "*"),
        ("if-modified-since", modified),
    ] {
        let sent = f.get("/object/public/site/a").header(name, value).send().await.expect(304);
        assert_eq!(
            (sent.text().as_str(), sent.header("etag"), sent.header("last-modified")),
            ("", Some(etag), Some(modified))
        );
        assert!(sent.header("cache-control").is_some());
    }
    for (name, value) in [("if-none-match", "\"other\""), ("if-modified-since", "Sat, 01 Aug 2020 09:00:00 GMT")] {
        f.get("/object/public/site/a").header(name, value).send().await.expect(200);
    }
}

#[tokio::test]
async fn a_range_of_another_content_is_the_whole_one() {
    let f = Files::with_buckets().await;
    f.store("site/a", "hello").await.expect(200);
    let first = f.get("/object/public/site/a").send().await.expect(200);
    let (etag, modified) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    let range = |validator: &str, range: &str| {
        f.get("/object/public/site/a").header("range", range).header("if-range", validator)
    };
    for validator in [etag, modified] {
        let part = range(validator, "bytes=1-2").send().await.expect(206);
        assert_eq!((part.text().as_str(), part.header("content-range")), ("el", Some("bytes 1-2/5")));
    }
    range(etag, "bytes=9-").send().await.expect(416);
    for (validator, asked) in [
        ("\"other\"", "bytes=1-2"),
        ("\"other\"", "bytes=9-"),
        (&format!("W/{etag}"), "bytes=1-2"),
        ("Sat, 01 Aug 2020 09:00:00 GMT", "bytes=1-2"),
    ] {
        let whole = range(validator, asked).send().await.expect(200);
        assert_eq!((whole.text().as_str(), whole.header("content-range")), ("hello", None), "{validator} {asked}");
    }
}

#[tokio::test]
async fn head_and_info_describe_an_object() {
    let f = Files::with_buckets().await;
    f.store("files/a.txt", "hello").await.expect(200);
    let head = f.service(f.head("/object/files/a.txt")).send().await.expect(200);
    assert_eq!(
        (head.header("content-length"), head.header("content-type"), head.text().as_str()),
        (Some("5"), Some("text/plain"), "")
    );
    for (path, status) in [("/object/info/files/a.txt", 200), ("/bucket", 200), ("/object/files/b", 400)] {
        let got = f.service(f.get(path)).send().await.expect(status);
        let head = f.service(f.head(path)).send().await.expect(status);
        let length = got.body.len().to_string();
        assert_eq!((head.header("content-length"), head.text().as_str()), (Some(length.as_str()), ""), "{path}");
        assert_eq!(head.header("content-type"), got.header("content-type"));
    }
    let info = f.service(f.get("/object/info/files/a.txt")).send().await.expect(200);
    assert!(info.header("etag").is_some() && info.header("last-modified").is_some());
    let info = info.json();
    assert_eq!((&info["name"], &info["bucket_id"], &info["size"]), (&json!("a.txt"), &json!("files"), &json!(5)));
    assert_eq!(info["etag"], "\"5d41402abc4b2a76b9719d911017c592\"");
    assert!(f.service(f.get("/object/info/authenticated/files/a.txt")).send().await.status == 200);
    assert_error(
        &f.get("/object/info/public/files/a.txt").send().await,
        400,
        "404",
        "NoSuchBucket",
        "Bucket not found",
    );
}

#[tokio::test]
async fn active_content_cannot_run_as_the_site() {
    let f = Files::with_buckets().await;
    for (kind, sent, sandboxed) in [
        ("text/html", "text/plain", true),
        ("TEXT/HTML; charset=utf-8", "text/plain", true),
        ("image/svg+xml", "image/svg+xml", true),
        ("application/xhtml+xml", "application/xhtml+xml", true),
        ("text/xml", "text/xml", true),
        ("text/xsl", "text/xsl", true),
        ("text/rdf", "text/rdf", true),
        ("application/javascript", "application/javascript", true),
        ("multipart/x-mixed-replace; boundary=x", "application/octet-stream", true),
        ("image/png, application/x-y", "image/png, application/x-y", true),
        ("image/png", "image/png", false),
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8", false),
        ("application/pdf", "application/pdf", false),
    ] {
        f.service(f.put("/object/site/page").header("content-type", kind).body("<script>")).send().await.expect(200);
        let page = f.get("/object/public/site/page").send().await.expect(200);
        assert_eq!(page.header("content-type"), Some(sent));
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        let policy = page.header("content-security-policy").unwrap_or_default();
        assert_eq!(policy.contains("sandbox"), sandboxed, "{kind}");
    }
    // SQL can store a type that no header can have
    f.t.execute("update storage.objects set metadata = metadata || '{\"mimetype\": \"te\\nxt/html\"}'").await;
    let page = f.get("/object/public/site/page").send().await.expect(200);
    assert_eq!(page.header("content-type"), Some("application/octet-stream"));
    assert!(page.header("content-security-policy").unwrap_or_default().contains("sandbox"));
}

#[tokio::test]
async fn private_objects_are_not_cached_for_others() {
    let f = Files::with_buckets().await;
    let request = f.post("/object/files/a").header("cache-control", "public, max-age=60, s-maxage=60");
    f.service(request.body("x")).send().await.expect(200);
    let sent = f.service(f.get("/object/authenticated/files/a")).send().await.expect(200);
    assert_eq!(sent.header("cache-control"), Some("private, max-age=60"));
    let etag = sent.header("etag").unwrap().to_owned();
    let current = f.service(f.get("/object/authenticated/files/a").header("if-none-match", &etag));
    let current = current.send().await.expect(304);
    for response in [&sent, &current] {
        let vary: Vec<&str> = response.headers.get_all("vary").iter().filter_map(|value| value.to_str().ok()).collect();
        assert!(vary.iter().any(|value| value.contains("Authorization, apikey")), "{vary:?}");
    }
}

#[tokio::test]
async fn content_that_is_lost_is_reported_and_not_cached() {
    let f = Files::with_buckets().await;
    f.store("site/a", "x").await.expect(200);
    f.place.remove(&f.versions("site/a").await[0]).await;
    let lost = f.get("/object/public/site/a").send().await;
    assert_error(&lost, 400, "404", "NoSuchKey", "The resource was not found");
    assert_eq!(lost.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn the_service_answers_probes_and_unknown_routes() {
    let f = Files::start().await;
    assert_eq!(f.get("/status").send().await.expect(200).text(), "");
    assert!(!f.get("/version").send().await.expect(200).text().is_empty());
    assert_eq!(f.service(f.get("/health")).send().await.expect(200).json(), json!({ "healthy": true }));
    let unauthenticated = f.get("/health").send().await;
    assert_error(&unauthenticated, 400, "400", "InvalidRequest", "headers must have required property 'authorization'");
    assert_eq!(f.service(f.delete("/cdn/files/a")).send().await.expect(200).json(), json!({ "message": "success" }));
    assert_error(&f.anon(f.delete("/cdn")).send().await, 403, "403", "AccessDenied", "Access denied: Invalid role");
    let route = f.get("/object/onlybucket").send().await;
    assert_error(&route, 404, "404", "InvalidRequest", "Route GET:/object/onlybucket not found");
    let other = f.get("/nothing").send().await.expect(404);
    assert_eq!(
        other.json(),
        json!({ "message": "Route GET:/nothing not found", "error": "Not Found", "statusCode": 404 })
    );
    assert_eq!(f.service(f.post("/iceberg/bucket")).send().await.expect(403).json()["code"], "FeatureNotEnabled");
    // Clients of the protocol understand no other form
    let s3 = f.service(f.post("/s3/b")).send().await.expect(403);
    assert_eq!(s3.header("content-type"), Some("application/xml; charset=utf-8"));
    assert!(s3.text().contains("<Code>FeatureNotEnabled</Code>"), "{}", s3.text());
    assert_eq!(f.head("/s3/b").send().await.expect(403).text(), "");
    f.get("/render/image/public/a/b").send().await.expect(404);
    f.service(f.post("/vector/ListVectorBuckets")).send().await.expect(404);
    let analytics = f.service(f.post("/bucket").json(&json!({ "name": "tables", "type": "ANALYTICS" }))).send().await;
    assert_eq!((analytics.status, &analytics.json()["code"]), (403, &json!("FeatureNotEnabled")));
    let visitor = f.anon(f.post("/iceberg/bucket").json(&json!({ "name": "tables" }))).send().await;
    assert_error(&visitor, 403, "403", "AccessDenied", "Access denied: Invalid role");
}

#[tokio::test]
async fn answers_about_private_things_are_not_stored_by_caches() {
    let f = Files::with_buckets().await;
    f.store("files/a", "x").await.expect(200);
    for request in [
        f.get("/bucket"),
        f.get("/bucket/files"),
        f.post("/object/list/files").json(&json!({ "prefix": "" })),
        f.post("/object/list-v2/files").json(&json!({})),
        f.post("/object/sign/files/a").json(&json!({ "expiresIn": 60 })),
        f.post("/object/sign/files").json(&json!({ "expiresIn": 60, "paths": ["a"] })),
        f.post("/object/upload/sign/files/b"),
    ] {
        let response = f.service(request).send().await.expect(200);
        assert_eq!(response.header("cache-control"), Some("private, no-store"), "{response:?}");
    }
    let info = f.service(f.get("/object/info/files/a")).send().await.expect(200);
    assert_eq!(info.header("cache-control"), Some("private, no-cache"));
}

#[tokio::test]
async fn deeply_nested_user_metadata_hides_no_object() {
    let f = Files::with_buckets().await;
    f.store("site/a", "x").await.expect(200);
    f.t.execute("update storage.objects set user_metadata = (repeat('[', 500) || repeat(']', 500))::jsonb").await;
    assert_eq!(f.get("/object/public/site/a").send().await.expect(200).text(), "x");
    let info = f.get("/object/info/public/site/a").send().await.expect(200).text();
    assert!(info.contains(&format!("\"metadata\":{}{}", "[".repeat(500), "]".repeat(500))), "{info}");
}
