//! Names, bodies and headers that are not valid: the error of the contract each time, and nothing
//! is left behind.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::helper::{Files, assert_error};

#[tokio::test]
async fn names_that_cannot_be_stored_are_rejected_and_leave_nothing() {
    let f = Files::with_buckets().await;
    for (path, key) in [
        ("..%2Fx", "../x"),
        ("a%2F..%2Fb", "a/../b"),
        (".%2F", "./"),
        ("a%00b", "a\0b"),
        ("a%0Ab", "a\nb"),
        ("%7F", "\u{7f}"),
        ("%C3%A4", "\u{e4}"),
        ("a%CC%88", "a\u{308}"),
        ("a%25b", "a%b"),
        ("a%5Cb", "a\\b"),
        ("", ""),
        ("%3Cscript%3E", "<script>"),
    ] {
        let refused = f.service(f.post(&format!("/object/files/{path}")).body("x")).send().await;
        assert_error(&refused, 400, "400", "InvalidKey", &format!("Invalid key: {key}"));
    }
    for path in ["%ff", "%C3"] {
        assert_eq!(f.service(f.post(&format!("/object/files/{path}")).body("x")).send().await.status, 400);
    }
    f.service(f.post(&format!("/object/files/{}", "x".repeat(2501))).body("x")).send().await.expect(404);
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_files(0).await;
}

/// Encodes every byte of a name, so that it arrives as it is.
fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn no_call_that_writes_accepts_a_name_that_cannot_be_stored() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    for name in [
        "../a",
        "a/..",
        "a/../a",
        "./a",
        "a/.",
        "\0",
        "a\0",
        "a\n",
        "a\t",
        "a\r",
        "\u{1b}",
        "\u{7f}",
        "\u{85}",
        "\u{e9}",
        "e\u{301}",
        "a\\b",
        "a%2Fb",
        "\u{2024}\u{2024}/a",
        "\u{ff0f}",
        "\u{202e}",
        "",
    ] {
        let path = format!("files/{}", encoded(name));
        let to = json!({ "bucketId": "files", "sourceKey": "a", "destinationKey": name });
        let text = "--B\r\nContent-Disposition: form-data; name=\"\"; filename=a\r\n\r\nx\r\n--B--\r\n";
        for (call, request) in [
            ("post", f.post(&format!("/object/{path}")).body("x")),
            (
                "form",
                f.post(&format!("/object/{path}")).header("content-type", "multipart/form-data; boundary=B").body(text),
            ),
            ("upsert", f.post(&format!("/object/{path}")).header("x-upsert", "true").body("x")),
            ("put", f.put(&format!("/object/{path}")).body("x")),
            ("sign upload", f.post(&format!("/object/upload/sign/{path}"))),
            ("move", f.post("/object/move").json(&to)),
            ("copy", f.post("/object/copy").json(&to)),
            ("upserting copy", f.post("/object/copy").header("x-upsert", "true").json(&to)),
        ] {
            let refused = f.service(request).send().await;
            let body: Value = refused.json();
            assert_eq!((refused.status, &body["code"]), (400, &json!("InvalidKey")), "{call} {name:?}");
            assert_eq!(body["message"], format!("Invalid key: {name}"), "{call} {name:?}");
        }
    }
    assert_eq!(f.content("files/a").await, "hello");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
    f.has_files(1).await;
}

#[tokio::test]
async fn an_encoded_slash_never_leads_to_another_bucket() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    for bucket in
        ["files%2F..%2Fsite", "..%2Ffiles", "site%2F..%2Ffiles", ".%2Ffiles", "%2E%2E%2Ffiles", "files%00", "files%2F"]
    {
        for request in [
            f.post(&format!("/object/{bucket}/b")).body("x"),
            f.put(&format!("/object/{bucket}/b")).body("x"),
            f.get(&format!("/object/{bucket}/a")),
            f.get(&format!("/object/public/{bucket}/a")),
            f.get(&format!("/object/info/{bucket}/a")),
            f.delete(&format!("/object/{bucket}/a")),
            f.post(&format!("/object/sign/{bucket}/a")).json(&json!({ "expiresIn": 60 })),
            f.post(&format!("/object/upload/sign/{bucket}/b")),
        ] {
            let refused = f.service(request).send().await;
            assert_eq!(refused.status, 400, "{bucket}: {}", refused.text());
        }
        let listed = f.service(f.post(&format!("/object/list/{bucket}")).json(&json!({ "prefix": "" }))).send().await;
        assert!(listed.status == 400 || listed.json() == json!([]), "{bucket}: {}", listed.text());
        let deleted =
            f.service(f.delete(&format!("/object/{bucket}")).json(&json!({ "prefixes": ["a"] }))).send().await;
        assert!(deleted.status == 400 || deleted.json() == json!([]), "{bucket}: {}", deleted.text());
    }
    assert_eq!(f.content("files/a").await, "hello");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
    f.has_files(1).await;
}

#[tokio::test]
async fn a_name_of_more_than_a_kibibyte_is_like_any_other() {
    let f = Files::with_buckets().await;
    let [name, moved, copied] = ["n", "m", "c"].map(|letter| letter.repeat(1025));
    f.store(&format!("files/{name}"), "hello").await.expect(200);
    let to = |source: &str, name: &str| json!({ "bucketId": "files", "sourceKey": source, "destinationKey": name });
    f.service(f.post("/object/move").json(&to(&name, &moved))).send().await.expect(200);
    f.service(f.post("/object/copy").json(&to(&moved, &copied))).send().await.expect(200);
    let listed = f.service(f.post("/object/list-v2/files").json(&json!({}))).send().await.expect(200).json();
    let names: Vec<&str> =
        listed["objects"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, [copied.as_str(), moved.as_str()]);
    let signing = f.post(&format!("/object/sign/files/{copied}")).json(&json!({ "expiresIn": 60 }));
    let url = f.service(signing).send().await.expect(200).json()["signedURL"].as_str().unwrap().to_owned();
    assert_eq!(f.get(&url).send().await.expect(200).text(), "hello");
    let removed = f.service(f.delete("/object/files").json(&json!({ "prefixes": [moved, copied] }))).send().await;
    assert_eq!(removed.expect(200).json().as_array().unwrap().len(), 2);
    f.has_files(0).await;
}

#[tokio::test]
async fn unusual_names_are_objects_of_their_own() {
    let f = Files::with_buckets().await;
    let long = "n".repeat(1025);
    let deep = "Ab/".repeat(800);
    let names = [
        "a",
        "a/b",
        "A",
        "a//b",
        "%2Fa",
        "a/",
        "IMG.PNG",
        "a.",
        "...",
        "a%2Fb%2Fc",
        "CON",
        "a:b",
        long.as_str(),
        deep.as_str(),
    ];
    for (n, name) in names.iter().enumerate() {
        f.store(&format!("files/{name}"), &n.to_string()).await.expect(200);
    }
    for (n, name) in names.iter().enumerate() {
        assert_eq!(f.content(&format!("files/{name}")).await, n.to_string(), "{name}");
    }
    f.has_files(names.len()).await;
    for name in names {
        f.service(f.delete(&format!("/object/files/{name}"))).send().await;
    }
}

#[tokio::test]
async fn reads_of_impossible_names_find_nothing() {
    let f = Files::with_buckets().await;
    for path in ["/object/files/a%00b", "/object/info/files/%00", "/object/files/..%2F..%2Fetc", "/object/files/%C3%A4"]
    {
        assert_error(&f.service(f.get(path)).send().await, 400, "404", "NoSuchKey", "Object not found");
    }
    assert_error(&f.service(f.get("/bucket/a%00")).send().await, 400, "404", "NoSuchBucket", "Bucket not found");
    let bodies = [r#"{"prefix":"\u0000"}"#, r#"{"prefix":"","search":"\u0000"}"#];
    for body in bodies {
        let refused =
            f.service(f.post("/object/list/files").header("content-type", "application/json").body(body)).send().await;
        assert_eq!(
            (refused.status, refused.json()["code"].as_str().map(str::to_owned)),
            (400, Some("InvalidParameter".into()))
        );
    }
}

/// Sends bytes on a connection of its own and returns the status line of the response; empty if
/// there is none. The connection is closed for writing behind them.
async fn raw(f: &Files, bytes: Vec<u8>) -> String {
    let address = f.t.base().trim_start_matches("http://").to_owned();
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    connection.write_all(&bytes).await.unwrap();
    connection.shutdown().await.unwrap();
    let mut response = Vec::new();
    let _ = connection.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_upload_that_ends_too_early_stores_nothing() {
    let f = Files::with_buckets().await;
    let token = f.t.api_keys().service_role_jwt().to_owned();
    let head = |framing: &str| {
        format!(
            "POST /storage/v1/object/files/a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{framing}\r\n\r\n"
        )
    };
    for (framing, body) in [
        ("content-length: 1000000", "x".repeat(5000)),
        ("transfer-encoding: chunked", format!("1000\r\n{}", "x".repeat(100))),
        ("transfer-encoding: chunked", "5\r\nhello\r\n".to_owned()),
    ] {
        let response = raw(&f, [head(framing).into_bytes(), body.into_bytes()].concat()).await;
        assert!(!response.contains(" 200 "), "{response}");
    }
    f.has_files(0).await;
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    // Bytes behind the declared length are no content
    let response = raw(&f, [head("content-length: 3").into_bytes(), b"helGARBAGE\r\n\r\n".to_vec()].concat()).await;
    assert!(response.contains(" 200 "), "{response}");
    assert_eq!(f.content("files/a").await, "hel");
}

#[tokio::test]
async fn a_body_whose_length_is_ambiguous_is_not_stored() {
    let f = Files::with_buckets().await;
    let token = f.t.api_keys().service_role_jwt().to_owned();
    for framing in [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5, 6",
        "content-length: -5",
        "content-length: +5",
        "content-length: 0x5",
        "content-length: 18446744073709551621",
        "content-length: 5\r\ntransfer-encoding: identity",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: xchunked",
    ] {
        let request = format!(
            "POST /storage/v1/object/files/a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{framing}\r\n\r\nhello"
        );
        let response = raw(&f, request.into_bytes()).await;
        assert!(!response.contains(" 200 "), "{framing}: {response}");
    }
    for chunks in [
        "-5\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
    ] {
        let request = format!(
            "POST /storage/v1/object/files/a HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        );
        let response = raw(&f, request.into_bytes()).await;
        assert!(!response.contains(" 200 "), "{chunks}: {response}");
    }
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_files(0).await;
}

#[tokio::test]
async fn stored_headers_cannot_break_a_response() {
    let f = Files::with_buckets().await;
    f.store("site/a", "x").await.expect(200);
    f.t.execute(r#"update storage.objects set metadata = metadata || '{"mimetype":"a/b\r\nx: y","cacheControl":"\n","size":"5","eTag":7,"lastModified":"never"}'"#).await;
    let sent = f.get("/object/public/site/a").send().await.expect(200);
    assert_eq!((sent.text().as_str(), sent.header("x")), ("x", None));
    f.t.execute("update storage.objects set metadata = '[]'").await;
    assert_eq!(f.get("/object/public/site/a").send().await.expect(200).text(), "x");
    f.t.execute("update storage.objects set metadata = null, version = '../../../etc/passwd'").await;
    let lost = f.get("/object/public/site/a").send().await;
    assert_error(&lost, 400, "404", "NoSuchKey", "The resource was not found");
}
