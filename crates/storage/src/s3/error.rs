//! Responses to S3 requests that failed: the real status, and XML.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use portico_base::LoggedErrorCode;

use super::xml::{XmlWriter, xml_response};
use crate::error::StorageError;

/// Returns the response to a request that failed. `resource`: the bucket and the key.
pub(super) fn error_response(error: &StorageError, resource: &str, is_head: bool) -> Response {
    let (status, code) = error.status_and_code();
    let mut response = if is_head {
        Response::new(Body::empty())
    } else {
        let mut xml = XmlWriter::new();
        // Without a namespace, as Amazon S3 sends it: botocore finds no code in it otherwise
        xml.element("Error", |xml| {
            xml.text("Resource", resource);
            xml.text("Code", code);
            xml.text("Message", &error.message());
        });
        xml_response(xml)
    };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.extensions_mut().insert(LoggedErrorCode(code));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if matches!(error, StorageError::Aborted | StorageError::Stalled | StorageError::TooSlow) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
