//! Names and parameters that are not possible.

use http::Method;

use super::{Signed, assert_refused, put, request, start};

#[tokio::test]
async fn names_and_parameters_that_are_not_possible_are_refused() {
    let f = start().await;
    let long = format!("/files/{}", "x".repeat(2501));
    for (path, code) in [
        ("/files/a/../b", "InvalidKey"),
        ("/files/a/./b", "InvalidKey"),
        ("/files/%00", "InvalidKey"),
        ("/files/a%0Ab", "InvalidKey"),
        ("/files/%C3%A4", "InvalidKey"),
        ("/files/a%CC%88", "InvalidKey"),
        (long.as_str(), "KeyTooLongError"),
    ] {
        // A client would not send some of these as they are
        let response = put(path, "x").send(&f).await;
        assert!(matches!(response.status, 400 | 403), "{path} {}", response.text());
        assert!(response.status == 403 || response.text().contains(code), "{path} {}", response.text());
    }
    for (method, path, query, status, code) in [
        (Method::PUT, "/files/a", "tagging=", 501, "NotImplemented"),
        (Method::GET, "/files/a", "acl=", 501, "NotImplemented"),
        (Method::GET, "/files", "policy=", 501, "NotImplemented"),
        (Method::GET, "/files", "versions=", 501, "NotImplemented"),
        (Method::DELETE, "/files", "lifecycle=", 501, "NotImplemented"),
        (Method::PUT, "/files", "cors=", 501, "NotImplemented"),
        (Method::POST, "/files/a", "restore=", 501, "NotImplemented"),
        (Method::GET, "/files", "list-type=3", 400, "InvalidArgument"),
        (Method::GET, "/files", "list-type=2&max-keys=x", 400, "InvalidArgument"),
        (Method::GET, "/files", "continuation-token=x&list-type=2", 400, "InvalidParameter"),
        (Method::PUT, "/files/a", "partNumber=0&uploadId=x", 400, "InvalidArgument"),
        (Method::PUT, "/files/a", "partNumber=10001&uploadId=x", 400, "InvalidArgument"),
        (Method::PUT, "/files/a", "partNumber=1&uploadId=..%2Fx", 404, "NoSuchUpload"),
        (Method::PATCH, "/files/a", "", 405, "MethodNotAllowed"),
        (Method::GET, "/missing", "", 404, "NoSuchBucket"),
    ] {
        let body = if method == Method::PUT { b"x".to_vec() } else { Vec::new() };
        let response = Signed { query, body, ..request(method, path) }.send(&f).await;
        assert_refused(&response, status, code);
    }
    for header in ["x-amz-server-side-encryption-customer-algorithm", "x-amz-write-offset-bytes"] {
        let headers = [(header, "1")];
        assert_refused(&Signed { headers: &headers, ..put("/files/a", "x") }.send(&f).await, 501, "NotImplemented");
    }
    f.has_files(0).await;
}
