//! The content of small versions that were read lately, in memory: to open, read and close the file
//! takes a sixth of the server's time for a small download (decision 39).
//!
//! The content of a version never changes, and its id is never given to another one. So what is
//! here is what the file has. Which version a caller receives is decided by PostgreSQL, each time.
//! What is deleted is not kept here either, also not by a read that was on its way.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::backend::model::VersionKey;
use crate::backend::path;

/// The size of the largest content.
const MAX_SIZE: usize = 16 * 1024;
/// The most memory of a generation.
const MAX_GENERATION: usize = 2 * 1024 * 1024;
/// The memory of an entry besides its content and its key.
const ENTRY_SIZE: usize = 200;

/// The content of small versions.
#[derive(Default)]
pub(super) struct SmallContents(Mutex<Generations>);

/// Two generations: the young one has the content that was used lately. When it is full it becomes
/// the old one, and content that was not used since the last time is gone.
#[derive(Default)]
struct Generations {
    young: HashMap<VersionKey, Bytes>,
    young_size: usize,
    old: HashMap<VersionKey, Bytes>,
    deletions: DeletionCount,
}

/// The number of deletions before a moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeletionCount(u64);

impl SmallContents {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the content of a version.
    ///
    /// # Errors
    /// The value that [`keep`](Self::keep) needs, if the content is not here.
    pub fn get(&self, version: &VersionKey) -> Result<Bytes, DeletionCount> {
        let mut generations = self.generations();
        if let Some(content) = generations.young.get(version) {
            return Ok(content.clone());
        }
        let Some((version, content)) = generations.old.remove_entry(version) else { return Err(generations.deletions) };
        generations.add(version, content.clone());
        Ok(content)
    }

    /// Keeps the whole content of a version, if it is small, the version can have no other one, and
    /// nothing was deleted since it was looked for: the deletion could be that of this version.
    pub fn keep(&self, version: VersionKey, content: &Bytes, missed: DeletionCount) {
        // Other ids are not made here
        if content.len() <= MAX_SIZE && version.version.as_deref().is_some_and(path::is_uuid) {
            let mut generations = self.generations();
            if generations.deletions == missed {
                generations.add(version, content.clone());
            }
        }
    }

    /// Forgets a version whose file is deleted.
    pub fn forget(&self, version: &VersionKey) {
        let mut generations = self.generations();
        generations.deletions.0 += 1;
        generations.old.remove(version);
        if let Some((version, content)) = generations.young.remove_entry(version) {
            generations.young_size -= size(&version, &content);
        }
    }

    /// Forgets all versions, some of whose files are deleted.
    pub fn forget_all(&self) {
        let mut generations = self.generations();
        let deletions = DeletionCount(generations.deletions.0 + 1);
        *generations = Generations { deletions, ..Generations::default() };
    }
}

impl Generations {
    fn add(&mut self, version: VersionKey, content: Bytes) {
        let size = size(&version, &content);
        if self.young_size + size > MAX_GENERATION {
            self.old = mem::take(&mut self.young);
            self.young_size = 0;
        }
        let key_size = size - content.len();
        self.young_size += size;
        // Two reads have found it missing at the same time
        if let Some(replaced) = self.young.insert(version, content) {
            self.young_size -= key_size + replaced.len();
        }
    }
}

/// Returns the memory of an entry.
fn size(version: &VersionKey, content: &Bytes) -> usize {
    let VersionKey { bucket, name, version } = version;
    bucket.len() + name.len() + version.as_ref().map_or(0, String::len) + content.len() + ENTRY_SIZE
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn version(number: u128) -> VersionKey {
        VersionKey::new("bucket", "name", Some(&Uuid::from_u128(number).to_string()))
    }

    #[test]
    fn only_small_content_that_cannot_change_is_kept() {
        let contents = SmallContents::default();
        let (small, large) = (Bytes::from(vec![1; MAX_SIZE]), Bytes::from(vec![1; MAX_SIZE + 1]));
        contents.keep(version(1), &small, DeletionCount(0));
        contents.keep(version(2), &large, DeletionCount(0));
        for id in [None, Some("v1"), Some("00000000-0000-0000-0000-00000000000A")] {
            contents.keep(VersionKey::new("bucket", "name", id), &small, DeletionCount(0));
            assert!(contents.get(&VersionKey::new("bucket", "name", id)).is_err());
        }
        assert_eq!(contents.get(&version(1)), Ok(small));
        assert!(contents.get(&version(2)).is_err());
    }

    #[test]
    fn what_is_used_again_stays_in_bounded_memory() {
        let contents = SmallContents::default();
        let content = |number: u128| Bytes::copy_from_slice(&[number as u8; 1000]);
        let count = 10 * MAX_GENERATION as u128 / 1000;
        for number in 0..count {
            contents.keep(version(number), &content(number), DeletionCount(0));
            assert_eq!(contents.get(&version(number)), Ok(content(number)));
            assert_eq!(contents.get(&version(0)), Ok(content(0)));
        }
        let Generations { young, young_size, old, .. } = &*contents.generations();
        let sum = |generation: &HashMap<VersionKey, Bytes>| -> usize {
            generation.iter().map(|(version, content)| size(version, content)).sum()
        };
        assert_eq!(sum(young), *young_size);
        assert!(*young_size <= MAX_GENERATION && sum(old) <= MAX_GENERATION);
        assert!(!young.contains_key(&version(1)) && !old.contains_key(&version(1)));
    }

    #[test]
    fn a_deleted_version_is_forgotten() {
        let contents = SmallContents::default();
        for is_old in [false, true] {
            let missed = contents.get(&version(1)).unwrap_err();
            // Kept twice, it counts once
            contents.keep(version(1), &Bytes::from_static(b"cont"), missed);
            contents.keep(version(1), &Bytes::from_static(b"content"), missed);
            if is_old {
                let mut generations = contents.generations();
                generations.old = mem::take(&mut generations.young);
                generations.young_size = 0;
            }
            contents.forget(&version(1));
            assert!(contents.get(&version(1)).is_err());
            assert_eq!(contents.generations().young_size, 0);
        }
    }

    #[test]
    fn a_read_keeps_nothing_that_is_deleted_meanwhile() {
        let contents = SmallContents::default();
        let content = Bytes::from_static(b"content");
        let deletions: [fn(&SmallContents); 2] = [|contents| contents.forget(&version(1)), SmallContents::forget_all];
        for delete in deletions {
            let missed = contents.get(&version(1)).unwrap_err();
            delete(&contents);
            contents.keep(version(1), &content, missed);
            assert!(contents.get(&version(1)).is_err());
        }
        let missed = contents.get(&version(1)).unwrap_err();
        contents.keep(version(1), &content, missed);
        assert_eq!(contents.get(&version(1)), Ok(content));
        contents.forget_all();
        assert!(contents.get(&version(1)).is_err());
    }
}
