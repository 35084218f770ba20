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
