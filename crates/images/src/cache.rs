//! Results on disk: bounded in sum, the least recently used removed first, kept over restarts.
//!
//! A file that is damaged or was not written here is removed when it is met. So a result needs no
//! flush to the disk: what a crash leaves half written does not match its digest.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use portico_base::hash::{sha256, sha256_hex};
use portico_base::random;

use crate::render_key::RenderKey;
use crate::{OutputFormat, RenderedImage};

/// The first bytes of each file. The number changes with the layout.
const MAGIC: &[u8; 8] = b"porticoI";
/// Bytes before the key: magic, digest, format, length of the key.
const HEADER_BYTES: usize = MAGIC.len() + 32 + 1 + 4;
/// A result larger than this part of the whole cache is not kept.
const LARGEST_PART: u64 = 8;

/// A folder of results. All methods block on the file system.
pub struct ResultCache {
    folder: PathBuf,
    max_bytes: u64,
    index: Mutex<CacheIndex>,
}

/// The files of the cache in the order of their last use.
#[derive(Default)]
struct CacheIndex {
    /// Size and last use, by file name: those of one source are neighbours.
    files: BTreeMap<String, (u64, u64)>,
    /// File names by their last use, which is a running number.
    by_use: BTreeMap<u64, String>,
    total_bytes: u64,
    last_use: u64,
}

impl ResultCache {
    /// Opens the cache in a folder of its own, which is created if it is missing. Removes what is
    /// not a result from it, then what exceeds `max_bytes`.
    ///
    /// # Errors
    /// The folder cannot be created or read.
    pub fn open(folder: &Path, max_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            match entry.file_name().into_string() {
                Ok(name) if metadata.is_file() && is_result_name(&name) => {
                    found.push((metadata.modified()?, name, metadata.len()));
                }
                _ => remove_foreign(&entry.path(), metadata.is_dir()),
            }
        }
        found.sort();
        let cache = Self { folder: folder.to_owned(), max_bytes, index: Mutex::default() };
        {
            let mut index = cache.index();
            for (_, name, bytes) in found {
                index.insert(name, bytes);
            }
            cache.evict(&mut index);
        }
        Ok(cache)
    }

    /// Returns a kept result.
    pub(crate) fn read(&self, key: &RenderKey) -> Option<RenderedImage> {
        let name = file_name(key);
        if !self.index().touch(&name) {
            return None;
        }
        let path = self.folder.join(&name);
        let image = fs::read(&path).ok().and_then(|file| decode_file(file, key));
        if image.is_none() {
            self.index().remove(&name);
            remove(&path);
        }
        image
    }

    /// Keeps a result. A failure is logged: the result is then computed again.
    pub(crate) fn store(&self, key: &RenderKey, image: &RenderedImage) {
        let file = encode_file(key, image);
        let bytes = file.len() as u64;
        if bytes > self.max_bytes / LARGEST_PART {
            return;
        }
        let name = file_name(key);
        if let Err(error) = self.write(&name, &file) {
            tracing::warn!(error = %error, "a rendered image could not be kept");
            return;
        }
        let mut index = self.index();
        index.insert(name, bytes);
        self.evict(&mut index);
    }

    /// Removes all results of a source: of all its revisions, parameters and formats.
    pub(crate) fn evict_source(&self, source: &str) {
        let prefix = source_prefix(source);
        let mut index = self.index();
        let names: Vec<String> = {
            let from_prefix = index.files.range(prefix.clone()..).map(|(name, _)| name);
            from_prefix.take_while(|name| name.starts_with(&prefix)).cloned().collect()
        };
        for name in names {
            index.remove(&name);
            remove(&self.folder.join(&name));
        }
    }

    /// Returns the sum of the sizes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.index().total_bytes
    }

    /// Writes a file under another name first, so that no reader meets a part of it.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let temporary = self.folder.join(format!("{}.new", random::base32_lower(16)));
        let written = fs::File::create_new(&temporary)
            .and_then(|mut file| file.write_all(content))
            .and_then(|()| fs::rename(&temporary, self.folder.join(name)));
        if written.is_err() {
            remove(&temporary);
        }
        written
    }

    /// Removes the least recently used files until the rest is within the bound.
    fn evict(&self, index: &mut CacheIndex) {
        while index.total_bytes > self.max_bytes {
            let Some(name) = index.by_use.values().next().cloned() else { break };
            index.remove(&name);
            remove(&self.folder.join(&name));
        }
    }

    fn index(&self) -> MutexGuard<'_, CacheIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheIndex {
    fn insert(&mut self, name: String, bytes: u64) {
        self.remove(&name);
        self.last_use += 1;
        self.by_use.insert(self.last_use, name.clone());
        self.files.insert(name, (bytes, self.last_use));
        self.total_bytes += bytes;
    }

    /// Marks a file as used now. `false`: there is none.
    fn touch(&mut self, name: &str) -> bool {
        let Some(&(bytes, _)) = self.files.get(name) else { return false };
        self.insert(name.to_owned(), bytes);
        true
    }

    fn remove(&mut self, name: &str) {
        if let Some((bytes, last_use)) = self.files.remove(name) {
            self.by_use.remove(&last_use);
            self.total_bytes -= bytes;
        }
    }
}

/// Returns the name of a file: the digest of its source, then that of its whole key.
fn file_name(key: &RenderKey) -> String {
    source_prefix(key.source()) + &sha256_hex(key.as_str().as_bytes())
}

fn source_prefix(source: &str) -> String {
    sha256_hex(source.as_bytes()) + "-"
}

fn is_result_name(name: &str) -> bool {
    let is_digest = |part: &str| part.len() == 64 && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    name.split_once('-').is_some_and(|(source, key)| is_digest(source) && is_digest(key))
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(error = %error, path = %path.display(), "a file of the image cache could not be removed");
    }
}

fn remove_foreign(path: &Path, is_folder: bool) {
    if is_folder {
        // Its contents are not known here, so it stays
        tracing::warn!(path = %path.display(), "the image cache contains a folder");
    } else {
        remove(path);
    }
}

/// Writes a file: magic, digest of all that follows, format, length of the key, key, image.
fn encode_file(key: &RenderKey, image: &RenderedImage) -> Vec<u8> {
    let key = key.as_str().as_bytes();
    let mut content = Vec::with_capacity(5 + key.len() + image.bytes.len());
    let format = OutputFormat::ALL.iter().position(|format| *format == image.format).unwrap_or_default();
    content.push(format as u8);
    content.extend((key.len() as u32).to_le_bytes());
    content.extend(key);
    content.extend(&image.bytes);
    let mut file = Vec::with_capacity(HEADER_BYTES + content.len());
    file.extend(MAGIC);
    file.extend(sha256(&content));
    file.extend(content);
    file
}

/// Reads a file. `None`: it is damaged, or has another key.
fn decode_file(file: Vec<u8>, key: &RenderKey) -> Option<RenderedImage> {
    let file = Bytes::from(file);
    let (magic, rest) = file.split_first_chunk::<8>()?;
    let (digest, content) = rest.split_first_chunk::<32>()?;
    if magic != MAGIC || *digest != sha256(content) {
        return None;
    }
    let (format, rest) = content.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    if rest.get(..length)? != key.as_str().as_bytes() {
        return None;
    }
    let format = *OutputFormat::ALL.get(usize::from(*format))?;
    Some(RenderedImage { format, bytes: file.slice(HEADER_BYTES + length..) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RenderSource, RequestedFormat, Transformation};

    fn key(source: &str) -> RenderKey {
        key_of(source, "1")
    }

    fn key_of(source: &str, revision: &str) -> RenderKey {
        let source = RenderSource::new(source).revision(revision);
        RenderKey::new(&source, &Transformation::default(), RequestedFormat::Origin)
    }

    fn image(byte: u8, length: usize) -> RenderedImage {
        RenderedImage { format: OutputFormat::WebP, bytes: vec![byte; length].into() }
    }

    #[test]
    fn a_result_is_read_back_after_a_restart_and_under_its_own_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResultCache::open(folder.path(), 100_000).unwrap();
        cache.store(&key("a/1"), &image(1, 100));
        assert_eq!(cache.read(&key("a/1")), Some(image(1, 100)));
        assert_eq!(cache.read(&key("a/2")), None);
        drop(cache);

        let cache = ResultCache::open(folder.path(), 100_000).unwrap();
        assert_eq!(cache.read(&key("a/1")), Some(image(1, 100)));
    }

    #[test]
    fn the_least_recently_used_result_is_removed_at_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResultCache::open(folder.path(), 10_000).unwrap();
        for source in 0..8 {
            cache.store(&key(&source.to_string()), &image(source, 1000));
        }
        assert!(cache.read(&key("0")).is_some());
        for source in 8..12 {
            cache.store(&key(&source.to_string()), &image(source, 1000));
        }
        assert!(cache.total_bytes() <= 10_000);
        assert!(cache.read(&key("0")).is_some(), "was used last");
        assert_eq!(cache.read(&key("1")), None);
        assert!(cache.read(&key("11")).is_some());
        let on_disk: u64 =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(on_disk, cache.total_bytes());

        let cache = ResultCache::open(folder.path(), 3_000).unwrap();
        assert!(cache.total_bytes() <= 3_000);
    }

    #[test]
    fn a_result_larger_than_an_eighth_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResultCache::open(folder.path(), 8_000).unwrap();
        cache.store(&key("a"), &image(1, 1000));
        assert_eq!(cache.read(&key("a")), None);
        assert_eq!(cache.total_bytes(), 0);
    }

    #[test]
    fn a_damaged_file_is_removed_and_never_returned() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResultCache::open(folder.path(), 100_000).unwrap();
        cache.store(&key("a"), &image(1, 10));
        let path = folder.path().join(file_name(&key("a")));
        let whole = fs::read(&path).unwrap();
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            assert_eq!(decode_file(damaged, &key("a")), None, "byte {position}");
            assert_eq!(decode_file(whole[..position].to_vec(), &key("a")), None, "{position} bytes");
        }
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(cache.read(&key("a")), None);
        assert!(!path.exists());
        assert_eq!(cache.total_bytes(), 0);
    }

    #[test]
    fn a_result_moved_to_the_name_of_another_key_is_not_returned() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResultCache::open(folder.path(), 100_000).unwrap();
        cache.store(&key("a"), &image(1, 10));
        cache.store(&key("b"), &image(2, 10));
        fs::copy(folder.path().join(file_name(&key("a"))), folder.path().join(file_name(&key("b")))).unwrap();
        assert_eq!(cache.read(&key("b")), None);
        assert_eq!(cache.read(&key("a")), Some(image(1, 10)));
    }

    #[test]
    fn a_forgotten_source_leaves_no_file_and_other_sources_stay() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResultCache::open(folder.path(), 100_000).unwrap();
        cache.store(&key_of("a", "1"), &image(1, 10));
        cache.store(&key_of("a", "2"), &image(2, 10));
        for source in ["b", "a1", ""] {
            cache.store(&key(source), &image(3, 10));
        }
        // Results of an earlier start too
        drop(cache);
        let cache = ResultCache::open(folder.path(), 100_000).unwrap();
        cache.evict_source("a");
        assert_eq!((cache.read(&key_of("a", "1")), cache.read(&key_of("a", "2"))), (None, None));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        for source in ["b", "a1", ""] {
            assert!(cache.read(&key(source)).is_some(), "{source}");
        }
        let on_disk: u64 =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(on_disk, cache.total_bytes());
    }

    #[test]
    fn foreign_files_are_removed_when_the_cache_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("half.new"), "x").unwrap();
        fs::write(folder.path().join("notes.txt"), "x").unwrap();
        ResultCache::open(folder.path(), 100).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
