//! Uploads to a store: in one request if the content is small, else in parts.
//!
//! While a part is sent, the next one is received. The memory for parts is bounded for all uploads
//! together. An upload that fails or is cancelled is aborted.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{HeaderMap, Method, header};
use portico_base::inherit_request;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client::{COPY_SOURCE, COPY_SOURCE_RANGE, COPY_TIMEOUT, StoreClient, StoreRequest, size_of};
use super::error::StoreError;
use super::xml::{self, EtagResponse, InitiatedUpload};
use crate::backend::model::{BackendError, ContentStream, StoredContent};

/// The bytes of an upload that need no share of the memory for parts.
const FREE: usize = 256 * 1024;
/// The unit of the memory for parts, in bytes.
const UNIT: usize = 1024 * 1024;
/// The number of parts that a store allows.
pub(super) const MAX_PARTS: u64 = 10_000;

/// The objects that the store copies at a time for one upload.
const COPIES_AT_ONCE: usize = 8;

/// The memory for parts that all uploads share.
#[derive(Debug, Clone)]
pub(super) struct PartMemory {
    units: Arc<Semaphore>,
    total: u32,
}

impl PartMemory {
    /// Returns a memory of some bytes.
    pub fn new(bytes: u64) -> Self {
        let total = u32::try_from(bytes / UNIT as u64).unwrap_or(u32::MAX).clamp(1, 1 << 20);
        Self { units: Arc::new(Semaphore::new(total as usize)), total }
    }

    /// Waits for the memory of a part. An upload that waits must hold none, except for parts that
    /// are being sent.
    async fn reserve(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(size.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.total);
        Arc::clone(&self.units).acquire_many_owned(units).await.ok()
    }
}

/// A part of an upload, with its share of the memory.
struct PartUpload {
    bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

/// Collects the chunks of an upload to parts.
struct PartReader<'a> {
    content: ContentStream<'a>,
    memory: &'a PartMemory,
    part_size: usize,
    /// The bytes that are still allowed.
    left: u64,
    /// The bytes of a chunk beyond the end of its part.
    rest: Bytes,
}

impl PartReader<'_> {
    /// Receives the next part. It is shorter than the others at the end of the content, and empty
    /// behind it.
    async fn next(&mut self) -> Result<PartUpload, BackendError> {
        let (mut bytes, mut memory) = (BytesMut::new(), None);
        loop {
            if !self.rest.is_empty() {
                if bytes.len() + self.rest.len() > FREE && memory.is_none() {
                    memory = self.memory.reserve(self.part_size).await;
                }
                let taken = self.rest.split_to(self.rest.len().min(self.part_size - bytes.len()));
                bytes.extend_from_slice(&taken);
            }
            if bytes.len() == self.part_size {
                break;
            }
            let Some(chunk) = self.content.next().await else { break };
            let chunk = chunk.map_err(BackendError::Source)?;
            self.left = self.left.checked_sub(chunk.len() as u64).ok_or(BackendError::TooLarge)?;
            self.rest = chunk;
        }
        Ok(PartUpload { bytes: bytes.freeze(), _memory: memory })
    }
}

/// The sizes of the parts of an upload.
#[derive(Debug, Clone, Copy)]
pub(super) struct UploadBounds {
    /// The largest content, in bytes.
    pub limit: u64,
    /// The size of a part, in bytes.
    pub part_size: usize,
}

/// Stores content under a key.
///
/// # Errors
/// Those of the sender and of the store; nothing is left then.
pub(super) async fn put(
    client: &Arc<StoreClient>,
    memory: &PartMemory,
    key: &str,
    content: ContentStream<'_>,
    bounds: UploadBounds,
) -> Result<StoredContent, BackendError> {
    let UploadBounds { limit, part_size } = bounds;
    let mut parts = PartReader { content, memory, part_size, left: limit, rest: Bytes::new() };
    let first = parts.next().await?;
    if first.bytes.len() < part_size {
        let size = first.bytes.len() as u64;
        let request = StoreRequest::of_object(Method::PUT, key).body(first.bytes.clone());
        let response = client.call(request).await?;
        return Ok(StoredContent { etag: etag_of(&response.headers), size, modified: client.now() });
    }
    let mut upload = StoreMultipartUpload::begin(client, key).await?;
    let (mut part, mut size) = (first, 0);
    while !part.bytes.is_empty() {
        size += part.bytes.len() as u64;
        let (sent, next) = join(upload.send(part), parts.next()).await;
        sent?;
        part = next?;
    }
    let etag = upload.complete(size).await?;
    Ok(StoredContent { etag: Some(etag), size, modified: client.now() })
}

/// A multipart upload. It is aborted if it is dropped before its end.
pub(super) struct StoreMultipartUpload {
    client: Arc<StoreClient>,
    key: String,
    id: String,
    etags: Vec<String>,
    is_complete: bool,
}

impl StoreMultipartUpload {
    /// Begins an upload.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn begin(client: &Arc<StoreClient>, key: &str) -> Result<Self, StoreError> {
        let request = StoreRequest::of_object(Method::POST, key).query("uploads", "");
        let begun: InitiatedUpload = xml::parse(&client.call(request).await?.document)?;
        let client = Arc::clone(client);
        Ok(Self { client, key: key.to_owned(), id: begun.upload_id, etags: Vec::new(), is_complete: false })
    }

    async fn send(&mut self, part: PartUpload) -> Result<(), StoreError> {
        let number = (self.etags.len() + 1).to_string();
        let request = StoreRequest::of_object(Method::PUT, &self.key)
            .query("partNumber", &number)
            .query("uploadId", &self.id)
            .body(part.bytes.clone());
        let response = self.client.call(request).await?;
        self.etags.push(etag_of(&response.headers).ok_or(StoreError::Malformed)?);
        Ok(())
    }

    /// Adds a part of another object, which the store copies: the positions of its first and last
    /// byte.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn copy_part(&mut self, source: &str, first: u64, last: u64) -> Result<(), StoreError> {
        let etag = self.copy(self.etags.len() + 1, source, Some((first, last))).await?;
        self.etags.push(etag);
        Ok(())
    }

    /// Adds whole objects as parts, which the store copies, some of them at a time.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn copy_objects(&mut self, sources: &[String]) -> Result<(), StoreError> {
        let upload = &*self;
        let mut copies = Vec::with_capacity(sources.len());
        for (source, number) in sources.iter().zip(self.etags.len() + 1..) {
            copies.push(upload.copy(number, source, None));
        }
        let etags: Vec<String> = stream::iter(copies).buffered(COPIES_AT_ONCE).try_collect().await?;
        self.etags.extend(etags);
        Ok(())
    }

    /// Makes the store copy an object, or a range of it, and returns the ETag of the part.
    async fn copy(&self, number: usize, source: &str, range: Option<(u64, u64)>) -> Result<String, StoreError> {
        let number = number.to_string();
        let mut request = StoreRequest::of_object(Method::PUT, &self.key)
            .query("partNumber", &number)
            .query("uploadId", &self.id)
            .header(COPY_SOURCE, source)
            .timeout(COPY_TIMEOUT);
        if let Some((first, last)) = range {
            request = request.header(COPY_SOURCE_RANGE, &format!("bytes={first}-{last}"));
        }
        Ok(xml::parse::<EtagResponse>(&self.client.call(request).await?.document)?.etag)
    }

    /// Makes the parts an object of a size and returns its ETag.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn complete(mut self, size: u64) -> Result<String, StoreError> {
        let request = StoreRequest::of_object(Method::POST, &self.key)
            .query("uploadId", &self.id)
            .body(xml::completion(&self.etags))
            .timeout(COPY_TIMEOUT);
        let etag = match self.client.call(request).await {
            Ok(response) => xml::parse::<EtagResponse>(&response.document)?.etag,
            // The response to an attempt that succeeded was lost
            Err(error) if error.is("NoSuchUpload") => {
                let response = self.client.call(StoreRequest::of_object(Method::HEAD, &self.key)).await?;
                let is_whole = size_of(&response.headers) == Some(size);
                etag_of(&response.headers).filter(|_| is_whole).ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        self.is_complete = true;
        Ok(etag)
    }
}

impl Drop for StoreMultipartUpload {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (client, key, id) = (Arc::clone(&self.client), self.key.clone(), self.id.clone());
        runtime.spawn(inherit_request(async move {
            if let Err(error) = abort(&client, &key, &id).await {
                tracing::warn!(error = %error, "an upload to the object store could not be aborted");
            }
        }));
    }
}

/// Aborts an upload. It is no error if it does not exist.
///
/// # Errors
/// Those of the store.
pub(super) async fn abort(client: &StoreClient, key: &str, id: &str) -> Result<(), StoreError> {
    match client.call(StoreRequest::of_object(Method::DELETE, key).query("uploadId", id)).await {
        Err(error) if !error.is("NoSuchUpload") && !error.is_missing() => Err(error),
        _ => Ok(()),
    }
}

/// Returns the ETag of a response.
pub(super) fn etag_of(headers: &HeaderMap) -> Option<String> {
    headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned)
}
