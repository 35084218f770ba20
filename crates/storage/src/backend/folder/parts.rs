//! The parts of versions, as files in a folder of each upload.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::draft::{Draft, DraftWriter, publish};
use super::file::{blocking, changed};
use super::store::ContentFolder;
use super::writers::{FinishDraft, HashedDraft};
use crate::backend::flush::{flush_content, flush_folder};
use crate::backend::model::{BackendError, BackendFuture, ContentStream, StoredContent};
use crate::backend::parts::{
    PartName, PartStore, PartedVersion, StoredPart, composite_etag, is_unknown_upload, new_upload,
};

/// The end of the name of a folder of parts that is being deleted.
const DELETED: &str = ".deleted";

impl ContentFolder {
    /// Returns the folder of the parts of an upload.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] for a text that no upload has.
    fn parts_of(&self, of: &PartedVersion) -> Result<PathBuf, BackendError> {
        Ok(self.multipart.join(of.folder()?))
    }
}

impl PartStore for ContentFolder {
    fn begin_parts(&self) -> BackendFuture<'_, String> {
        let upload = new_upload();
        let (all, own) = (self.multipart.clone(), self.multipart.join(&upload));
        Box::pin(blocking(move || {
            fs::DirBuilder::new().mode(0o700).create(own)?;
            flush_folder(&all)?;
            Ok(upload)
        }))
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
            let (own, waiting) = (name.clone(), Arc::new(()));
            let cancelled = Arc::downgrade(&waiting);
            let finish: FinishDraft = Box::new(move |writer| {
                finish_part(writer, &folder, &own)?;
                // The deletion of the cancelled part may have been too early
                if cancelled.strong_count() == 0 {
                    fs::remove_file(folder.join(own.file()))?;
                }
                Ok(())
            });
            let received = self.receive(content, size, finish).await;
            drop(waiting);
            let (HashedDraft { digest, .. }, size) = received?;
            Ok(StoredPart { name: name.clone(), etag: hex::encode(digest.finish()), size })
        })
    }

    fn delete_part<'a>(&'a self, of: &'a PartedVersion, name: &'a PartName) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let place = self.parts_of(of)?.join(name.file());
            blocking(move || match fs::remove_file(place) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            })
            .await
        })
    }

    fn assemble_parts<'a>(
        &'a self,
        of: &'a PartedVersion,
        parts: &'a [StoredPart],
    ) -> BackendFuture<'a, StoredContent> {
        Box::pin(async move {
            let from = self.parts_of(of)?;
            let (root, place) = (self.objects.clone(), self.place(&of.at));
            let draft = self.incoming.new_path();
            let folders = Arc::clone(&self.folders);
            let parts = parts.to_vec();
            let assembling = move || {
                let etag = composite_etag(&parts);
                let (file, mut draft) = concatenate(&from, &parts, draft)?;
                publish(&mut draft, &file, &folders, &root, &place)?;
                let metadata = file.metadata()?;
                Ok(StoredContent { etag: Some(etag), size: metadata.len(), modified: changed(&metadata).into() })
            };
            self.flushing.run(assembling).await
        })
    }

    fn abort_parts<'a>(&'a self, of: &'a PartedVersion) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let Ok(folder) = self.parts_of(of) else { return Ok(()) };
            blocking(move || Ok(delete_parts(&folder)?)).await
        })
    }

    fn sweep_parts<'a>(&'a self, kept: &'a HashSet<String>, grace: Duration) -> BackendFuture<'a, ()> {
        let (all, kept) = (self.multipart.clone(), kept.clone());
        Box::pin(blocking(move || {
            for entry in fs::read_dir(&all)? {
                let entry = entry?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                if name.ends_with(DELETED) {
                    remove_folder(&entry.path())?;
                    continue;
                }
                let is_old = |metadata: fs::Metadata| changed(&metadata).elapsed().is_ok_and(|age| age >= grace);
                if is_unknown_upload(name, &kept) && entry.metadata().is_ok_and(is_old) {
                    delete_parts(&entry.path())?;
                }
            }
            Ok(())
        }))
    }
}

/// Flushes a part and moves it to the folder of its upload.
fn finish_part(writer: &mut DraftWriter, folder: &Path, name: &PartName) -> Result<(), BackendError> {
    flush_content(writer.draft.path(), &writer.content.file)?;
    // It fails where the upload has ended meanwhile
    fs::rename(writer.draft.path(), folder.join(name.file()))?;
    writer.draft.keep();
    flush_folder(folder)?;
    Ok(())
}

/// Copies parts into one file. The kernel copies them: no byte passes through this process, and
/// file systems that can share blocks do.
fn concatenate(from: &Path, parts: &[StoredPart], draft: PathBuf) -> Result<(File, Draft), BackendError> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let draft = Draft::new(draft);
    for part in parts {
        let mut source = File::open(from.join(part.name.file()))?;
        if io::copy(&mut source, &mut file)? != part.size {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "a part does not have its size").into());
        }
    }
    Ok((file, draft))
}

/// Deletes the folder of an upload. It first loses its name, so that no part arrives in it any
/// more.
fn delete_parts(folder: &Path) -> io::Result<()> {
    let mut renamed = folder.as_os_str().to_owned();
    renamed.push(DELETED);
    match fs::rename(folder, &renamed) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => remove_folder(Path::new(&renamed)),
    }
}

/// Deletes a folder. It is no error if something else deletes it at the same time.
fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;
    use http_body_util::BodyExt;
    use portico_base::random;

    use super::*;
    use crate::backend::{Backend, VersionKey};
    use crate::error::StorageError;

    const VERSION: &str = "5f0e7a0c-52b1-4a3f-9c55-0f0a6a9c3b11";

    async fn begin(folder: &ContentFolder) -> PartedVersion {
        let at = VersionKey::new("bucket", "a/b", Some(VERSION));
        PartedVersion { upload: folder.begin_parts().await.unwrap(), at }
    }

    async fn put(
        folder: &ContentFolder,
        of: &PartedVersion,
        number: u16,
        content: &[u8],
    ) -> Result<StoredPart, BackendError> {
        let chunks: Vec<Result<Bytes, StorageError>> =
            content.chunks(700).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let name = PartName { number, id: random::uuid().to_string() };
        folder.put_part(of, &name, &mut stream::iter(chunks), content.len() as u64).await
    }

    #[tokio::test]
    async fn parts_become_visible_together_in_their_order() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let of = begin(&folder).await;
        let second = put(&folder, &of, 2, b" world").await.unwrap();
        put(&folder, &of, 1, b"replaced").await.unwrap();
        let first = put(&folder, &of, 1, b"hello").await.unwrap();
        assert_eq!((first.etag.as_str(), first.size), ("5d41402abc4b2a76b9719d911017c592", 5));
        assert!(matches!(folder.get(&of.at, None).await, Err(BackendError::NotFound)));
        let parts = [first, second];
        let stored = folder.assemble_parts(&of, &parts).await.unwrap();
        // MD5 of the two binary MD5s
        assert_eq!((stored.size, stored.etag.as_deref()), (11, Some("\"a56979024342128ecebc884e3442121b-2\"")));
        // Again, as after a commit that failed
        folder.assemble_parts(&of, &parts).await.unwrap();
        folder.abort_parts(&of).await.unwrap();
        folder.abort_parts(&of).await.unwrap();
        let content = folder.get(&of.at, None).await.unwrap().body.collect().await.unwrap().to_bytes();
        assert_eq!(content, "hello world");
        assert_eq!(fs::read_dir(root.path().join("multipart")).unwrap().count(), 0);
        assert!(matches!(put(&folder, &of, 3, b"late").await, Err(BackendError::NotFound)));
        assert_eq!(fs::read_dir(root.path().join("incoming")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_part_that_is_missing_or_torn_makes_no_version() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let of = begin(&folder).await;
        let part = put(&folder, &of, 1, b"hello").await.unwrap();
        let name = PartName { number: 2, ..part.name.clone() };
        let other = StoredPart { name, ..part.clone() };
        assert!(matches!(folder.assemble_parts(&of, &[part.clone(), other]).await, Err(BackendError::NotFound)));
        let longer = StoredPart { size: 6, ..part };
        assert!(folder.assemble_parts(&of, &[longer]).await.is_err());
        let outside = PartedVersion { upload: "../incoming".into(), at: of.at.clone() };
        assert!(matches!(put(&folder, &outside, 1, b"x").await, Err(BackendError::NotFound)));
        assert!(matches!(folder.get(&of.at, None).await, Err(BackendError::NotFound)));
        assert_eq!(fs::read_dir(root.path().join("incoming")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_sweep_ends_uploads_that_are_old_and_unknown() {
        let root = tempfile::tempdir().unwrap();
        let folder = ContentFolder::open(root.path()).unwrap();
        let (kept, unknown) = (begin(&folder).await, begin(&folder).await);
        let known = HashSet::from([kept.upload.clone()]);
        folder.sweep_parts(&known, Duration::from_secs(3600)).await.unwrap();
        put(&folder, &unknown, 1, b"young").await.unwrap();
        folder.sweep_parts(&known, Duration::ZERO).await.unwrap();
        put(&folder, &kept, 1, b"known").await.unwrap();
        assert!(matches!(put(&folder, &unknown, 1, b"old").await, Err(BackendError::NotFound)));
    }
}
