//! Names, bodies and headers that are not valid: the error of the contract each time, and nothing
//! is left behind.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::helper::{Files, assert_error};

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
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
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
        let answer = raw(&f, [head(framing).into_bytes(), body.into_bytes()].concat()).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    f.has_files(0).await;
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    // Bytes behind the declared length are no content
    let answer = raw(&f, [head("content-length: 3").into_bytes(), b"helGARBAGE\r\n\r\n".to_vec()].concat()).await;
    assert!(answer.contains(" 200 "), "{answer}");
    assert_eq!(f.content("files/a").await, "hel");
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
