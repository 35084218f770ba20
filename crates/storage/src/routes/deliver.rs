//! Responses with the content of an object.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use time::OffsetDateTime;

use crate::error::Result;
use crate::http::call::StorageCall;
use crate::http::object_headers::{Caching, X_ROBOTS_TAG, describe, range_of, set};
use crate::http::response::empty;
use crate::model::ObjectRow;
use crate::name::ObjectPath;
use crate::object::condition::last_modified;
use crate::object::download::{self, ReadRule};
use crate::operation::Operation;

impl StorageCall<'_> {
    /// Sends an object that was found.
    pub(super) async fn deliver(
        &self,
        operation: &Operation,
        rule: ReadRule,
        path: &ObjectPath,
        row: ObjectRow,
        caching: Caching,
    ) -> Result<Response> {
        let download = self.query("download");
        let is_head = self.parts.method == Method::HEAD;
        let describe = |row: &ObjectRow| {
            let mut headers = describe(row, caching, download.as_deref());
            if is_head {
                // The contract has no other value here, whatever the object states
                headers.insert(X_ROBOTS_TAG, HeaderValue::from_static("none"));
            }
            headers
        };
        let headers = describe(&row);
        if is_current(&self.parts.headers, &row) {
            return Ok(not_modified(headers));
        }
        if is_head && let Some(size) = row.metadata.size() {
            return Ok(with_headers(StatusCode::OK, Body::empty(), headers, size));
        }
        let range = if is_head { None } else { range_of(&self.parts.headers)? };
        let (replaced, content) = download::open(operation, rule, path, &row, range).await?;
        let mut headers = match replaced {
            Some(row) => describe(&row),
            None => headers,
        };
        let (start, end) = content.range;
        let status = match range {
            None => StatusCode::OK,
            Some(_) => {
                let sent = format!("bytes {start}-{}/{}", end.saturating_sub(1), content.size);
                set(&mut headers, header::CONTENT_RANGE, &sent);
                StatusCode::PARTIAL_CONTENT
            }
        };
        Ok(with_headers(status, content.body, headers, end - start))
    }
}

fn with_headers(status: StatusCode, body: Body, mut headers: HeaderMap, length: u64) -> Response {
    headers.insert(header::CONTENT_LENGTH, length.into());
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn not_modified(headers: HeaderMap) -> Response {
    let mut response = empty(StatusCode::NOT_MODIFIED);
    for name in [header::ETAG, header::CACHE_CONTROL, header::LAST_MODIFIED, header::EXPIRES, header::VARY] {
        if let Some(value) = headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// Returns true if the client has the current content.
fn is_current(headers: &HeaderMap, row: &ObjectRow) -> bool {
    if let Some(tag) = headers.get(header::IF_NONE_MATCH) {
        return row.metadata.etag().is_some_and(|etag| tag == etag);
    }
    let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
    let since = since.and_then(|value| httpdate::parse_http_date(value).ok()).map(OffsetDateTime::from);
    match (since, last_modified(row)) {
        // Dates of HTTP have whole seconds
        (Some(since), Some(modified)) => modified.unix_timestamp() <= since.unix_timestamp(),
        _ => false,
    }
}
