//! The bytes of a request on their way into the file of an upload.

use uuid::Uuid;

use crate::backend::BackendError;
use crate::backend::piece_hasher::Piece;
use crate::backend::piece_permit::{PIECE_SIZE, arrived};
use crate::error::StorageError;
use crate::http::body::UploadBody;
use crate::unfinished::{PartialContent, UploadLock, UploadProgress, UploadRecord, UploadStore};

/// The reason why no more bytes of a request are received.
#[derive(Debug)]
pub(super) enum BodyEnd {
    /// The body is complete.
    Complete,
    /// The sender has failed: what has arrived stays.
    Broken(StorageError),
    /// A newer request works on the upload: what has arrived stays.
    TakenOver,
    /// The body is longer than allowed: none of it stays.
    TooLong,
    /// The bytes could not be written.
    NotWritten(BackendError),
}

/// The bytes of an upload after a request.
pub(super) struct ReceivedBytes {
    /// The file, and what is durable of it; `None` if it could not be flushed.
    pub durable: Option<(PartialContent, UploadProgress)>,
    pub end: BodyEnd,
}

/// Receives a body until it ends, up to `limit` bytes of the whole upload. What it returns is
/// durable and not recorded yet.
pub(super) async fn receive(
    store: &UploadStore,
    (version, record): (Uuid, &mut UploadRecord),
    mut content: PartialContent,
    (mut body, limit): (UploadBody, u64),
    lock: &mut UploadLock,
) -> ReceivedBytes {
    let end = loop {
        let permit = tokio::select! {
            biased;
            () = lock.taken_over() => break BodyEnd::TakenOver,
            permit = store.permits.acquire() => permit,
        };
        let Some((permit, first)) = store.permits.first_chunk(permit, &mut body, lock.taken_over()).await else {
            break BodyEnd::TakenOver;
        };
        let (chunks, mut end) = gather(first, &mut body).await;
        let gathered: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if content.size().saturating_add(gathered) > limit {
            end = Some(BodyEnd::TooLong);
        } else if gathered > 0 {
            let (appended, outcome) = content.append(Piece { chunks, _permit: permit }).await;
            let Some(appended) = appended else {
                return ReceivedBytes {
                    durable: None,
                    end: outcome.err().map_or(BodyEnd::TakenOver, BodyEnd::NotWritten),
                };
            };
            content = appended;
            end = outcome.err().map(BodyEnd::NotWritten).or(end);
        }
        if let Some(end) = end {
            break end;
        }
        if content.is_due() && content.size() < limit {
            match content.flush().await {
                Ok((flushed, progress)) => (content, record.progress) = (flushed, progress),
                Err(error) => return ReceivedBytes { durable: None, end: BodyEnd::NotWritten(error) },
            }
            if let Err(error) = store.save(version, record).await {
                break BodyEnd::NotWritten(error);
            }
        }
    };
    if matches!(end, BodyEnd::TooLong) {
        return ReceivedBytes { durable: None, end };
    }
    match content.flush().await {
        Ok(durable) => ReceivedBytes { durable: Some(durable), end },
        Err(error) => ReceivedBytes { durable: None, end: BodyEnd::NotWritten(error) },
    }
}

/// Returns a chunk with those that have arrived meanwhile, and the end of the body if it is known.
async fn gather(
    first: Option<Result<bytes::Bytes, StorageError>>,
    body: &mut UploadBody,
) -> (Vec<bytes::Bytes>, Option<BodyEnd>) {
    let (mut chunks, mut size, mut next) = (Vec::new(), 0, first);
    loop {
        match next {
            None => return (chunks, Some(BodyEnd::Complete)),
            Some(Err(error)) => return (chunks, Some(BodyEnd::Broken(error))),
            Some(Ok(chunk)) => {
                size += chunk.len();
                chunks.push(chunk);
            }
        }
        if size >= PIECE_SIZE {
            return (chunks, None);
        }
        // No permit is held while a client is waited for
        match arrived(body).await {
            Some(arrived) => next = arrived,
            None => return (chunks, None),
        }
    }
}
