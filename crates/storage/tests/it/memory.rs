//! The bounds on what requests keep in memory, and on what they leave unfinished.

use std::time::Duration;

use http::Method;
use portico_testkit::Request;
use serde_json::json;
use tokio::task::JoinHandle;

use super::helper::{Files, OWN_FOLDER, own, streamed};
use super::s3::{Signed, assert_refused, begin, complete, etag_of, request, start_with, upload_id};

/// Returns a form whose field has this value, and whose file is a text.
fn form(name: &str, value: &str) -> String {
    format!(
        "--XX\r\nContent-Disposition: form-data; name={name}\r\n\r\n{value}\r\n--XX\r\nContent-Disposition: form-data; name=\"\"; filename=a\r\n\r\nx\r\n--XX--"
    )
}

/// Returns an upload with a form.
fn upload(f: &Files, body: impl Into<reqwest::Body>) -> Request {
    let request = f.service(f.post("/object/files/a")).header("x-upsert", "true");
    request.header("content-type", "multipart/form-data; boundary=XX").body(body)
}

/// Sends a request many times, whose body begins and never ends.
fn stall(begin: &str, request: impl Fn(reqwest::Body) -> Request) -> Vec<JoinHandle<portico_testkit::TestResponse>> {
    let body = || {
        let begin = futures_util::stream::iter([begin.as_bytes().to_vec()]);
        streamed(futures_util::StreamExt::chain(begin, futures_util::stream::pending()))
    };
    // Half of the memory, which is the share of one address
    (0..32).map(|_| tokio::spawn(request(body()).send())).collect()
}

/// Waits until a request has the status of a full memory. Returns that response.
async fn refused(request: impl Fn() -> Request) -> portico_testkit::TestResponse {
    let refused = async {
        loop {
            let response = request().send().await;
            if response.status == 429 {
                return response;
            }
        }
    };
    // Ends a test that would never end
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the memory has a bound")
}

#[tokio::test]
async fn bodies_and_fields_that_do_not_arrive_take_bounded_memory() {
    let f = start_with(|storage| storage.upload_wait = Duration::from_millis(100)).await;
    let list = || f.anon(f.post("/object/list/files").json(&json!({ "prefix": "" })));
    let metadata = || upload(&f, form("metadata", "{}"));
    let s3_form = || {
        let request = f.t.post("/storage/v1/s3/files").header("content-type", "multipart/form-data; boundary=XX");
        request.body(form("key", "a"))
    };
    let delete = Signed {
        query: "delete=",
        body: b"<Delete><Object><Key>a</Key></Object></Delete>".to_vec(),
        ..request(Method::POST, "/files")
    };
    list().send().await.expect(200);
    metadata().send().await.expect(200);
    let unsigned = s3_form().send().await;
    assert_refused(&unsigned, 403, "AccessDenied");
    let endless: [(&str, &dyn Fn(reqwest::Body) -> Request); 2] = [
        ("{", &|body| f.anon(f.post("/object/list/files").body(body))),
        ("--XX\r\nContent-Disposition: form-data; name=metadata\r\n\r\n{", &|body| upload(&f, body)),
    ];
    for (begin, endless) in endless {
        let stalled = stall(begin, endless);
        for refused in [refused(list).await, refused(metadata).await] {
            assert!(refused.text().contains("SlowDown"), "{begin}");
            assert_eq!(refused.header("retry-after"), Some("1"));
        }
        assert!(refused(s3_form).await.text().contains("<Code>SlowDown</Code>"), "{begin}");
        assert_refused(&delete.send(&f).await, 429, "SlowDown");
        // A request that takes no memory is not delayed
        upload(&f, form("cacheControl", "60")).send().await.expect(200);
        stalled.iter().for_each(JoinHandle::abort);
        while list().send().await.status != 200 {}
        while metadata().send().await.status != 200 {}
    }
}

#[tokio::test]
async fn uploads_at_the_same_time_are_bounded_over_every_protocol() {
    let f = start_with(|storage| {
        storage.max_uploads = 2;
        storage.upload_wait = Duration::from_millis(100);
    })
    .await;
    f.t.migrate("create policy anyone on storage.objects to authenticated using (true) with check (true)").await;
    let (alice, bob) = (f.t.member("alice@example.com").await, f.t.member("bob@example.com").await);
    let raw = || f.service(f.post("/object/files/a").header("x-upsert", "true").body("x"));
    let url = f.created("resumable", 2).await;
    let part_query = format!("partNumber=1&uploadId={}", begin(&f).await);
    let part = Signed { query: &part_query, body: b"x".to_vec(), ..request(Method::PUT, "/files/a") };
    let put = Signed { body: b"x".to_vec(), ..request(Method::PUT, "/files/b") };
    // One user has at most half of them
    let stalled: Vec<_> = [("c", &alice), ("d", &bob)]
        .into_iter()
        .map(|(name, member)| {
            let body = futures_util::stream::iter([vec![b'x'; 10]]);
            let body = streamed(futures_util::StreamExt::chain(body, futures_util::stream::pending()));
            tokio::spawn(member.sends(f.post(&format!("/object/files/{name}"))).body(body).send())
        })
        .collect();
    let message = "Too many uploads at the same time";
    assert_eq!(refused(raw).await.json()["message"], message);
    assert!(refused(|| f.service(f.patch(&url, 0, "xx"))).await.text().contains(message));
    for signed in [&put, &part] {
        assert!(refused(|| signed.sign(&f)).await.text().contains("<Code>SlowDown</Code>"));
    }
    stalled.iter().for_each(JoinHandle::abort);
    while raw().send().await.status != 200 {}
    f.service(f.patch(&url, 0, "xx")).send().await.expect(204);
    for signed in [&put, &part] {
        signed.send(&f).await.expect(200);
    }
}

#[tokio::test]
async fn fields_are_bounded_and_unknown_ones_are_skipped() {
    let f = Files::with_buckets().await;
    for (name, size, status) in [
        ("cacheControl", 8 * 1024 + 1, 413),
        ("contentType", 8 * 1024 + 1, 413),
        ("metadata", 1024 * 1024 + 1, 413),
        ("unknown", 2 * 1024 * 1024, 200),
        ("metadata", 1024 * 1024, 200),
    ] {
        let response = upload(&f, form(name, &"1".repeat(size))).send().await;
        let seen = response.json()["statusCode"].as_str().map_or(200, |status| status.parse().unwrap());
        assert_eq!(seen, status, "{name} {size}: {}", response.text());
    }
    let long = f.service(f.post("/object/list/files").body("1".repeat(1024 * 1024 + 1))).send().await;
    assert_eq!(long.json()["code"], "EntityTooLarge");
}

#[tokio::test]
async fn a_user_has_a_bounded_number_of_unfinished_uploads_in_parts() {
    let mut f = start_with(|storage| storage.max_pending_uploads = 2).await;
    f.t.migrate(OWN_FOLDER).await;
    let mut users = Vec::new();
    for name in ["alice@example.com", "bob@example.com"] {
        let member = f.t.member(name).await;
        users.push((format!("/files/{}", own(&member, "a")), member.access_token().to_owned()));
    }
    let [(alice_path, alice), (bob_path, bob)] = users.try_into().unwrap();
    let begin = |path, token| Signed { query: "uploads=", token: Some(token), ..request(Method::POST, path) };
    // At the same time, of which two may begin
    let ids = futures_util::future::join_all((0..6).map(|_| begin(&alice_path, &alice).sign(&f).send())).await;
    let (begun, refused): (Vec<_>, Vec<_>) = ids.into_iter().partition(|response| response.status == 200);
    assert_eq!((begun.len(), refused.len()), (2, 4));
    refused.iter().for_each(|refused| assert_refused(refused, 429, "SlowDown"));
    let ids: Vec<String> = begun.iter().map(upload_id).collect();
    begin(&bob_path, &bob).send(&f).await.expect(200);
    let service = Signed { token: None, ..begin(&alice_path, &alice) };
    for _ in 0..3 {
        service.send(&f).await.expect(200);
    }
    f.t.restart().await;
    assert_refused(&begin(&alice_path, &alice).send(&f).await, 429, "SlowDown");
    // One that is aborted and one that is completed leave room
    let query = format!("uploadId={}", ids[0]);
    let abort = Signed { query: &query, token: Some(&alice), ..request(Method::DELETE, &alice_path) };
    abort.send(&f).await.expect(200);
    begin(&alice_path, &alice).send(&f).await.expect(200);
    assert_refused(&begin(&alice_path, &alice).send(&f).await, 429, "SlowDown");
    let (query, part) = (format!("uploadId={}", ids[1]), format!("partNumber=1&uploadId={}", ids[1]));
    let part = Signed { query: &part, body: b"x".to_vec(), token: Some(&alice), ..request(Method::PUT, &alice_path) };
    part.send(&f).await.expect(200);
    let etag = etag_of(&f, 1).await;
    let complete = Signed { path: &alice_path, token: Some(&alice), ..complete(&query, &[(1, &etag)]) };
    complete.send(&f).await.expect(200);
    begin(&alice_path, &alice).send(&f).await.expect(200);
}
