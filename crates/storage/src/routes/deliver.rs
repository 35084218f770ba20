//! Responses with the content of an object.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::error::Result;
use crate::http::call::StorageCall;
use crate::http::object_headers::{Caching, X_ROBOTS_TAG, describe, set};
use crate::http::response::empty;
use crate::model::ObjectRow;
use crate::name::ObjectPath;
use crate::object::condition::{ConditionOutcome, Conditions};
use crate::object::download::{self, ReadRule, RequestedContent};
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
        if self.has_current(&row) {
            return Ok(not_modified(&headers));
        }
        if is_head && let Some(size) = row.metadata.size() {
            return Ok(with_headers(StatusCode::OK, Body::empty(), headers, size));
        }
        let requested = if is_head { None } else { Some(&self.parts.headers) };
        let RequestedContent { replaced, content, is_range } =
            download::open_requested(operation, rule, path, &row, requested).await?;
        let mut headers = match replaced {
            Some(row) => describe(&row),
            None => headers,
        };
        let (start, end) = content.range;
        let status = if is_range {
            let sent = format!("bytes {start}-{}/{}", end.saturating_sub(1), content.size);
            set(&mut headers, header::CONTENT_RANGE, &sent);
            StatusCode::PARTIAL_CONTENT
        } else {
            StatusCode::OK
        };
        Ok(with_headers(status, content.body, headers, end - start))
    }

    /// Returns true if the client has the current content.
    pub(super) fn has_current(&self, row: &ObjectRow) -> bool {
        Conditions::of_download(|name| self.header(name)).evaluate(row) == ConditionOutcome::NotModified
    }
}

fn with_headers(status: StatusCode, body: Body, mut headers: HeaderMap, length: u64) -> Response {
    headers.insert(header::CONTENT_LENGTH, length.into());
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Returns the response to a client that has the current content, which `headers` describe.
pub(super) fn not_modified(headers: &HeaderMap) -> Response {
    let mut response = empty(StatusCode::NOT_MODIFIED);
    for name in [header::ETAG, header::CACHE_CONTROL, header::LAST_MODIFIED, header::EXPIRES, header::VARY] {
        if let Some(value) = headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}
