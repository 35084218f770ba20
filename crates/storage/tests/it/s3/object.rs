//! Conditions, ranges and caching of objects.

use http::Method;

use super::{Signed, assert_refused, put, request, start};

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

/// Returns the request that copies `/files/b`.
fn copy<'a>(path: &'a str, headers: &'a [(&'a str, &'a str)]) -> Signed<'a> {
    Signed { headers, ..request(Method::PUT, path) }
}

#[tokio::test]
async fn a_copy_obeys_the_condition_on_the_object_that_it_replaces() {
    let f = start().await;
    let one = put("/files/a", "one").send(&f).await.expect(200).header("etag").unwrap().to_owned();
    put("/files/b", "two").send(&f).await.expect(200);
    let source = ("x-amz-copy-source", "files/b");
    for (path, condition, status, code) in [
        ("/files/a", ("if-none-match", "*"), 412, "PreconditionFailed"),
        ("/files/a", ("if-match", "\"0\""), 412, "PreconditionFailed"),
        ("/files/c", ("if-match", "*"), 404, "NoSuchKey"),
        ("/files/a", ("if-none-match", "\"0\""), 501, "NotImplemented"),
        ("/files/a", ("if-unmodified-since", "Sat, 01 Aug 2026 09:00:00 GMT"), 501, "NotImplemented"),
    ] {
        assert_refused(&copy(path, &[source, condition]).send(&f).await, status, code);
        assert_eq!(f.content("files/a").await, "one", "{condition:?}");
    }
    copy("/files/c", &[source, ("if-none-match", "*")]).send(&f).await.expect(200);
    assert_eq!(f.content("files/c").await, "two");
    // Both of them have seen the same version
    let headers = [source, ("if-match", one.as_str())];
    let contender = copy("/files/a", &headers);
    let outcomes = futures_util::future::join(contender.send(&f), contender.send(&f)).await;
    let mut statuses = [outcomes.0.status, outcomes.1.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
    assert_eq!(f.content("files/a").await, "two");
    f.has_files(3).await;
}

/// Returns the request that deletes `/files/a`.
fn delete<'a>(headers: &'a [(&'a str, &'a str)]) -> Signed<'a> {
    Signed { headers, ..request(Method::DELETE, "/files/a") }
}

#[tokio::test]
async fn a_deletion_obeys_the_condition_on_the_object() {
    let f = start().await;
    let one = put("/files/a", "one").send(&f).await.expect(200).header("etag").unwrap().to_owned();
    for (condition, status, code) in [
        (("if-match", "\"0\""), 412, "PreconditionFailed"),
        (("if-none-match", "*"), 501, "NotImplemented"),
        (("if-unmodified-since", "Sat, 01 Aug 2026 09:00:00 GMT"), 501, "NotImplemented"),
        (("x-amz-if-match-size", "99"), 501, "NotImplemented"),
        (("x-amz-if-match-last-modified-time", "Sat, 01 Aug 2026 09:00:00 GMT"), 501, "NotImplemented"),
    ] {
        assert_refused(&delete(&[condition]).send(&f).await, status, code);
        assert_eq!(f.content("files/a").await, "one", "{condition:?}");
    }
    delete(&[("if-match", one.as_str())]).send(&f).await.expect(204);
    assert_refused(&delete(&[("if-match", one.as_str())]).send(&f).await, 404, "NoSuchKey");
    delete(&[]).send(&f).await.expect(204);
    f.has_files(0).await;
}

#[tokio::test]
async fn a_deletion_of_many_obeys_the_condition_on_each_object() {
    let f = start().await;
    let tag = put("/files/a", "one").send(&f).await.expect(200).header("etag").unwrap().to_owned();
    for name in ["/files/b", "/files/c", "/files/d"] {
        put(name, "one").send(&f).await.expect(200);
    }
    let delete = |objects: &str| Signed {
        query: "delete=",
        body: format!("<Delete>{objects}</Delete>").into_bytes(),
        ..request(Method::POST, "/files")
    };
    for condition in ["<Size>3</Size>", "<LastModifiedTime>2026-08-01T09:00:00Z</LastModifiedTime>"] {
        let refused = delete(&format!("<Object><Key>a</Key>{condition}</Object>")).send(&f).await;
        assert_refused(&refused, 501, "NotImplemented");
    }
    let objects = format!(
        "<Object><Key>a</Key><ETag>{tag}</ETag></Object><Object><Key>b</Key><ETag>\"0\"</ETag></Object>\
         <Object><Key>c</Key></Object><Object><Key>e</Key><ETag>*</ETag></Object>"
    );
    let outcome = delete(&objects).send(&f).await.expect(200).text();
    assert!(outcome.contains("<Deleted><Key>a</Key></Deleted><Deleted><Key>c</Key></Deleted><Error>"), "{outcome}");
    assert!(outcome.contains("<Key>b</Key><Code>PreconditionFailed</Code>"), "{outcome}");
    assert!(outcome.contains("<Key>e</Key><Code>NoSuchKey</Code>"), "{outcome}");
    let left = f.t.query("select name from storage.objects order by name").await;
    assert_eq!(left.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), ["b", "d"]);
}

#[tokio::test]
async fn the_second_of_two_deletions_succeeds() {
    let f = start().await;
    put("/files/a", "one").send(&f).await.expect(200);
    f.t.execute("begin; set local storage.allow_delete_query = 'true'; delete from storage.objects").await;
    f.send_during(request(Method::DELETE, "/files/a").sign(&f), "commit").await.expect(204);
}

#[tokio::test]
async fn an_object_that_is_replaced_while_it_is_opened_must_meet_the_condition_too() {
    let f = start().await;
    let one = put("/files/a", "one").send(&f).await.expect(200).header("etag").unwrap().to_owned();
    f.t.migrate(
        "create function public.waits() returns boolean language plpgsql as \
         'begin perform pg_advisory_xact_lock_shared(7); return true; end'; \
         create policy reading on storage.objects for select using (public.waits())",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    for (headers, status) in [(&[("if-match", one.as_str())][..], 412), (&[], 200)] {
        put("/files/a", "one").send(&f).await.expect(200);
        f.has_files(1).await;
        // The row is read, and the policy waits
        f.t.execute("select pg_advisory_lock(7)").await;
        let token = Some(alice.access_token());
        let read = Signed { headers, token, ..request(Method::GET, "/files/a") };
        let replace = async {
            f.waits_for_lock().await;
            put("/files/a", "other").send(&f).await.expect(200);
            f.has_files(1).await;
            f.t.execute("select pg_advisory_unlock(7)").await;
        };
        let read = tokio::join!(read.send(&f), replace).0.expect(status);
        assert!(status == 412 || read.text() == "other");
    }
}
