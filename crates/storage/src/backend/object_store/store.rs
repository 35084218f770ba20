//! The bucket and its versions.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, Method, header};
use md5::{Digest, Md5};
use portico_base::Clock;
use tokio::sync::mpsc;

use super::client::{COPY_SOURCE, COPY_TIMEOUT, StoreClient, StoreRequest, size_of};
use super::error::StoreError;
use super::upload::{MAX_PARTS, PartMemory, StoreMultipartUpload, UploadBounds};
use super::xml::{self, DeletionResponse, ListedKey, ListedUpload, ObjectPage, PartPage, UploadPage};
use super::{content, key, upload};
use crate::backend::interface::Backend;
use crate::backend::model::{
    BackendError, BackendFuture, ByteRange, ContentStream, KeptVersion, OpenContent, StoredContent, StoredFile,
    VersionKey,
};
use crate::model::parse_timestamp;
use crate::settings::S3StoreSettings;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// The largest object that a store copies in one request, in bytes.
const MAX_COPY: u64 = 5 * 1024 * 1024 * 1024;
/// The least size of a part of a copy, in bytes.
const COPY_PART: u64 = 1024 * 1024 * 1024;
/// The number of objects that one request deletes.
pub(super) const DELETED_AT_ONCE: usize = 1000;

/// A bucket of a store.
pub(crate) struct S3Store {
    pub(super) client: Arc<StoreClient>,
    /// The bucket's name.
    bucket: String,
    /// The begin of all keys: empty, or with a slash at the end.
    pub(super) prefix: String,
    part_size: u64,
    memory: PartMemory,
}

impl S3Store {
    /// Makes the backend. The store is not contacted.
    ///
    /// # Errors
    /// When the settings are invalid.
    pub fn new(settings: &S3StoreSettings, clock: Clock) -> std::io::Result<Self> {
        let prefix = settings.prefix.trim_matches('/');
        Ok(Self {
            client: Arc::new(StoreClient::new(settings, clock)?),
            bucket: settings.bucket.clone(),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            part_size: settings.part_size,
            memory: PartMemory::new(settings.part_memory),
        })
    }

    /// Returns the key of a version.
    pub(super) fn key(&self, at: &VersionKey) -> String {
        key::of(&self.prefix, at)
    }

    /// Returns the size of an object.
    pub(super) async fn size(&self, key: &str) -> Result<u64, BackendError> {
        let response = self.client.call(StoreRequest::of_object(Method::HEAD, key)).await?;
        Ok(size_of(&response.headers).ok_or(StoreError::Malformed)?)
    }

    /// Stores content of at most `limit` bytes under a key.
    pub(super) async fn put_at(
        &self,
        key: &str,
        content: ContentStream<'_>,
        limit: u64,
    ) -> Result<StoredContent, BackendError> {
        let part_size = self.part_size.max(limit.div_ceil(MAX_PARTS));
        let bounds = UploadBounds { limit, part_size: usize::try_from(part_size).unwrap_or(usize::MAX) };
        upload::put(&self.client, &self.memory, key, content, bounds).await
    }

    /// Returns the name of an object as the source of a copy.
    pub(super) fn source(&self, key: &str) -> String {
        StoreClient::copy_source(&self.bucket, key)
    }

    /// Makes the store copy an object of a size.
    pub(super) async fn copy_key(&self, from: &str, to: &str, size: u64) -> Result<(), BackendError> {
        let source = self.source(from);
        if size > MAX_COPY {
            return self.copy_in_parts(&source, to, size).await;
        }
        let request = StoreRequest::of_object(Method::PUT, to).header(COPY_SOURCE, &source);
        self.client.call(request.timeout(COPY_TIMEOUT)).await?;
        Ok(())
    }

    /// Returns the objects whose keys begin with `prefix`.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<ListedKey>, BackendError> {
        let mut objects = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut request = StoreRequest::of_bucket(Method::GET).query("list-type", "2").query("prefix", prefix);
            if let Some(token) = &token {
                request = request.query("continuation-token", token);
            }
            let page: ObjectPage = xml::parse(&self.client.call(request).await?.document)?;
            objects.extend(page.contents);
            token = page.next_continuation_token;
            if token.is_none() {
                return Ok(objects);
            }
        }
    }

    async fn copy_in_parts(&self, source: &str, to: &str, size: u64) -> Result<(), BackendError> {
        let mut upload = StoreMultipartUpload::begin(&self.client, to).await?;
        let part_size = COPY_PART.max(size.div_ceil(MAX_PARTS));
        let mut first = 0;
        while first < size {
            let end = size.min(first + part_size);
            upload.copy_part(source, first, end - 1).await?;
            first = end;
        }
        upload.complete(size).await?;
        Ok(())
    }

    /// Deletes objects one by one, for stores that cannot delete many.
    async fn delete_each(&self, keys: &[String]) -> Result<(), BackendError> {
        for key in keys {
            match self.client.call(StoreRequest::of_object(Method::DELETE, key)).await {
                Err(error) if !error.is_missing() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes objects. It is no error if one does not exist.
    pub(super) async fn delete_keys(&self, keys: &[String]) -> Result<(), BackendError> {
        if let [_] = keys {
            return self.delete_each(keys).await;
        }
        let document = xml::deletion(keys);
        // Stores require a digest of the document
        let digest = STANDARD.encode(Md5::digest(document.as_bytes()));
        let request = StoreRequest::of_bucket(Method::POST).query("delete", "").header(CONTENT_MD5, &digest);
        match self.client.call(request.header(header::CONTENT_TYPE, "application/xml").body(document)).await {
            Ok(response) => {
                let response: DeletionResponse = xml::parse(&response.document)?;
                match response.errors.into_iter().find(|error| error.code != "NoSuchKey") {
                    Some(error) => Err(StoreError::Refused { status: 200, code: error.code }.into()),
                    None => Ok(()),
                }
            }
            Err(StoreError::Refused { status: 400 | 405 | 501, .. }) => self.delete_each(keys).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a page of the objects whose keys begin with `prefix`.
    async fn objects(&self, prefix: &str, delimiter: &str, token: Option<&str>) -> Result<ObjectPage, StoreError> {
        let mut request = StoreRequest::of_bucket(Method::GET).query("list-type", "2").query("prefix", prefix);
        if !delimiter.is_empty() {
            request = request.query("delimiter", delimiter);
        }
        if let Some(token) = token {
            request = request.query("continuation-token", token);
        }
        xml::parse(&self.client.call(request).await?.document)
    }

    /// Returns the uploads of which nothing has arrived for `grace`.
    async fn abandoned_uploads(&self, grace: Duration) -> Result<Vec<ListedUpload>, StoreError> {
        let mut abandoned = Vec::new();
        let mut markers: Option<(String, String)> = None;
        loop {
            let mut request = StoreRequest::of_bucket(Method::GET).query("uploads", "").query("prefix", &self.prefix);
            if let Some((key, id)) = &markers {
                request = request.query("key-marker", key).query("upload-id-marker", id);
            }
            let page: UploadPage = xml::parse(&self.client.call(request).await?.document)?;
            for upload in page.uploads {
                match self.is_abandoned(&upload, grace).await {
                    Ok(true) => abandoned.push(upload),
                    Ok(false) => {}
                    // It has ended since
                    Err(error) if error.is("NoSuchUpload") => {}
                    Err(error) => return Err(error),
                }
            }
            let next = page.next_key_marker.zip(page.next_upload_id_marker).filter(|_| page.is_truncated);
            if next.is_none() || next == markers {
                return Ok(abandoned);
            }
            markers = next;
        }
    }

    /// Returns true if nothing of an upload has arrived for `grace`.
    async fn is_abandoned(&self, upload: &ListedUpload, grace: Duration) -> Result<bool, StoreError> {
        if !is_old(&upload.initiated, grace) {
            return Ok(false);
        }
        let mut marker: Option<String> = None;
        loop {
            let mut request = StoreRequest::of_object(Method::GET, &upload.key).query("uploadId", &upload.upload_id);
            if let Some(marker) = &marker {
                request = request.query("part-number-marker", marker);
            }
            let page: PartPage = xml::parse(&self.client.call(request).await?.document)?;
            if page.parts.iter().any(|part| !is_old(&part.last_modified, grace)) {
                return Ok(false);
            }
            let next = page.next_part_number_marker.filter(|_| page.is_truncated);
            if next.is_none() || next == marker {
                return Ok(true);
            }
            marker = next;
        }
    }
}

impl Backend for S3Store {
    fn put<'a>(
        &'a self,
        at: &'a VersionKey,
        content: ContentStream<'a>,
        limit: u64,
    ) -> BackendFuture<'a, StoredContent> {
        Box::pin(async move { self.put_at(&self.key(at), content, limit).await })
    }

    fn get<'a>(&'a self, at: &'a VersionKey, range: Option<ByteRange>) -> BackendFuture<'a, OpenContent> {
        Box::pin(content::open(&self.client, self.key(at), range))
    }

    fn exists<'a>(&'a self, at: &'a VersionKey) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            // The response to HEAD does not tell a lost object from a wrong bucket
            match content::open(&self.client, self.key(at), None).await {
                Err(BackendError::NotFound) => Ok(false),
                opened => opened.map(|_| true),
            }
        })
    }

    fn copy<'a>(&'a self, from: &'a VersionKey, to: &'a VersionKey) -> BackendFuture<'a, StoredContent> {
        Box::pin(async move {
            let (from, to) = (self.key(from), self.key(to));
            let size = self.size(&from).await?;
            self.copy_key(&from, &to, size).await?;
            Ok(StoredContent { etag: None, size, modified: self.client.now() })
        })
    }

    fn delete<'a>(&'a self, at: &'a VersionKey) -> BackendFuture<'a, ()> {
        Box::pin(async move { self.delete_keys(&[self.key(at)]).await })
    }

    fn delete_many<'a>(&'a self, versions: &'a [VersionKey]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            for versions in versions.chunks(DELETED_AT_ONCE) {
                let keys: Vec<String> = versions.iter().map(|at| self.key(at)).collect();
                self.delete_keys(&keys).await?;
            }
            Ok(())
        })
    }

    fn versions<'a>(&'a self, bucket: &'a str, name: &'a str) -> BackendFuture<'a, Vec<KeptVersion>> {
        Box::pin(async move {
            let folder = key::folder_of(&self.prefix, bucket, name);
            let mut kept = Vec::new();
            let mut next = Some(self.objects(&folder, "/", None).await?);
            while let Some(page) = next {
                for object in page.contents {
                    let Some(version) = key::version_of(&folder, &object.key) else { continue };
                    let since = since(&object.last_modified)?;
                    kept.push(KeptVersion { key: VersionKey::new(bucket, name, Some(version)), since });
                }
                next = match page.next_continuation_token {
                    Some(token) => Some(self.objects(&folder, "/", Some(&token)).await?),
                    None => None,
                };
            }
            Ok(kept)
        })
    }

    fn path(&self, at: &VersionKey) -> String {
        self.key(at)
    }

    fn check(&self) -> BackendFuture<'_, ()> {
        let request = StoreRequest::of_bucket(Method::GET).query("list-type", "2").query("max-keys", "1");
        Box::pin(async move { Ok(self.client.call(request).await.map(drop)?) })
    }

    fn walk(&self, files: mpsc::Sender<StoredFile>) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let mut next = Some(self.objects(&self.prefix, "", None).await?);
            while let Some(page) = next {
                for object in page.contents {
                    let is_version = key::is_version(&self.prefix, &object.key);
                    let since = since(&object.last_modified)?;
                    let file = StoredFile { path: object.key, size: object.size, since, is_version };
                    if files.send(file).await.is_err() {
                        return Ok(());
                    }
                }
                next = match page.next_continuation_token {
                    Some(token) => Some(self.objects(&self.prefix, "", Some(&token)).await?),
                    None => None,
                };
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, paths: &'a [String]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            for keys in paths.chunks(DELETED_AT_ONCE) {
                self.delete_keys(keys).await?;
            }
            Ok(())
        })
    }

    fn interrupted(&self, grace: Duration) -> BackendFuture<'_, u64> {
        Box::pin(async move { Ok(self.abandoned_uploads(grace).await?.len() as u64) })
    }

    fn sweep(&self, grace: Duration) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            for upload in self.abandoned_uploads(grace).await? {
                upload::abort(&self.client, &upload.key, &upload.upload_id).await?;
            }
            Ok(())
        })
    }
}

/// Parses a time of the store.
fn since(time: &str) -> Result<SystemTime, StoreError> {
    parse_timestamp(time).map(SystemTime::from).ok_or(StoreError::Malformed)
}

/// Returns true for a time that is at least `grace` ago.
pub(super) fn is_old(time: &str, grace: Duration) -> bool {
    since(time).is_ok_and(|since| since.elapsed().is_ok_and(|age| age >= grace))
}
