//! Compression of responses, for clients that accept it.
//!
//! Only mounts whose [`crate::AccessRules`] enables it are compressed. The service decides too: a
//! response with a `Content-Encoding`, or with `Cache-Control: no-transform`, is sent as it is.
//!
//! Promises: a response is compressed as it arrives, a block at a time, in about half a mebibyte of
//! memory whatever its length; other tasks run between two blocks; a stream that pauses is flushed.
//! Does not promise: a `Content-Length`, which is unknown before the end.

mod compressed_body;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::Body as HttpBody;

use self::compressed_body::{CompressedBody, Encoder};
use crate::request::encoding::{self, Encoding};

/// The shortest response that is compressed. Supabase's gateway begins at 100 bytes; but up to this
/// size head and body share one packet anyway, and compression would cost each response ten to
/// twenty microseconds for a few bytes.
const SHORTEST: u64 = 1024;

/// The parts of a request that decide how its response is compressed.
pub(crate) struct CompressionRequest {
    accepted: Option<HeaderValue>,
    is_head: bool,
}

impl CompressionRequest {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self { accepted: accepted(&parts.headers), is_head: parts.method == Method::HEAD }
    }

    /// Returns the response in the encoding that the client prefers.
    pub(crate) fn apply_to(self, mut response: Response) -> Response {
        let length = self.length(&response);
        // First, since most responses pay only for this check
        if length.is_some_and(|length| length < SHORTEST) || !is_compressible(&response) {
            return response;
        }
        let headers = response.headers_mut();
        vary(headers);
        let Some(encoding) = self.accepted.and_then(|wish| encoding::accepted([&wish]).first().copied()) else {
            return response;
        };
        if self.is_head {
            // Without a length it is unknown what GET would do
            if length.is_some() {
                describe(headers, encoding);
            }
            return response;
        }
        let Some(encoder) = Encoder::new(encoding) else { return response };
        describe(headers, encoding);
        response.map(|body| Body::new(CompressedBody::new(body, encoder)))
    }

    /// Returns the length of the body if it is known; for HEAD, the length that it would have.
    fn length(&self, response: &Response) -> Option<u64> {
        let declared = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        if self.is_head { declared() } else { response.body().size_hint().upper().or_else(declared) }
    }
}

/// Returns `Accept-Encoding`, on however many lines it came.
fn accepted(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let first = lines.next()?.clone();
    Some(lines.fold(first, |before, line| joined(&before, line.as_bytes())))
}

/// Returns a list with further entries.
fn joined(list: &HeaderValue, further: &[u8]) -> HeaderValue {
    let whole = [list.as_bytes(), b", ", further].concat();
    // Both parts come from headers, so the whole is a valid header
    HeaderValue::from_bytes(&whole).unwrap_or_else(|_| list.clone())
}

/// Returns true if this response would be compressed for a client that accepts it.
fn is_compressible(response: &Response) -> bool {
    let headers = response.headers();
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    has_whole_body(response.status())
        && media.is_some_and(is_text)
        && !headers.contains_key(header::CONTENT_ENCODING)
        && !lists(headers, header::CACHE_CONTROL, "no-transform")
}

/// Returns true if a response has a whole body. Partial responses are not compressed: their range
/// refers to the form in which the client has the rest.
fn has_whole_body(status: StatusCode) -> bool {
    !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED
        )
}

/// Returns true for text, which becomes shorter; images, archives and the like are compressed
/// already.
fn is_text(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // Events have to arrive one by one
    if essence == "text/event-stream" {
        return false;
    }
    match essence.split_once('/') {
        Some(("text", _)) => true,
        Some(("application", "json" | "x-ndjson" | "xml" | "javascript" | "yaml")) => true,
        Some((_, name)) => {
            name.rsplit_once('+').is_some_and(|(_, suffix)| matches!(suffix, "json" | "xml" | "yaml" | "text"))
        }
        None => false,
    }
}

/// Returns true if a header whose value is a list has this entry.
fn lists(headers: &HeaderMap, name: header::HeaderName, entry: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|listed| listed.trim_ascii().eq_ignore_ascii_case(entry.as_bytes()))
}

/// Adds `Accept-Encoding` to `Vary`.
fn vary(headers: &mut HeaderMap) {
    if lists(headers, header::VARY, "*") || lists(headers, header::VARY, "accept-encoding") {
        return;
    }
    match headers.get_mut(header::VARY) {
        Some(list) => *list = joined(list, b"Accept-Encoding"),
        None => {
            headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
    }
}

/// Adapts the head of a response whose body is compressed.
fn describe(headers: &mut HeaderMap, encoding: Encoding) {
    let Some(name) = encoding.name() else { return };
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
    headers.remove(header::CONTENT_LENGTH);
    // Ranges of rows (`items`) are the same in every encoding, those of bytes are not
    if lists(headers, header::ACCEPT_RANGES, "bytes") {
        headers.remove(header::ACCEPT_RANGES);
    }
    // RFC 9110, 8.8.3: a strong tag asserts that every byte is the same
    if let Some(tag) = headers.get_mut(header::ETAG)
        && tag.as_bytes().starts_with(b"\"")
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat())
    {
        *tag = weak;
    }
}

#[cfg(test)]
mod tests {
    use super::is_text;

    #[test]
    fn text_is_compressed_and_dense_media_are_not() {
        for media in [
            "application/json; charset=utf-8",
            "application/json",
            "Application/JSON",
            "application/vnd.pgrst.object+json; charset=utf-8",
            "application/vnd.pgrst.plan+text; for=\"application/json\"",
            "application/openapi+json; charset=utf-8",
            "application/geo+json",
            "application/xml",
            "application/javascript",
            "image/svg+xml",
            "text/csv; charset=utf-8",
            "text/plain",
            "text/xml",
        ] {
            assert!(is_text(media), "{media}");
        }
        for media in [
            "text/event-stream",
            "text/event-stream; charset=utf-8",
            "application/octet-stream",
            "application/zip",
            "application/pdf",
            "application/jsonp",
            "image/png",
            "video/mp4",
            "font/woff2",
            "json",
            "",
        ] {
            assert!(!is_text(media), "{media}");
        }
    }
}
