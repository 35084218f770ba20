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

use super::client::StoreRequest;
use super::store::{DELETED_AT_ONCE, S3Store, is_old};
use super::upload::StoreMultipartUpload;
use crate::backend::model::{BackendError, BackendFuture, ContentStream, StoredContent};
use crate::backend::parts::{
    PartName, PartStore, PartedVersion, StoredPart, composite_etag, is_unknown_upload, new_upload,
};
use crate::error::StorageError;

/// The name of the mark of an upload that has not ended.
const MARK: &str = "upload";

/// Content whose MD5 and size are counted while it passes.
struct CountedContent<'a> {
    content: ContentStream<'a>,
    digest: Md5,
    size: u64,
}

impl Stream for CountedContent<'_> {
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

    fn folder_of_upload(&self, upload: &str) -> String {
        format!("{}{upload}/", self.all_parts())
    }

    /// Returns the begin of the keys of an upload.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] for a text that no upload has.
    fn parts_of(&self, of: &PartedVersion) -> Result<String, BackendError> {
        Ok(self.folder_of_upload(of.folder()?))
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

impl PartStore for S3Store {
    fn begin_parts(&self) -> BackendFuture<'_, String> {
        Box::pin(async move {
            let upload = new_upload();
            let mark = format!("{}{MARK}", self.folder_of_upload(&upload));
            self.client.call(StoreRequest::of_object(Method::PUT, &mark)).await?;
            Ok(upload)
        })
    }

    fn put_part<'a>(
        &'a self,
        of: &'a PartedVersion,
        name: &'a PartName,
        content: ContentStream<'a>,
        size: u64,
    ) -> BackendFuture<'a, StoredPart> {
        Box::pin(async move {
            let folder = self.parts_of(of)?;
            let key = format!("{folder}{}", name.file());
            let mut counted = CountedContent { content, digest: Md5::new(), size: 0 };
            self.put_at(&key, &mut counted, size).await?;
            // Without the mark, the upload has ended meanwhile
            self.size(&format!("{folder}{MARK}")).await?;
            let etag = hex::encode(counted.digest.finalize());
            Ok(StoredPart { name: name.clone(), etag, size: counted.size })
        })
    }

    fn delete_part<'a>(&'a self, of: &'a PartedVersion, name: &'a PartName) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let key = format!("{}{}", self.parts_of(of)?, name.file());
            self.delete_keys(&[key]).await
        })
    }

    fn assemble_parts<'a>(
        &'a self,
        of: &'a PartedVersion,
        parts: &'a [StoredPart],
    ) -> BackendFuture<'a, StoredContent> {
        Box::pin(async move {
            let folder = self.parts_of(of)?;
            let to = self.key(&of.at);
            let size: u64 = parts.iter().map(|part| part.size).sum();
            let parts_with_content: Vec<&StoredPart> = parts.iter().filter(|part| part.size > 0).collect();
            match parts_with_content.as_slice() {
                [] => {
                    self.client.call(StoreRequest::of_object(Method::PUT, &to)).await?;
                }
                [only] => self.copy_key(&format!("{folder}{}", only.name.file()), &to, size).await?,
                several => {
                    let source = |part: &&StoredPart| self.source(&format!("{folder}{}", part.name.file()));
                    let sources: Vec<String> = several.iter().map(source).collect();
                    let mut upload = StoreMultipartUpload::begin(&self.client, &to).await?;
                    upload.copy_objects(&sources).await?;
                    upload.complete(size).await?;
                }
            }
            Ok(StoredContent { etag: Some(composite_etag(parts)), size, modified: self.client.now() })
        })
    }

    fn abort_parts<'a>(&'a self, of: &'a PartedVersion) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let Ok(folder) = self.parts_of(of) else { return Ok(()) };
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
                if are_old && is_unknown_upload(&upload, kept) {
                    self.delete_parts(&self.folder_of_upload(&upload)).await?;
                }
            }
            Ok(())
        })
    }
}
