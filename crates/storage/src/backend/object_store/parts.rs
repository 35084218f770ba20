//! Versions that arrive in parts.
//!
//! A part is an object of its own below `<prefix>/%parts/<upload>/`, so a part of any size streams
//! like any other content, and a failed commit can be repeated. The store copies the parts
//! together. A mark says that the upload has not ended.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::Method;
use md5::{Digest, Md5};
use portico_base::random;

use super::client::StoreRequest;
use super::upload::MultipartUpload;
use super::{DELETED_AT_ONCE, S3Store, is_old};
use crate::backend::parts::{PartStore, PartedVersion, StoredPart, composite_etag};
use crate::backend::path::is_uuid;
use crate::backend::{BackendError, BackendFuture, ContentStream, StoredContent, VersionKey};
use crate::error::StorageError;

/// The name of the mark of an upload that has not ended.
const MARK: &str = "upload";

/// Content whose MD5 and size are counted while it passes.
struct Counted<'a> {
    content: ContentStream<'a>,
    digest: Md5,
    size: u64,
}

impl Stream for Counted<'_> {
    type Item = Result<Bytes, StorageError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(Pin::new(&mut *self.content).poll_next(context));
        if let Some(Ok(chunk)) = &next {
            self.digest.update(chunk);
            self.size += chunk.len() as u64;
        }
        Poll::Ready(next)
    }
}

impl S3Store {
    /// Returns the begin of the keys of all uploads in parts. No bucket has such a key.
    fn all_parts(&self) -> String {
        format!("{}%parts/", self.prefix)
    }

    /// Returns the begin of the keys of an upload.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] for a text that no upload has.
    fn parts_of(&self, upload: &str) -> Result<String, BackendError> {
        if is_uuid(upload) { Ok(format!("{}{upload}/", self.all_parts())) } else { Err(BackendError::NotFound) }
    }

    async fn delete_parts(&self, folder: &str) -> Result<(), BackendError> {
        // First the mark, so that no part stays that arrives meanwhile
        self.delete_keys(&[format!("{folder}{MARK}")]).await?;
        let keys: Vec<String> = self.list(folder).await?.into_iter().map(|object| object.key).collect();
        for keys in keys.chunks(DELETED_AT_ONCE) {
            self.delete_keys(keys).await?;
        }
        Ok(())
    }
}

/// Returns the key of a part. Two parts of one number with other content are two objects.
fn part_key(folder: &str, number: u16, etag: &str) -> String {
    format!("{folder}{number}-{etag}")
}

impl PartStore for S3Store {
    fn begin_parts<'a>(&'a self, _at: &'a VersionKey) -> BackendFuture<'a, String> {
        Box::pin(async move {
            let upload = random::uuid().to_string();
            let mark = format!("{}{MARK}", self.parts_of(&upload)?);
            self.client.call(StoreRequest::of_object(Method::PUT, &mark)).await?;
            Ok(upload)
        })
    }

    fn put_part<'a>(
        &'a self,
        of: &'a PartedVersion,
        number: u16,
        content: ContentStream<'a>,
        size: u64,
    ) -> BackendFuture<'a, StoredPart> {
        Box::pin(async move {
            let folder = self.parts_of(&of.upload)?;
            let incoming = format!("{folder}{number}-{}", random::uuid());
            let mut counted = Counted { content, digest: Md5::new(), size: 0 };
            self.put_at(&incoming, &mut counted, size).await?;
            let etag = hex::encode(counted.digest.finalize());
            let key = part_key(&folder, number, &etag);
            self.copy_key(&incoming, &key, counted.size).await?;
            self.delete_keys(&[incoming]).await?;
            if let Err(error) = self.size(&format!("{folder}{MARK}")).await {
                // The upload has ended meanwhile
                self.delete_keys(&[key]).await?;
                return Err(error);
            }
            Ok(StoredPart { number, etag, size: counted.size })
        })
    }

    fn assemble_parts<'a>(
        &'a self,
        of: &'a PartedVersion,
        parts: &'a [StoredPart],
    ) -> BackendFuture<'a, StoredContent> {
        Box::pin(async move {
            let folder = self.parts_of(&of.upload)?;
            let to = self.key(&of.at);
            let size: u64 = parts.iter().map(|part| part.size).sum();
            for part in parts {
                if self.size(&part_key(&folder, part.number, &part.etag)).await? != part.size {
                    return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
                }
            }
            match parts {
                [only] => self.copy_key(&part_key(&folder, only.number, &only.etag), &to, size).await?,
                _ => {
                    let mut upload = MultipartUpload::begin(&self.client, &to).await?;
                    for part in parts.iter().filter(|part| part.size > 0) {
                        let key = part_key(&folder, part.number, &part.etag);
                        upload.copy_part(&self.source(&key), 0, part.size - 1).await?;
                    }
                    upload.complete(size).await?;
                }
            }
            Ok(StoredContent { etag: Some(composite_etag(parts)), size, modified: self.client.now() })
        })
    }

    fn abort_parts<'a>(&'a self, of: &'a PartedVersion) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let Ok(folder) = self.parts_of(&of.upload) else { return Ok(()) };
            self.delete_parts(&folder).await
        })
    }

    fn sweep_parts<'a>(&'a self, kept: &'a HashSet<String>, grace: Duration) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let all = self.all_parts();
            let mut uploads: HashMap<String, bool> = HashMap::new();
            for object in self.list(&all).await? {
                let Some((upload, _)) = object.key[all.len()..].split_once('/') else { continue };
                let is_old = is_old(&object.last_modified, grace);
                let are_old = uploads.entry(upload.to_owned()).or_insert(true);
                *are_old = *are_old && is_old;
            }
            for (upload, are_old) in uploads {
                if are_old && is_uuid(&upload) && !kept.contains(&upload) {
                    self.delete_parts(&self.parts_of(&upload)?).await?;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_keys_of_their_own() {
        let folder = "app/%parts/5f0e7a0c-52b1-4a3f-9c55-0f0a6a9c3b11/";
        assert_ne!(part_key(folder, 1, "aa"), part_key(folder, 1, "bb"));
        assert!(!part_key(folder, 1, "aa").ends_with(MARK));
    }
}
