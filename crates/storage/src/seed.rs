//! Buckets and objects of the project folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use tokio::io::AsyncReadExt;

use crate::bucket::{self, BucketChanges, NewBucket};
use crate::error::StorageError;
use crate::identity::Owner;
use crate::name::ObjectPath;
use crate::object::upload::{self, ContentDescription, UploadAuthority, UploadRequest};
use crate::operation::{Actor, Operation};
use crate::storage::Storage;

/// The number of files that are uploaded at the same time.
const AT_ONCE: usize = 5;
/// The bytes of a file that are read at once.
const READ_SIZE: usize = 256 * 1024;

/// A bucket as the project describes it.
#[derive(Debug, Clone, Default)]
pub struct SeedBucket {
    /// Its id and name.
    pub name: String,
    /// True if everyone can read it; `None`: unchanged, and private if it is new.
    pub public: Option<bool>,
    /// The largest object in bytes; `None`: the global limit.
    pub file_size_limit: Option<u64>,
    /// The allowed content types; empty: all.
    pub allowed_mime_types: Vec<String>,
    /// The folder whose files are uploaded.
    pub objects: Option<PathBuf>,
}

/// The treatment of buckets that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingBuckets {
    /// They stay as they are, with what is in them.
    Keep,
    /// They are changed, and their objects are replaced by files of the same name.
    Update,
}

/// The reason why a bucket or a file could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The service rejected a bucket.
    #[error("the bucket {name} could not be made: {message}")]
    Bucket {
        /// The name of the bucket.
        name: String,
        /// The text of the service.
        message: String,
    },
    /// The service rejected a file.
    #[error("{} could not be stored: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The text of the service.
        message: String,
    },
    /// A folder or file could not be read.
    #[error("{} could not be read: {source}", path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Storage {
    /// Creates buckets and uploads the files of their folders. Calls `progress` with a line before
    /// each bucket and each file; `shown_from` is the folder that the paths in it begin at.
    ///
    /// # Errors
    /// When a bucket or file cannot be stored. Those before it stay.
    pub async fn seed(
        &self,
        buckets: &[SeedBucket],
        existing: ExistingBuckets,
        shown_from: &Path,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), SeedError> {
        for bucket in buckets {
            let operation = Operation::of_program(self.service(), "storage.bucket.create", &Method::POST, "/bucket");
            let failed = |error: StorageError| SeedError::Bucket {
                name: bucket.name.clone(),
                message: error.message().into_owned(),
            };
            let is_known = match bucket::get(&operation, Actor::Service, &bucket.name).await {
                Ok(_) => true,
                Err(StorageError::NoSuchBucket) => false,
                Err(error) => return Err(failed(error)),
            };
            match (is_known, existing) {
                (true, ExistingBuckets::Keep) => continue,
                (true, ExistingBuckets::Update) => {
                    progress(format!("Updating Storage bucket: {}", bucket.name));
                    let changes = BucketChanges {
                        public: bucket.public,
                        file_size_limit: Some(bucket.file_size_limit),
                        allowed_mime_types: Some(Some(bucket.allowed_mime_types.clone())),
                    };
                    bucket::update(&operation, Actor::Service, &bucket.name, &changes).await.map_err(failed)?;
                }
                (false, _) => {
                    progress(format!("Creating Storage bucket: {}", bucket.name));
                    let new = NewBucket {
                        id: bucket.name.clone(),
                        name: bucket.name.clone(),
                        public: bucket.public.unwrap_or_default(),
                        file_size_limit: bucket.file_size_limit,
                        allowed_mime_types: Some(bucket.allowed_mime_types.clone()),
                    };
                    bucket::create(&operation, Actor::Service, &new).await.map_err(failed)?;
                }
            }
            self.seed_objects(bucket, shown_from, progress).await?;
        }
        Ok(())
    }

    async fn seed_objects(
        &self,
        bucket: &SeedBucket,
        shown_from: &Path,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), SeedError> {
        let Some(folder) = &bucket.objects else { return Ok(()) };
        let files = files_below(folder).map_err(|source| SeedError::Read { path: folder.clone(), source })?;
        let uploads = files.into_iter().map(|file| async move {
            let key = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy().into_owned();
            let shown = file.strip_prefix(shown_from).unwrap_or(&file);
            progress(format!("Uploading: {} => {}/{key}", shown.display(), bucket.name));
            self.seed_object(&bucket.name, key, &file).await
        });
        stream::iter(uploads).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
    }

    async fn seed_object(&self, bucket: &str, name: String, file: &Path) -> Result<(), SeedError> {
        let unreadable = |source| SeedError::Read { path: file.to_owned(), source };
        let mut opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
        let size = opened.metadata().await.map_err(unreadable)?.len();
        let mut start = vec![0; 512];
        let read = opened.read(&mut start).await.map_err(unreadable)?;
        start.truncate(read);
        let mimetype = content_type(file, &start);
        let rest = stream::unfold(opened, |mut file| async move {
            let mut chunk = vec![0; READ_SIZE];
            match file.read(&mut chunk).await {
                Ok(0) => None,
                Ok(read) => {
                    chunk.truncate(read);
                    Some((Ok(Bytes::from(chunk)), file))
                }
                // The error of a sender that breaks off
                Err(_) => Some((Err(StorageError::Aborted), file)),
            }
        });
        let mut content = Box::pin(stream::iter([Ok(Bytes::from(start))]).chain(rest));
        let operation = Operation::of_program(self.service(), "storage.object.upload_update", &Method::PUT, "/object");
        let upload = UploadRequest {
            target: ObjectPath { bucket: bucket.to_owned(), name },
            upsert: true,
            content_length: Some(size),
            exact_size: Some(size),
            has_content: true,
            description: ContentDescription {
                mimetype: mimetype.to_owned(),
                cache_control: "max-age=3600".into(),
                robots_tag: None,
                user_metadata: Some("{}".into()),
            },
        };
        let authority = UploadAuthority::SignedUrl(Owner::default());
        let stored = upload::store(&operation, upload, authority, &mut content).await;
        stored
            .map(drop)
            .map_err(|error| SeedError::File { path: file.to_owned(), message: error.message().into_owned() })
    }
}

/// Returns the files below a folder in the order of their names, or the file itself. Links are not
/// followed.
fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if fs::symlink_metadata(folder)?.is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the content type of a file by its first bytes, else by its extension.
fn content_type(file: &Path, start: &[u8]) -> &'static str {
    const SIGNATURES: [(&[u8], &str); 9] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"%PDF-", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b\x08", "application/x-gzip"),
        (b"OggS\0", "application/ogg"),
        (b"ID3", "audio/mpeg"),
        (b"wOF2", "font/woff2"),
    ];
    const EXTENSIONS: [(&str, &str); 28] = [
        ("avif", "image/avif"),
        ("css", "text/css; charset=utf-8"),
        ("csv", "text/csv; charset=utf-8"),
        ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("gif", "image/gif"),
        ("htm", "text/html; charset=utf-8"),
        ("html", "text/html; charset=utf-8"),
        ("ico", "image/x-icon"),
        ("jpeg", "image/jpeg"),
        ("jpg", "image/jpeg"),
        ("js", "text/javascript; charset=utf-8"),
        ("json", "application/json"),
        ("md", "text/markdown; charset=utf-8"),
        ("mjs", "text/javascript; charset=utf-8"),
        ("mp3", "audio/mpeg"),
        ("mp4", "video/mp4"),
        ("ogg", "audio/ogg"),
        ("pdf", "application/pdf"),
        ("png", "image/png"),
        ("svg", "image/svg+xml"),
        ("txt", "text/plain; charset=utf-8"),
        ("wasm", "application/wasm"),
        ("wav", "audio/wav"),
        ("webm", "video/webm"),
        ("webp", "image/webp"),
        ("woff", "font/woff"),
        ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("xml", "text/xml; charset=utf-8"),
    ];
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    let by_extension = EXTENSIONS.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind);
    let by_content = SIGNATURES.iter().find(|(signature, _)| start.starts_with(signature)).map(|(_, kind)| *kind);
    let is_webp = start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP");
    let is_text =
        || std::str::from_utf8(start).map_or_else(|error| error.error_len().is_none(), |text| !text.contains('\0'));
    match (by_content, by_extension) {
        // Office documents are archives
        (Some("application/zip"), Some(kind)) => kind,
        (Some(kind), _) => kind,
        _ if is_webp => "image/webp",
        (None, Some(kind)) => kind,
        (None, None) if is_text() => "text/plain; charset=utf-8",
        (None, None) => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_follow_from_the_content_and_the_extension() {
        for (file, start, kind) in [
            ("a.txt", &b"\x89PNG\r\n\x1a\n"[..], "image/png"),
            ("a.DOCX", b"PK\x03\x04", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
            ("a.zip", b"PK\x03\x04", "application/zip"),
            ("a.svg", b"<svg", "image/svg+xml"),
            ("a.webp", b"RIFF1234WEBP", "image/webp"),
            ("README", b"hello", "text/plain; charset=utf-8"),
            ("README", b"hell\xc3", "text/plain; charset=utf-8"),
            ("x", b"\0\x01\xff", "application/octet-stream"),
        ] {
            assert_eq!(content_type(Path::new(file), start), kind, "{file}");
        }
    }
}
