//! The content of small versions that were read lately, in memory: to open, read and close the file
//! takes a sixth of the server's time for a small download (decision 39).
//!
//! The content of a version never changes, and its id is never given to another one. So what is
//! here is what the file has. Which version a caller receives is decided by PostgreSQL, each time.

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
}

impl SmallContents {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the content of a version.
    pub fn get(&self, version: &VersionKey) -> Option<Bytes> {
        let mut generations = self.generations();
        if let Some(content) = generations.young.get(version) {
            return Some(content.clone());
        }
        let (version, content) = generations.old.remove_entry(version)?;
        generations.add(version, content.clone());
        Some(content)
    }

    /// Keeps the whole content of a version, if it is small and the version can have no other one.
    pub fn keep(&self, version: VersionKey, content: &Bytes) {
        // Other ids are not made here
        if content.len() <= MAX_SIZE && version.version.as_deref().is_some_and(path::is_uuid) {
            self.generations().add(version, content.clone());
        }
    }

    /// Forgets a version, which is deleted.
    pub fn forget(&self, version: &VersionKey) {
        let mut generations = self.generations();
        generations.old.remove(version);
        if let Some((version, content)) = generations.young.remove_entry(version) {
            generations.young_size -= size(&version, &content);
        }
    }
}

impl Generations {
    fn add(&mut self, version: VersionKey, content: Bytes) {
        let size = size(&version, &content);
        if self.young_size + size > MAX_GENERATION {
            self.old = mem::take(&mut self.young);
            self.young_size = 0;
        }
        if self.young.insert(version, content).is_none() {
            self.young_size += size;
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
        contents.keep(version(1), &small);
        contents.keep(version(2), &large);
        for id in [None, Some("v1"), Some("00000000-0000-0000-0000-00000000000A")] {
            contents.keep(VersionKey::new("bucket", "name", id), &small);
            assert_eq!(contents.get(&VersionKey::new("bucket", "name", id)), None);
        }
        assert_eq!((contents.get(&version(1)), contents.get(&version(2))), (Some(small), None));
    }

    #[test]
    fn what_is_used_again_stays_in_bounded_memory() {
        let contents = SmallContents::default();
        let content = |number: u128| Bytes::copy_from_slice(&[number as u8; 1000]);
        let count = 10 * MAX_GENERATION as u128 / 1000;
        for number in 0..count {
            contents.keep(version(number), &content(number));
            assert_eq!(contents.get(&version(number)), Some(content(number)));
            assert_eq!(contents.get(&version(0)), Some(content(0)));
        }
        let Generations { young, young_size, old } = &*contents.generations();
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
        let content = Bytes::from_static(b"content");
        for is_old in [false, true] {
            contents.keep(version(1), &content);
            // Kept twice, it counts once
            contents.keep(version(1), &content);
            if is_old {
                let mut generations = contents.generations();
                generations.old = mem::take(&mut generations.young);
                generations.young_size = 0;
            }
            contents.forget(&version(1));
            assert_eq!((contents.get(&version(1)), contents.generations().young_size), (None, 0));
        }
    }
}
