//! Buckets and objects of the project folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use portico_base::hash;
use tokio::io::AsyncReadExt;

use crate::bucket::{self, BucketChanges, NewBucket};
use crate::error::StorageError;
use crate::identity::Owner;
use crate::name::ObjectPath;
use crate::object::download::{self, ReadRule};
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
    /// The service rejected a bucket, or a change of one.
    #[error("the bucket {name} could not be made or changed: {message}")]
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
    /// The record of a bucket that is being filled could not be written.
    #[error("{} could not be written: {source}", path.display())]
    Record {
        /// The file of the record.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Several buckets or files could not be stored.
    #[error("{}", lines(.0))]
    Several(Vec<SeedError>),
}

/// Returns a line for each error.
fn lines(errors: &[SeedError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The record that not all files of a bucket may be uploaded yet: a file in the folder of the
/// server. It is there from before the bucket is created until the last file is stored, so that the
/// next start continues what has failed or was interrupted.
struct SeedRecord(PathBuf);

impl SeedRecord {
    fn of(storage: &Storage, bucket: &str) -> Self {
        let folder = storage.service().settings.backend.folder().join("seeding");
        Self(folder.join(hash::sha256_hex(bucket.as_bytes())))
    }

    fn exists(&self) -> bool {
        self.0.exists()
    }

    fn write(&self) -> Result<(), SeedError> {
        let written = || {
            fs::create_dir_all(self.0.parent().unwrap_or(&self.0))?;
            fs::File::create(&self.0)?.sync_all()
        };
        written().map_err(|source| SeedError::Record { path: self.0.clone(), source })
    }

    fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(error = %error, "the record of a bucket that is being filled could not be removed");
        }
    }
}

impl Storage {
    /// Creates buckets and uploads the files of their folders. Calls `progress` with a line before
    /// each bucket and each file; `shown_from` is the folder that the paths in it begin at.
    ///
    /// A bucket whose files were not all uploaded is continued, also if it is kept: then with the
    /// files that no object has the name of.
    ///
    /// # Errors
    /// When buckets or files cannot be stored. The others are stored all the same.
    pub async fn seed(
        &self,
        buckets: &[SeedBucket],
        existing: ExistingBuckets,
        shown_from: &Path,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), SeedError> {
        let mut failures = Vec::new();
        for bucket in buckets {
            if let Err(failed) = self.seed_bucket(bucket, existing, shown_from, progress).await {
                failures.extend(failed);
            }
        }
        match failures.pop() {
            None => Ok(()),
            Some(only) if failures.is_empty() => Err(only),
            Some(last) => {
                failures.push(last);
                Err(SeedError::Several(failures))
            }
        }
    }

    async fn seed_bucket(
        &self,
        bucket: &SeedBucket,
        existing: ExistingBuckets,
        shown_from: &Path,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Vec<SeedError>> {
        let record = SeedRecord::of(self, &bucket.name);
        let begin = || if bucket.objects.is_some() { record.write().map_err(|error| vec![error]) } else { Ok(()) };
        let operation = Operation::of_program(self.service(), "storage.bucket.create", &Method::POST, "/bucket");
        let failed = |error: StorageError| {
            vec![SeedError::Bucket { name: bucket.name.clone(), message: error.message().into_owned() }]
        };
        let is_known = match bucket::get(&operation, Actor::Service, &bucket.name).await {
            Ok(_) => true,
            Err(StorageError::NoSuchBucket) => false,
            Err(error) => return Err(failed(error)),
        };
        match (is_known, existing) {
            (true, ExistingBuckets::Keep) if !record.exists() => return Ok(()),
            (true, ExistingBuckets::Keep) => progress(format!("Continuing Storage bucket: {}", bucket.name)),
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
                begin()?;
                bucket::create(&operation, Actor::Service, &new).await.map_err(failed)?;
            }
        }
        let keeps = is_known && existing == ExistingBuckets::Keep;
        self.seed_objects(bucket, keeps, shown_from, progress).await?;
        record.remove();
        Ok(())
    }

    /// Uploads the files of a bucket, with `keeps` only those that no object has the name of.
    async fn seed_objects(
        &self,
        bucket: &SeedBucket,
        keeps: bool,
        shown_from: &Path,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Vec<SeedError>> {
        let Some(folder) = &bucket.objects else { return Ok(()) };
        let files = files_below(folder).map_err(|source| vec![SeedError::Read { path: folder.clone(), source }])?;
        let uploads = files.into_iter().map(|file| async move {
            let key = match file.strip_prefix(folder) {
                // The path is that of one file
                Ok(below) if below.as_os_str().is_empty() => Path::new(file.file_name().unwrap_or_default()),
                below => below.unwrap_or(&file),
            };
            let key = key.to_string_lossy().into_owned();
            if keeps && self.has_object(&bucket.name, &key).await {
                return Ok(());
            }
            let shown = file.strip_prefix(shown_from).unwrap_or(&file);
            progress(format!("Uploading: {} => {}/{key}", shown.display(), bucket.name));
            self.seed_object(bucket, key, &file).await
        });
        let outcomes: Vec<Result<(), SeedError>> = stream::iter(uploads).buffer_unordered(AT_ONCE).collect().await;
        let failures: Vec<SeedError> = outcomes.into_iter().filter_map(Result::err).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    async fn has_object(&self, bucket: &str, name: &str) -> bool {
        let path = ObjectPath { bucket: bucket.to_owned(), name: name.to_owned() };
        let operation = Operation::of_program(self.service(), "storage.object.upload_update", &Method::PUT, "/object");
        download::find(&operation, ReadRule::SignedUrl, &path).await.is_ok()
    }

    async fn seed_object(&self, bucket: &SeedBucket, name: String, file: &Path) -> Result<(), SeedError> {
        let unreadable = |source| SeedError::Read { path: file.to_owned(), source };
        let mut opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
        let size = opened.metadata().await.map_err(unreadable)?.len();
        let mut start = vec![0; 512];
        let read = opened.read(&mut start).await.map_err(unreadable)?;
        start.truncate(read);
        let mimetype = allowed_form(content_type(file, &start), &bucket.allowed_mime_types);
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
            target: ObjectPath { bucket: bucket.name.clone(), name },
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

/// Returns a content type without its parameters where a list of types has only that form.
fn allowed_form<'a>(mimetype: &'a str, allowed: &[String]) -> &'a str {
    let bare = mimetype.split(';').next().unwrap_or(mimetype);
    let has = |form: &str| allowed.iter().any(|entry| entry == form);
    if has(bare) && !has(mimetype) { bare } else { mimetype }
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
