//! The folder and its versions.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::future;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::buffer::ReadBuffers;
use super::content;
use super::draft::{Draft, DraftFolder, place_in, publish, remove_empty};
use super::durable::DurableFolders;
use super::file::{blocking, changed};
use super::small_contents::SmallContents;
use super::writers::{FinishDraft, HashedDraft, PieceWriters};
use crate::backend::disk_threads::DiskThreads;
use crate::backend::flush::{flush_content, flush_folder};
use crate::backend::interface::Backend;
use crate::backend::model::{
    BackendError, BackendFuture, ByteRange, ContentStream, KeptVersion, OpenContent, StoredContent, StoredFile,
    VersionKey,
};
use crate::backend::path;
use crate::backend::piece_permit::PiecePermits;

/// The size from which on versions are deleted one at a time. Some disks do little else meanwhile,
/// so a dozen deletions at once would stop all uploads.
const LARGE_SIZE: u64 = 16 * 1024 * 1024;

/// A folder with content.
pub(crate) struct ContentFolder {
    pub(super) objects: PathBuf,
    pub(super) incoming: DraftFolder,
    /// The parts of versions that are not assembled yet.
    pub(super) multipart: PathBuf,
    pub(super) folders: Arc<DurableFolders>,
    /// The permits of uploads.
    pub(super) permits: PiecePermits,
    /// The threads that write uploads.
    pub(super) writers: PieceWriters,
    /// The threads that flush content.
    pub(super) flushing: DiskThreads,
    /// The threads that give versions their names. They need not wait for large files.
    naming: DiskThreads,
    /// The threads that delete versions, and the one that deletes large ones.
    deleting: DiskThreads,
    deleting_large: DiskThreads,
    /// The buffers of downloads.
    buffers: Arc<ReadBuffers>,
    /// The content of small versions that were read.
    small: Arc<SmallContents>,
}

impl ContentFolder {
    /// Opens the folder. It is made if it does not exist, closed to other users.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: &Path) -> io::Result<Self> {
        let (objects, incoming, multipart) = (root.join("objects"), root.join("incoming"), root.join("multipart"));
        for folder in [&objects, &incoming, &multipart] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        flush_folder(root)?;
        let permits = PiecePermits::default();
        Ok(Self {
            objects,
            incoming: DraftFolder::new(incoming),
            multipart,
            folders: Arc::default(),
            writers: PieceWriters::new(&permits),
            permits,
            flushing: DiskThreads::default(),
            naming: DiskThreads::default(),
            deleting: DiskThreads::default(),
            deleting_large: DiskThreads::new(1),
            buffers: Arc::default(),
            small: Arc::default(),
        })
    }

    pub(super) fn place(&self, key: &VersionKey) -> PathBuf {
        self.objects.join(path::of(key))
    }

    /// Returns the function that publishes a draft as a version, see [`publish`].
    fn publish(&self, place: PathBuf) -> FinishDraft {
        let (folders, root) = (Arc::clone(&self.folders), self.objects.clone());
        Box::new(move |writer| Ok(publish(&mut writer.draft, &writer.content.file, &folders, &root, &place)?))
    }

    /// Gives a durable file a second name, or copies it where that is not possible.
    async fn link(&self, from: PathBuf, to: PathBuf) -> Result<StoredContent, BackendError> {
        let (root, folders) = (self.objects.clone(), Arc::clone(&self.folders));
        let draft = self.incoming.new_path();
        let naming = move || {
            match place_in(&folders, &root, &to, || fs::hard_link(&from, &to)) {
                // The file has too many names, or the file system knows only one or is another one
                Err(error) if matches!(error.raw_os_error(), Some(MLINK | PERM | NOT_SUPPORTED | OTHER_DEVICE)) => {
                    let mut draft = Draft::new(draft);
                    fs::copy(&from, draft.path())?;
                    let copy = File::open(draft.path())?;
                    publish(&mut draft, &copy, &folders, &root, &to)?;
                }
                linked => linked?,
            }
            let metadata = fs::metadata(&to)?;
            Ok(StoredContent { etag: None, size: metadata.len(), modified: changed(&metadata).into() })
        };
        self.naming.run(naming).await
    }
}

impl Backend for ContentFolder {
    fn put<'a>(
        &'a self,
        at: &'a VersionKey,
        content: ContentStream<'a>,
        limit: u64,
    ) -> BackendFuture<'a, StoredContent> {
        Box::pin(async move {
            let (HashedDraft { writer, digest }, size) =
                self.receive(content, limit, self.publish(self.place(at))).await?;
            let etag = Some(format!("\"{}\"", hex::encode(digest.finish())));
            Ok(StoredContent { etag, size, modified: changed(&writer.content.file.metadata()?).into() })
        })
    }

    fn get<'a>(&'a self, at: &'a VersionKey, range: Option<ByteRange>) -> BackendFuture<'a, OpenContent> {
        let missed = match self.small.get(at) {
            Ok(content) => return Box::pin(future::ready(content::in_memory(&content, range))),
            Err(missed) => missed,
        };
        Box::pin(async move {
            let (content, read) = content::open(self.place(at), range, Arc::clone(&self.buffers)).await?;
            if let Some(read) = read {
                self.small.keep(at.clone(), &read, missed);
            }
            Ok(content)
        })
    }

    fn exists<'a>(&'a self, at: &'a VersionKey) -> BackendFuture<'a, bool> {
        let place = self.place(at);
        Box::pin(blocking(move || match fs::metadata(place).map_err(BackendError::from) {
            Err(BackendError::NotFound) => Ok(false),
            metadata => Ok(metadata?.is_file()),
        }))
    }

    fn put_file<'a>(&'a self, at: &'a VersionKey, path: &'a Path) -> BackendFuture<'a, StoredContent> {
        let (path, source) = (path.to_owned(), path.to_owned());
        Box::pin(async move {
            self.flushing.run(move || flush_content(&source, &File::open(&source)?)).await?;
            self.link(path, self.place(at)).await
        })
    }

    fn copy<'a>(&'a self, from: &'a VersionKey, to: &'a VersionKey) -> BackendFuture<'a, StoredContent> {
        Box::pin(self.link(self.place(from), self.place(to)))
    }

    fn delete<'a>(&'a self, at: &'a VersionKey) -> BackendFuture<'a, ()> {
        let (root, place) = (self.objects.clone(), self.place(at));
        let (small, at) = (Arc::clone(&self.small), at.clone());
        Box::pin(async move {
            let large = self.deleting.run(move || {
                let is_large = fs::metadata(&place).is_ok_and(|metadata| metadata.len() >= LARGE_SIZE);
                if is_large {
                    return Ok(Some((root, place)));
                }
                remove(&root, &place)?;
                // Behind the removal: nothing can open the file any more
                small.forget(&at);
                Ok::<_, BackendError>(None)
            });
            match large.await? {
                Some((root, place)) => self.deleting_large.run(move || remove(&root, &place)).await,
                None => Ok::<_, BackendError>(()),
            }
        })
    }

    fn versions<'a>(&'a self, bucket: &'a str, name: &'a str) -> BackendFuture<'a, Vec<KeptVersion>> {
        let folder = self.objects.join(path::folder_of(bucket, name));
        let key = VersionKey::new(bucket, name, None);
        Box::pin(blocking(move || {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            };
            let mut kept = Vec::new();
            for entry in entries {
                let entry = entry?;
                let file = entry.file_name();
                let Some(version) = file.to_str().and_then(path::version_of_file) else { continue };
                let metadata = match entry.metadata() {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    metadata => metadata?,
                };
                if metadata.is_file() {
                    let key = VersionKey { version: Some(version.to_owned()), ..key.clone() };
                    kept.push(KeptVersion { key, since: changed(&metadata) });
                }
            }
            Ok(kept)
        }))
    }

    fn path(&self, at: &VersionKey) -> String {
        path::of(at).to_string_lossy().into_owned()
    }

    fn walk(&self, files: mpsc::Sender<StoredFile>) -> BackendFuture<'_, ()> {
        let root = self.objects.clone();
        Box::pin(blocking(move || Ok(walk(&root, &files)?)))
    }

    fn remove<'a>(&'a self, paths: &'a [String]) -> BackendFuture<'a, ()> {
        let (root, paths, small) = (self.objects.clone(), paths.to_vec(), Arc::clone(&self.small));
        Box::pin(blocking(move || {
            let removed = paths.iter().try_for_each(|path| remove(&root, &root.join(path)));
            small.forget_all();
            removed
        }))
    }

    fn interrupted(&self, grace: Duration) -> BackendFuture<'_, u64> {
        let incoming = self.incoming.clone();
        Box::pin(blocking(move || Ok(incoming.abandoned(grace)?.len() as u64)))
    }

    fn sweep(&self, grace: Duration) -> BackendFuture<'_, ()> {
        let incoming = self.incoming.clone();
        Box::pin(blocking(move || {
            for draft in incoming.abandoned(grace)? {
                let _ = fs::remove_file(draft);
            }
            Ok(())
        }))
    }
}

/// Sends the files below a folder, as far as they are not removed meanwhile.
fn walk(root: &Path, files: &mpsc::Sender<StoredFile>) -> io::Result<()> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let (path, metadata) = match entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                found => found?,
            };
            if metadata.is_dir() {
                folders.push(path);
                continue;
            }
            let is_version = path.file_name().and_then(OsStr::to_str).is_some_and(path::is_version_file);
            let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let file = StoredFile { path, size: metadata.len(), since: changed(&metadata), is_version };
            if files.blocking_send(file).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Deletes a version, and the folders that are empty then.
fn remove(root: &Path, place: &Path) -> Result<(), BackendError> {
    match fs::remove_file(place) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(error.into());
        }
        _ => {}
    }
    remove_empty(root, place);
    Ok(())
}

/// `EMLINK`, `EPERM`, `EOPNOTSUPP` and `EXDEV`.
const MLINK: i32 = 31;
const PERM: i32 = 1;
const NOT_SUPPORTED: i32 = 95;
const OTHER_DEVICE: i32 = 18;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use http_body::Body as _;
    use http_body_util::BodyExt;
    use md5::{Digest, Md5};

    use super::*;
    use crate::backend::flush::flushes;
    use crate::error::StorageError;

    fn key(name: &str, version: u128) -> VersionKey {
        VersionKey::new("bucket", name, Some(&uuid::Uuid::from_u128(version).to_string()))
    }

    async fn put(folder: &ContentFolder, at: &VersionKey, content: &[u8]) -> Result<StoredContent, BackendError> {
        let chunks: Vec<Result<Bytes, StorageError>> =
            content.chunks(7000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        folder.put(at, &mut stream::iter(chunks), 1_000_000).await
    }

    async fn get(folder: &ContentFolder, at: &VersionKey, range: Option<ByteRange>) -> Result<Bytes, BackendError> {
        let content = folder.get(at, range).await?;
        let exact = content.body.size_hint().exact();
        let bytes = content.body.collect().await.unwrap().to_bytes();
        assert_eq!((exact, content.range.1 - content.range.0), (Some(bytes.len() as u64), bytes.len() as u64));
        Ok(bytes)
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
        }
        found
    }

    #[tokio::test]
    async fn small_content_that_was_read_stays_in_memory_until_it_is_deleted() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let (at, other) = (key("a", 1), key("a", 2));
        put(&folder, &at, b"0123456789").await.unwrap();
        put(&folder, &other, b"another version").await.unwrap();
        // A part says nothing of the rest
        assert_eq!(get(&folder, &at, Some(ByteRange::Last(2))).await.unwrap(), "89");
        assert!(folder.small.get(&at).is_err());
        assert_eq!(get(&folder, &at, None).await.unwrap(), "0123456789");
        fs::remove_file(folder.place(&at)).unwrap();
        assert_eq!(get(&folder, &at, None).await.unwrap(), "0123456789");
        assert_eq!((folder.exists(&at).await.unwrap(), folder.exists(&other).await.unwrap()), (false, true));
        assert_eq!(get(&folder, &at, Some(ByteRange::From(3, Some(5)))).await.unwrap(), "345");
        assert!(matches!(get(&folder, &at, Some(ByteRange::From(10, None))).await, Err(BackendError::Range)));
        assert_eq!(get(&folder, &other, None).await.unwrap(), "another version");
        folder.delete(&at).await.unwrap();
        assert!(matches!(get(&folder, &at, None).await, Err(BackendError::NotFound)));
    }

    #[tokio::test]
    async fn a_version_is_read_as_it_was_written_in_whole_and_in_part() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let content: Vec<u8> = (0..600_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        let stored = put(&folder, &key("a/b", 1), &content).await.unwrap();
        assert_eq!((stored.size, stored.etag), (600_000, Some(format!("\"{}\"", hex::encode(Md5::digest(&content))))));
        assert_eq!(get(&folder, &key("a/b", 1), None).await.unwrap(), content);
        let middle = get(&folder, &key("a/b", 1), Some(ByteRange::From(100, Some(400_000)))).await.unwrap();
        assert_eq!(middle, &content[100..=400_000]);
        assert!(matches!(
            get(&folder, &key("a/b", 1), Some(ByteRange::From(600_000, None))).await,
            Err(BackendError::Range)
        ));
        assert!(matches!(get(&folder, &key("a/b", 2), None).await, Err(BackendError::NotFound)));
        assert!(matches!(get(&folder, &key("a", 2), None).await, Err(BackendError::NotFound)));
        // A name and a name below it
        put(&folder, &key("a", 3), b"x").await.unwrap();
        assert_eq!(get(&folder, &key("a", 3), None).await.unwrap(), "x");
    }

    #[tokio::test]
    async fn a_failed_upload_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let broken = || vec![Ok(Bytes::from_static(b"abc")), Err(StorageError::Aborted)];
        let outcome = folder.put(&key("a", 1), &mut stream::iter(broken()), 100).await;
        assert!(matches!(outcome, Err(BackendError::Source(StorageError::Aborted))));
        let endless = stream::repeat_with(|| Ok(Bytes::from_static(b"abc")));
        let outcome = folder.put(&key("a", 1), &mut Box::pin(endless), 1000).await;
        assert!(matches!(outcome, Err(BackendError::TooLarge)), "the limit counts while the content arrives");
        // A cancelled one
        let mut endless = stream::iter([Ok(Bytes::from_static(b"abc"))]).chain(stream::pending());
        let outcome =
            tokio::time::timeout(Duration::from_millis(50), folder.put(&key("a", 1), &mut endless, 100)).await;
        assert!(outcome.is_err());
        assert_eq!(files(root.path()), Vec::<PathBuf>::new());
    }

    #[tokio::test]
    async fn a_sweep_deletes_the_drafts_of_others_only() {
        let root = tempfile::tempdir().unwrap();
        let (folder, earlier) = (ContentFolder::open(root.path()).unwrap(), ContentFolder::open(root.path()).unwrap());
        let (send, receive) = mpsc::channel::<Result<Bytes, StorageError>>(1);
        let mut content = Box::pin(stream::unfold(receive, async |mut chunks| Some((chunks.recv().await?, chunks))));
        let at = key("a", 1);
        let swept = async {
            send.send(Ok(Bytes::from_static(b"abc"))).await.unwrap();
            let own = loop {
                if let [draft] = files(&root.path().join("incoming")).as_slice() {
                    break draft.clone();
                }
                tokio::task::yield_now().await;
            };
            let left = earlier.incoming.new_path();
            fs::write(&left, "half").unwrap();
            assert_eq!(folder.interrupted(Duration::from_secs(3600)).await.unwrap(), 0);
            assert_eq!(folder.interrupted(Duration::ZERO).await.unwrap(), 1);
            folder.sweep(Duration::ZERO).await.unwrap();
            assert_eq!((own.exists(), left.exists()), (true, false));
            send.send(Ok(Bytes::from_static(b"def"))).await.unwrap();
            drop(send);
        };
        let (stored, ()) = tokio::join!(folder.put(&at, &mut content, 100), swept);
        assert_eq!(stored.unwrap().size, 6);
        assert_eq!(get(&folder, &at, None).await.unwrap(), "abcdef");
        assert_eq!(files(root.path()), [folder.place(&at)]);
    }

    #[tokio::test]
    async fn a_copy_outlives_its_source_and_a_deletion_removes_empty_folders() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        put(&folder, &key("a/b/c", 1), b"content").await.unwrap();
        let copied = folder.copy(&key("a/b/c", 1), &key("d", 2)).await.unwrap();
        assert_eq!(copied.size, 7);
        assert_eq!(folder.versions("bucket", "d").await.unwrap()[0].key, key("d", 2));
        folder.delete(&key("a/b/c", 1)).await.unwrap();
        folder.delete(&key("a/b/c", 1)).await.unwrap();
        assert_eq!(get(&folder, &key("d", 2), None).await.unwrap(), "content");
        assert!(matches!(folder.copy(&key("a/b/c", 1), &key("e", 2)).await, Err(BackendError::NotFound)));
        assert!(!root.path().join("objects/bucket/a").exists());
        folder.delete(&key("d", 2)).await.unwrap();
        assert_eq!(fs::read_dir(root.path().join("objects")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn content_and_its_name_are_flushed() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let take = || flushes::take(root.path());
        let has_name = |(_, names): &(String, Vec<String>), at: &VersionKey| {
            names.contains(&folder.place(at).file_name().unwrap().to_str().unwrap().to_owned())
        };
        let paths = |flushes: &[(String, Vec<String>)]| -> Vec<String> {
            flushes
                .iter()
                .map(|(path, _)| {
                    let file = path.rsplit('/').next().unwrap();
                    if path::is_version_file(file) { "content" } else { path }.to_owned()
                })
                .collect()
        };
        take();
        put(&folder, &key("a/b", 1), b"content").await.unwrap();
        let flushed = take();
        let folders = ["objects/bucket/a/b", "objects/bucket/a", "objects/bucket", "objects", "content"];
        assert_eq!(paths(&flushed), folders);
        assert!(has_name(&flushed[0], &key("a/b", 1)));
        put(&folder, &key("a/b", 2), b"content").await.unwrap();
        let flushed = take();
        assert_eq!(paths(&flushed), ["objects/bucket/a/b", "content"]);
        assert!(has_name(&flushed[0], &key("a/b", 2)));
        // The content of a copy is that of a version
        folder.copy(&key("a/b", 1), &key("c", 3)).await.unwrap();
        let flushed = take();
        assert_eq!(paths(&flushed), ["objects/bucket/c", "objects/bucket"]);
        assert!(has_name(&flushed[0], &key("c", 3)));
        let file = root.path().join("file");
        fs::write(&file, "content").unwrap();
        folder.put_file(&key("c", 4), &file).await.unwrap();
        let flushed = take();
        assert_eq!(paths(&flushed), ["file", "objects/bucket/c"]);
        assert!(has_name(&flushed[1], &key("c", 4)));
    }

    #[tokio::test]
    async fn a_large_version_is_deleted_with_its_empty_folders() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        for version in 1..4 {
            put(&folder, &key("a/b", version), b"x").await.unwrap();
            File::options().write(true).open(folder.place(&key("a/b", version))).unwrap().set_len(LARGE_SIZE).unwrap();
        }
        let deletions = (1..4).map(|version| {
            let folder = &folder;
            async move { folder.delete(&key("a/b", version)).await }
        });
        for deleted in futures_util::future::join_all(deletions).await {
            deleted.unwrap();
        }
        assert_eq!(fs::read_dir(root.path().join("objects")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn uploads_and_deletions_of_one_folder_do_not_disturb_each_other() {
        let root = tempfile::tempdir().unwrap();
        let folder = Arc::new(ContentFolder::open(root.path()).unwrap());
        let workers = (0..8_u128).map(|worker| {
            let folder = Arc::clone(&folder);
            tokio::spawn(async move {
                for round in 0..50 {
                    let key = key("deep/er/name", worker * 1000 + round);
                    put(&folder, &key, b"x").await.unwrap();
                    assert_eq!(get(&folder, &key, None).await.unwrap(), "x");
                    folder.delete(&key).await.unwrap();
                }
            })
        });
        for worker in workers {
            worker.await.unwrap();
        }
        assert_eq!(files(root.path()), Vec::<PathBuf>::new());
    }
}
