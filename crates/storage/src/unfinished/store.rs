//! Unfinished uploads on disk: for each one a file with its bytes and a record.
//!
//! A record is replaced as a whole, and only after the bytes that it counts are durable. So the
//! offset in the record is the truth: what a crash leaves behind it in the file is cut off.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use portico_base::spawn_blocking;
use time::OffsetDateTime;
use uuid::Uuid;

use super::partial_content::{PartialContent, open_behind};
use super::record::{UploadProgress, UploadRecord};
use crate::backend::BackendError;
use crate::backend::content_writer::AlignedBuffers;
use crate::backend::flush::{flush_content, flush_folder};
use crate::backend::piece_hasher::PieceHasher;
use crate::backend::piece_permit::PiecePermits;

/// The ending of the names of files with bytes.
const BYTES: &str = "bytes";
/// The ending of the names of records.
const RECORD: &str = "json";
/// The ending of the names of files that are being written.
const DRAFT: &str = "new";

/// The folder of the unfinished uploads. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct UploadStore {
    folder: PathBuf,
    /// The permits of those that are written.
    pub permits: PiecePermits,
    pub(super) hasher: PieceHasher,
    pub(super) buffers: AlignedBuffers,
}

impl UploadStore {
    /// Opens the folder. It is made if it does not exist, closed to other users.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if let Some(parent) = folder.parent() {
            flush_folder(parent)?;
        }
        let permits = PiecePermits::default();
        Ok(Self {
            folder: folder.to_owned(),
            hasher: PieceHasher::new(&permits),
            permits,
            buffers: AlignedBuffers::default(),
        })
    }

    /// Returns the unfinished uploads that count for a requester.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn unfinished(&self) -> io::Result<Vec<(Uuid, String)>> {
        let mut unfinished = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|ending| ending != RECORD) {
                continue;
            }
            let version = path.file_stem().and_then(|stem| Uuid::try_parse(stem.to_str()?).ok());
            let record = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<UploadRecord>(&text).ok());
            let requester = record.filter(|record| !record.is_finished).and_then(|record| record.requester);
            unfinished.extend(version.zip(requester));
        }
        Ok(unfinished)
    }

    fn path(&self, version: Uuid, ending: &str) -> PathBuf {
        self.folder.join(format!("{version}.{ending}"))
    }

    /// Returns the file with the bytes of an upload.
    pub fn bytes_of(&self, version: Uuid) -> PathBuf {
        self.path(version, BYTES)
    }

    /// Creates an upload without bytes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn create(&self, version: Uuid, record: &UploadRecord) -> Result<(), BackendError> {
        let path = self.bytes_of(version);
        blocking(move || {
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            Ok(())
        })
        .await?;
        self.save(version, record).await
    }

    /// Returns the record of an upload; `None` if there is no such upload.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn load(&self, version: Uuid) -> Result<Option<UploadRecord>, BackendError> {
        let path = self.path(version, RECORD);
        blocking(move || match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?).map_err(io::Error::from)?)),
        })
        .await
    }

    /// Replaces the record of an upload. When this returns, it is durable.
    ///
    /// # Errors
    /// When it cannot be written; the record is as before then.
    pub async fn save(&self, version: Uuid, record: &UploadRecord) -> Result<(), BackendError> {
        let (path, draft, folder) = (self.path(version, RECORD), self.path(version, DRAFT), self.folder.clone());
        let text = serde_json::to_vec(record).map_err(|error| BackendError::Io(error.into()))?;
        blocking(move || {
            let written = write_draft(&draft, &text).and_then(|()| fs::rename(&draft, &path));
            if let Err(error) = written {
                let _ = fs::remove_file(&draft);
                return Err(error.into());
            }
            Ok(flush_folder(&folder)?)
        })
        .await
    }

    /// Deletes an upload: the record first, so that nothing is left that has no bytes.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub async fn remove(&self, version: Uuid) -> Result<(), BackendError> {
        let files = [RECORD, BYTES, DRAFT].map(|ending| self.path(version, ending));
        blocking(move || {
            for file in files {
                remove_file(&file)?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes the bytes of a finished upload.
    ///
    /// # Errors
    /// When they cannot be deleted.
    pub async fn remove_bytes(&self, version: Uuid) -> Result<(), BackendError> {
        let path = self.bytes_of(version);
        blocking(move || Ok(remove_file(&path)?)).await
    }

    /// Opens the bytes of an upload behind its offset. Space is reserved for no more than `limit`.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if bytes that the record counts are lost.
    pub async fn append_to(
        &self,
        version: Uuid,
        progress: &UploadProgress,
        limit: u64,
    ) -> Result<PartialContent, BackendError> {
        let (store, progress) = (self.clone(), progress.clone());
        blocking(move || {
            let (path, draft) = (store.bytes_of(version), store.path(version, DRAFT));
            let digest = progress.digest().ok_or(BackendError::NotFound)?;
            let writer = open_behind(&path, &draft, progress.offset, limit)?;
            Ok(PartialContent::new(path, writer, digest, store, limit))
        })
        .await
    }

    /// Returns the uploads that have expired. Deletes files without a record that did not change
    /// for `grace`.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub async fn expired(&self, now: OffsetDateTime, grace: Duration) -> Result<Vec<Uuid>, BackendError> {
        let store = self.clone();
        blocking(move || {
            let mut expired = Vec::new();
            for entry in fs::read_dir(&store.folder)? {
                let path = entry?.path();
                let stem = path.file_stem().and_then(|stem| stem.to_str());
                let Some(version) = stem.and_then(|stem| Uuid::try_parse(stem).ok()) else { continue };
                if path.extension().is_some_and(|ending| ending == RECORD) {
                    // A failure to read says nothing about the upload
                    let Ok(text) = fs::read(&path) else { continue };
                    let record: Option<UploadRecord> = serde_json::from_slice(&text).ok();
                    // One that makes no sense is of no use to any client
                    if record.is_none_or(|record| record.has_expired(now)) {
                        expired.push(version);
                    }
                } else if !store.path(version, RECORD).exists() && is_older_than(&path, grace) {
                    remove_file(&path)?;
                }
            }
            Ok(expired)
        })
        .await
    }
}

/// Runs work on files on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(BackendError::Io(io::Error::other(error))))
}

fn write_draft(draft: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    file.write_all(text)?;
    flush_content(draft, &file)
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn is_older_than(path: &Path, age: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|elapsed| elapsed >= age))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;

    use bytes::Bytes;
    use md5::{Digest as _, Md5};

    use super::*;
    use crate::backend::flush::flushes;
    use crate::backend::piece_hasher::Piece;

    fn record() -> UploadRecord {
        UploadRecord {
            bucket: "b".into(),
            name: "n".into(),
            length: Some(10),
            metadata: String::new(),
            requester: None,
            subject: None,
            expires: 1000,
            progress: UploadProgress::default(),
            commit: None,
            is_finished: false,
        }
    }

    async fn append(content: PartialContent, bytes: &'static [u8]) -> PartialContent {
        let piece = Piece { chunks: vec![Bytes::from_static(bytes)], _permit: PiecePermits::default().acquire().await };
        let (content, outcome) = content.append(piece).await;
        outcome.unwrap();
        content.unwrap()
    }

    #[tokio::test]
    async fn bytes_are_on_disk_before_the_record_that_counts_them() {
        let root = tempfile::tempdir().unwrap();
        let flushed = || {
            flushes::take(root.path()).into_iter().map(|(path, mut names)| {
                names.sort();
                (path, names)
            })
        };
        let (store, version) = (UploadStore::open(&root.path().join("uploads")).unwrap(), Uuid::from_u128(1));
        assert!(flushed().eq([(String::new(), vec!["uploads".to_owned()])]));
        let [bytes, record_file, draft] = [BYTES, RECORD, DRAFT].map(|ending| format!("{version}.{ending}"));
        let record_flushes = || {
            [(format!("uploads/{draft}"), Vec::new()), ("uploads".to_owned(), vec![bytes.clone(), record_file.clone()])]
        };
        store.create(version, &record()).await.unwrap();
        assert!(flushed().eq(record_flushes()));
        let content = store.append_to(version, &UploadProgress::default(), u64::MAX).await.unwrap();
        let (_, progress) = append(content, b"hello").await.flush().await.unwrap();
        assert!(flushed().eq([(format!("uploads/{bytes}"), Vec::new())]));
        store.save(version, &UploadRecord { progress, ..record() }).await.unwrap();
        assert!(flushed().eq(record_flushes()));
    }

    #[tokio::test]
    async fn uploads_that_are_hashed_together_have_their_own_digests() {
        let folder = tempfile::tempdir().unwrap();
        let store = UploadStore::open(folder.path()).unwrap();
        let uploads = (0..3 * portico_md5::MAX_LANES).map(|number| {
            let store = &store;
            async move {
                let version = Uuid::from_u128(number as u128);
                store.create(version, &record()).await.unwrap();
                let half: Vec<u8> = (0..number * 999).map(|at| (at * 31 + number) as u8).collect();
                let mut progress = UploadProgress::default();
                let mut etag = String::new();
                for _ in 0..2 {
                    let content = store.append_to(version, &progress, u64::MAX).await.unwrap();
                    let chunks = half.chunks(1000).map(Bytes::copy_from_slice).collect();
                    let piece = Piece { chunks, _permit: store.permits.acquire().await };
                    let (content, outcome) = content.append(piece).await;
                    outcome.unwrap();
                    let (content, flushed) = content.unwrap().flush().await.unwrap();
                    (progress, etag) = (flushed, content.etag());
                }
                let whole = half.repeat(2);
                assert_eq!(etag, format!("\"{}\"", hex::encode(Md5::digest(&whole))), "upload {number}");
                assert_eq!(fs::read(store.bytes_of(version)).unwrap(), whole, "upload {number}");
            }
        });
        futures_util::future::join_all(uploads).await;
    }

    #[tokio::test]
    async fn content_whose_file_cannot_be_set_back_is_lost_and_the_record_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (store, version) = (UploadStore::open(folder.path()).unwrap(), Uuid::from_u128(1));
        store.create(version, &record()).await.unwrap();
        let content = store.append_to(version, &UploadProgress::default(), u64::MAX).await.unwrap();
        let (mut content, progress) = append(content, b"hello").await.flush().await.unwrap();
        // Neither writing nor cutting off is possible
        content.writer.file = File::open(store.bytes_of(version)).unwrap();
        let piece = Piece { chunks: vec![Bytes::from_static(b" you")], _permit: store.permits.acquire().await };
        assert!(matches!(content.append(piece).await, (None, Err(BackendError::Io(_)))));
        let content = append(store.append_to(version, &progress, u64::MAX).await.unwrap(), b" me").await;
        assert_eq!(content.etag(), format!("\"{}\"", hex::encode(Md5::digest(b"hello me"))));
        assert_eq!(fs::read(store.bytes_of(version)).unwrap(), b"hello me");
    }

    #[tokio::test]
    async fn large_pieces_are_whole_wherever_a_request_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (store, version) = (UploadStore::open(folder.path()).unwrap(), Uuid::from_u128(1));
        store.create(version, &record()).await.unwrap();
        let whole: Vec<u8> = (0..2_000_003_u32).map(|at| (at * 31 % 251) as u8).collect();
        let mut progress = UploadProgress::default();
        for (number, piece) in whole.chunks(150_001).enumerate() {
            let mut content = store.append_to(version, &progress, whole.len() as u64).await.unwrap();
            // In the second half of the file, a request has one piece
            for piece in if number < 7 { piece.chunks(100_000) } else { piece.chunks(piece.len()) } {
                let chunks = vec![Bytes::copy_from_slice(piece)];
                let piece = Piece { chunks, _permit: store.permits.acquire().await };
                let (appended, outcome) = content.append(piece).await;
                outcome.unwrap();
                content = appended.unwrap();
            }
            let (content, flushed) = content.flush().await.unwrap();
            assert_eq!(content.etag(), format!("\"{}\"", hex::encode(Md5::digest(&whole[..flushed.offset as usize]))));
            assert!(fs::read(store.bytes_of(version)).unwrap() == whole[..flushed.offset as usize]);
            progress = flushed;
        }
        assert_eq!(progress.offset, whole.len() as u64);
    }

    #[tokio::test]
    async fn what_is_given_up_takes_no_space() {
        let folder = tempfile::tempdir().unwrap();
        let (store, version) = (UploadStore::open(folder.path()).unwrap(), Uuid::from_u128(1));
        store.create(version, &record()).await.unwrap();
        let content = store.append_to(version, &UploadProgress::default(), u64::MAX).await.unwrap();
        let (content, _) = append(content, b"hello").await.flush().await.unwrap();
        let chunks = vec![Bytes::from(vec![b'x'; 200_001])];
        let piece = Piece { chunks, _permit: store.permits.acquire().await };
        let (content, outcome) = content.append(piece).await;
        outcome.unwrap();
        drop(content);
        let metadata = fs::metadata(store.bytes_of(version)).unwrap();
        assert_eq!(metadata.len(), 5);
        assert!(metadata.blocks() * 512 < 64 * 1024, "{} blocks", metadata.blocks());
    }

    #[tokio::test]
    async fn bytes_that_the_record_does_not_count_are_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let (store, version) = (UploadStore::open(folder.path()).unwrap(), Uuid::from_u128(1));
        store.create(version, &record()).await.unwrap();
        let content = store.append_to(version, &UploadProgress::default(), u64::MAX).await.unwrap();
        let (content, progress) = append(content, b"hello ").await.flush().await.unwrap();
        store.save(version, &UploadRecord { progress, ..record() }).await.unwrap();
        // The process crashes behind this
        std::mem::forget(append(content, b"torn").await);
        let found = UploadStore::open(folder.path()).unwrap().load(version).await.unwrap().unwrap();
        assert_eq!(found.progress.offset, 6);
        let content = append(store.append_to(version, &found.progress, u64::MAX).await.unwrap(), b"you").await;
        assert_eq!(content.etag(), format!("\"{}\"", hex::encode(Md5::digest(b"hello you"))));
        assert_eq!(fs::read(store.bytes_of(version)).unwrap(), b"hello you");
    }

    #[tokio::test]
    async fn bytes_that_are_the_content_of_a_version_do_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let (store, version) = (UploadStore::open(folder.path()).unwrap(), Uuid::from_u128(1));
        store.create(version, &record()).await.unwrap();
        let content = store.append_to(version, &UploadProgress::default(), u64::MAX).await.unwrap();
        let (_, progress) = append(content, b"hello").await.flush().await.unwrap();
        let linked = folder.path().join("version");
        fs::hard_link(store.bytes_of(version), &linked).unwrap();
        flushes::take(folder.path());
        let copied = store.append_to(version, &progress, u64::MAX).await.unwrap();
        assert_eq!(flushes::take(folder.path()), [(format!("{version}.new"), Vec::new())], "the copy replaces it");
        let _appended = append(copied, b" you").await;
        assert_eq!(
            (fs::read(linked).unwrap(), fs::read(store.bytes_of(version)).unwrap()),
            (b"hello".to_vec(), b"hello you".to_vec())
        );
    }

    #[tokio::test]
    async fn lost_bytes_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (store, version) = (UploadStore::open(folder.path()).unwrap(), Uuid::from_u128(1));
        store.create(version, &record()).await.unwrap();
        let (_, progress) =
            append(store.append_to(version, &UploadProgress::default(), u64::MAX).await.unwrap(), b"hello")
                .await
                .flush()
                .await
                .unwrap();
        fs::write(store.bytes_of(version), b"hell").unwrap();
        assert!(matches!(store.append_to(version, &progress, u64::MAX).await, Err(BackendError::NotFound)));
    }

    #[tokio::test]
    async fn expired_uploads_and_files_without_a_record_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let store = UploadStore::open(folder.path()).unwrap();
        let [old, young, broken] = [1, 2, 3].map(Uuid::from_u128);
        store.create(old, &record()).await.unwrap();
        store.create(young, &UploadRecord { expires: 2000, ..record() }).await.unwrap();
        fs::write(store.path(broken, RECORD), "{").unwrap();
        let alone = store.bytes_of(Uuid::from_u128(4));
        fs::write(&alone, "x").unwrap();
        let now = OffsetDateTime::from_unix_timestamp(1500).unwrap();
        let mut expired = store.expired(now, Duration::from_secs(3600)).await.unwrap();
        expired.sort();
        assert_eq!((expired, alone.exists()), (vec![old, broken], true));
        store.expired(now, Duration::ZERO).await.unwrap();
        assert!(!alone.exists() && store.bytes_of(young).exists());
        store.remove(old).await.unwrap();
        store.remove(old).await.unwrap();
        assert_eq!(store.load(old).await.unwrap(), None);
    }
}
