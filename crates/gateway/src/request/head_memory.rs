//! The memory of the head of a request.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;

/// The size of a body from which on it is taken to arrive slowly, in bytes.
const LONG_BODY: u64 = 64 * 1024;

/// Copies the headers of a request with a long body into memory of their own. The HTTP library
/// leaves them in the block in which the head has arrived, which they would keep for as long as the
/// body arrives: 8 KiB and more instead of a few hundred bytes.
pub(crate) fn copy_for_long_body(headers: &mut HeaderMap, body: &Body) {
    if body.size_hint().upper().is_none_or(|size| size >= LONG_BODY) {
        copy(headers);
    }
}

fn copy(headers: &mut HeaderMap) {
    let mut texts = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    headers.values().for_each(|value| texts.extend_from_slice(value.as_bytes()));
    let mut texts: Bytes = texts.freeze();
    for value in headers.values_mut() {
        // It was a valid value before
        if let Ok(mut copied) = HeaderValue::from_maybe_shared(texts.split_to(value.len())) {
            copied.set_sensitive(value.is_sensitive());
            *value = copied;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::header;

    use super::*;

    /// Returns the headers of a request and a handle of the block in which they have arrived.
    fn arrived() -> (HeaderMap, Bytes) {
        let block = Bytes::from(vec![b'a'; 8192]);
        let mut headers = HeaderMap::new();
        for (name, text) in
            [(header::COOKIE, &block[..5]), (header::HOST, &block[9..10]), (header::COOKIE, &block[..0])]
        {
            headers.append(name, HeaderValue::from_maybe_shared(block.slice_ref(text)).unwrap());
        }
        headers.get_mut(header::HOST).unwrap().set_sensitive(true);
        (headers, block)
    }

    #[test]
    fn headers_of_a_long_body_keep_nothing_of_the_block_in_which_they_arrived() {
        let chunks = futures_util::stream::pending::<Result<Bytes, Infallible>>();
        for body in [Body::from_stream(chunks), Body::from(vec![0; LONG_BODY as usize])] {
            let (mut headers, block) = arrived();
            let before = headers.clone();
            assert!(!block.is_unique());
            copy_for_long_body(&mut headers, &body);
            assert_eq!(headers, before);
            assert!(headers[header::HOST].is_sensitive() && !headers[header::COOKIE].is_sensitive());
            drop(before);
            assert!(block.is_unique());
        }
    }

    #[test]
    fn headers_of_a_short_body_are_not_copied() {
        let (mut headers, block) = arrived();
        copy_for_long_body(&mut headers, &Body::from(vec![0; LONG_BODY as usize - 1]));
        copy_for_long_body(&mut headers, &Body::empty());
        assert!(!block.is_unique());
    }
}
