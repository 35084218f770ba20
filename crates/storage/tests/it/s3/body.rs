//! Bodies that are not what was signed, not their document, or do not arrive.

use std::time::Duration;

use http::Method;

use super::super::helper::streamed;
use super::{Signed, assert_refused, begin, hash, put, request, start, start_with};

#[tokio::test]
async fn a_body_that_is_not_what_was_signed_leaves_nothing() {
    let f = start().await;
    let other = hash(b"other");
    let chunked = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    let of_five = [("x-amz-decoded-content-length", "5"), ("x-amz-trailer", "x-amz-checksum-crc32")];
    for (hash, headers, body, status, code) in [
        (Some(other.as_str()), &[][..], "content", 400, "XAmzContentSHA256Mismatch"),
        (None, &[("x-amz-checksum-crc32", "AAAAAA==")], "content", 400, "BadDigest"),
        (None, &[("x-amz-checksum-crc32c", "AAAAAA==")], "content", 400, "BadDigest"),
        (None, &[("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")], "content", 400, "BadDigest"),
        (None, &[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], "content", 400, "BadDigest"),
        (Some(chunked), &of_five, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", 400, "BadDigest"),
        (Some(chunked), &of_five, "5\r\nhello\r\n0\r\n\r\n", 400, "BadDigest"),
        (Some(chunked), &of_five, "4\r\nhell\r\n0\r\n\r\n", 400, "IncompleteBody"),
        (Some(chunked), &of_five, "5\r\nhello\r\n", 400, "IncompleteBody"),
        (Some(chunked), &of_five, "5\r\nhelloo\r\n0\r\n\r\n", 400, "InvalidRequest"),
        (Some(chunked), &[], "5\r\nhello\r\n0\r\n\r\n", 400, "MissingContentLength"),
        (Some("STREAMING-OTHER"), &[], "x", 400, "InvalidArgument"),
    ] {
        let request = Signed { hash, headers, ..put("/files/a", body) };
        assert_refused(&request.send(&f).await, status, code);
    }
    let long = format!("{}\r\n", "0".repeat(300));
    let request = Signed { hash: Some(chunked), headers: &of_five, ..put("/files/a", &long) };
    assert_refused(&request.send(&f).await, 413, "EntityTooLarge");
    f.has_files(0).await;
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    for (name, value) in [("crc32", "NhCmhg=="), ("crc32c", "mnG7TA=="), ("crc64nvme", "M3eFcAZSQlc=")] {
        let trailer = format!("x-amz-checksum-{name}");
        let good = format!("5\r\nhello\r\n0\r\n{trailer}:{value}\r\n\r\n");
        let headers = &[("x-amz-decoded-content-length", "5"), ("x-amz-trailer", trailer.as_str())];
        Signed { hash: Some(chunked), headers, ..put("/files/a", &good) }.send(&f).await.expect(200);
        assert_eq!(f.content("files/a").await, "hello");
        let other = Signed { hash: Some(chunked), headers, ..put("/files/a", &good.replace("hello", "other")) };
        assert_refused(&other.send(&f).await, 400, "BadDigest");
    }
}

#[tokio::test]
async fn bodies_that_are_not_their_document_are_malformed() {
    let f = start().await;
    let bomb = format!(
        "<!DOCTYPE Delete [<!ENTITY a \"{}\">]><Delete><Object><Key>&a;</Key></Object></Delete>",
        "x".repeat(100)
    );
    let many = format!("<Delete>{}</Delete>", "<Object><Key>a</Key></Object>".repeat(1001));
    for body in ["", "x", "<Delete/>", "<Delete><Object/></Delete>", "<Other/>", &bomb, &many, "<Delete>"] {
        let delete = Signed { query: "delete=", body: body.as_bytes().to_vec(), ..request(Method::POST, "/files") };
        assert_refused(&delete.send(&f).await, 400, "MalformedXML");
    }
    let large = "x".repeat(4 * 1024 * 1024 + 1);
    let delete = Signed { query: "delete=", body: large.into_bytes(), ..request(Method::POST, "/files") };
    assert_refused(&delete.send(&f).await, 413, "EntityTooLarge");
    for body in [
        "<CompleteMultipartUpload/>",
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
        "<CompleteMultipartUpload><Part><PartNumber>0</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>",
    ] {
        let complete = Signed { query: "uploadId=x", body: body.into(), ..request(Method::POST, "/files/a") };
        assert_refused(&complete.send(&f).await, 400, "MalformedXML");
    }
}

#[tokio::test]
async fn documents_that_do_not_arrive_take_bounded_memory() {
    let f = start_with(|storage| storage.upload_wait = Duration::from_millis(100)).await;
    let delete = Signed {
        query: "delete=",
        body: b"<Delete><Object><Key>a</Key></Object></Delete>".to_vec(),
        hash: Some("UNSIGNED-PAYLOAD"),
        ..request(Method::POST, "/files")
    };
    delete.send(&f).await.expect(200);
    // Half of the memory, which is the part of one address
    let stalled = (0..8).map(|_| tokio::spawn(delete.sign(&f).body(streamed(futures_util::stream::pending())).send()));
    let stalled: Vec<_> = stalled.collect();
    let refused = async {
        loop {
            let response = delete.send(&f).await;
            if response.status != 200 {
                return response;
            }
        }
    };
    // Ends a test that would never end
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the memory has a bound");
    assert_refused(&refused, 429, "SlowDown");
    stalled.iter().for_each(tokio::task::JoinHandle::abort);
    while delete.send(&f).await.status != 200 {}
}

#[tokio::test]
async fn content_that_stalls_is_ended_and_leaves_nothing() {
    let f = start_with(|storage| storage.idle_timeout = Duration::from_millis(200)).await;
    let query = format!("partNumber=1&uploadId={}", begin(&f).await);
    for query in ["", &query] {
        let unsigned = Signed { query, hash: Some("UNSIGNED-PAYLOAD"), ..request(Method::PUT, "/files/a") };
        let begun = futures_util::stream::iter([vec![b'x'; 1000]]);
        let body = streamed(futures_util::StreamExt::chain(begun, futures_util::stream::pending()));
        let request = unsigned.sign(&f).header("content-length", "2000").body(body);
        assert_refused(&request.send().await, 408, "RequestTimeout");
    }
    let rows =
        "select (select count(*) from storage.objects) + (select count(*) from storage.s3_multipart_uploads_parts)";
    assert_eq!(f.t.count(rows).await, 0);
    f.has_files(0).await;
}
