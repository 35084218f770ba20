//! Downloads from a store, as bodies.
//!
//! A store ends connections whose reader is slow, and connections break. Versions never change, so
//! the rest is then requested again.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::{HeaderMap, Method, header};
use reqwest::Response;

use super::client::{StoreClient, StoreRequest, size_of, unreachable};
use super::error::StoreError;
use super::upload::etag_of;
use crate::backend::model::{BackendError, ByteRange, OpenContent};
use crate::backend::sized_body::SizedBody;

/// The times that a download continues after an interruption without a byte in between.
const RESUMPTIONS: u32 = 3;

/// Opens an object for reading.
///
/// # Errors
/// [`BackendError::NotFound`], [`BackendError::Range`], and those of the store.
pub(super) async fn open(
    client: &Arc<StoreClient>,
    key: String,
    range: Option<ByteRange>,
) -> Result<OpenContent, BackendError> {
    let mut request = StoreRequest::of_object(Method::GET, &key);
    if let Some(range) = range {
        request = request.header(header::RANGE, &value_of(range).ok_or(BackendError::Range)?);
    }
    let response = client.open(request).await?;
    let size = size_of(response.headers()).ok_or(StoreError::Malformed)?;
    let (sent, size) = match content_range(response.headers()) {
        Some((start, end, size)) => ((start, end), size),
        None => ((0, size), size),
    };
    // A store may respond to a range that it cannot satisfy with the whole content
    if let Some(range) = range
        && range.resolve(size) != Some(sent)
    {
        return Err(BackendError::Range);
    }
    let download = Download {
        client: Arc::clone(client),
        key,
        etag: etag_of(response.headers()),
        position: sent.0,
        end: sent.1,
        response: Some(response),
        resumptions: 0,
    };
    let chunks = stream::try_unfold(download, |mut download| async move {
        Ok(download.next().await?.map(|chunk| (chunk, download)))
    });
    let body = Body::new(SizedBody::new(chunks.boxed(), sent.1 - sent.0));
    Ok(OpenContent { size, range: sent, body })
}

/// Returns the value of `Range`; `None` for a range without bytes.
fn value_of(range: ByteRange) -> Option<String> {
    match range {
        ByteRange::From(start, None) => Some(format!("bytes={start}-")),
        ByteRange::From(start, Some(end)) if start <= end => Some(format!("bytes={start}-{end}")),
        ByteRange::Last(count) if count > 0 => Some(format!("bytes=-{count}")),
        ByteRange::From(..) | ByteRange::Last(_) => None,
    }
}

/// Returns the first position of a range, the one after the last, and the size of the whole
/// content.
fn content_range(headers: &HeaderMap) -> Option<(u64, u64, u64)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, size) = value.split_once('/')?;
    let (start, last) = range.split_once('-')?;
    let (start, last) = (start.parse().ok()?, last.parse::<u64>().ok()?);
    Some((start, last.checked_add(1)?, size.parse().ok()?)).filter(|(start, end, _)| start < end)
}

/// A download in progress.
struct Download {
    client: Arc<StoreClient>,
    key: String,
    etag: Option<String>,
    /// The position that is read next.
    position: u64,
    end: u64,
    /// `None` after an interruption.
    response: Option<Response>,
    resumptions: u32,
}

impl Download {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while self.position < self.end {
            let Some(response) = &mut self.response else {
                self.resume().await.map_err(io::Error::other)?;
                continue;
            };
            match response.chunk().await {
                Ok(Some(mut chunk)) => {
                    let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
                    chunk.truncate(left);
                    self.position += chunk.len() as u64;
                    self.resumptions = 0;
                    return Ok(Some(chunk));
                }
                outcome => {
                    let error = outcome.err().map_or(StoreError::Malformed, unreachable);
                    if self.resumptions == RESUMPTIONS {
                        return Err(io::Error::other(error));
                    }
                    tracing::debug!(error = %error, "a download from the object store is continued");
                    self.resumptions += 1;
                    self.response = None;
                }
            }
        }
        Ok(None)
    }

    async fn resume(&mut self) -> Result<(), StoreError> {
        let range = format!("bytes={}-{}", self.position, self.end - 1);
        let mut request = StoreRequest::of_object(Method::GET, &self.key).header(header::RANGE, &range);
        if let Some(etag) = &self.etag {
            request = request.header(header::IF_MATCH, etag);
        }
        let response = self.client.open(request).await?;
        let sent = content_range(response.headers());
        if sent.is_none_or(|(start, end, _)| (start, end) != (self.position, self.end)) {
            return Err(StoreError::Malformed);
        }
        self.response = Some(response);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_response_is_read() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_RANGE, value.parse().unwrap());
            content_range(&headers)
        };
        assert_eq!(of("bytes 5-9/100"), Some((5, 10, 100)));
        for value in ["bytes 9-5/100", "bytes */100", "bytes 5-9/*", "5-9/100", "bytes 0-18446744073709551615/1"] {
            assert_eq!(of(value), None, "{value}");
        }
    }

    #[test]
    fn a_range_without_bytes_is_not_sent() {
        assert_eq!(value_of(ByteRange::From(5, Some(4))), None);
        assert_eq!(value_of(ByteRange::Last(0)), None);
        assert_eq!(value_of(ByteRange::Last(7)).as_deref(), Some("bytes=-7"));
    }
}
