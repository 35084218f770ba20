//! The bound on unfinished uploads of one requester: each keeps space until it is finished,
//! terminated or expired.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// The unfinished uploads by their requesters: a user, or the network of an address.
#[derive(Debug, Default)]
pub(crate) struct PendingUploads(Mutex<PendingIndex>);

#[derive(Debug, Default)]
struct PendingIndex {
    requesters: HashMap<Uuid, String>,
    counts: HashMap<String, usize>,
}

impl PendingUploads {
    /// Returns the index of uploads that exist already.
    pub fn of(uploads: Vec<(Uuid, String)>) -> Self {
        let pending = Self::default();
        for (version, requester) in uploads {
            pending.add(version, &requester, usize::MAX);
        }
        pending
    }

    /// Adds an upload, unless its requester has `most` already. Returns true if it was added.
    pub fn add(&self, version: Uuid, requester: &str, most: usize) -> bool {
        let index = &mut *self.index();
        let count = index.counts.get(requester).copied().unwrap_or_default();
        if count >= most {
            return false;
        }
        index.counts.insert(requester.to_owned(), count + 1);
        index.requesters.insert(version, requester.to_owned());
        true
    }

    /// Removes an upload that is finished or deleted.
    pub fn remove(&self, version: Uuid) {
        let index = &mut *self.index();
        let Some(requester) = index.requesters.remove(&version) else { return };
        if let Some(count) = index.counts.get_mut(&requester) {
            *count -= 1;
            if *count == 0 {
                index.counts.remove(&requester);
            }
        }
    }

    fn index(&self) -> MutexGuard<'_, PendingIndex> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_requester_has_a_bound_of_its_own() {
        let ids = [1, 2, 3, 4].map(Uuid::from_u128);
        let pending = PendingUploads::of(vec![(ids[0], "a".into())]);
        assert!(pending.add(ids[1], "a", 2) && !pending.add(ids[2], "a", 2) && pending.add(ids[2], "b", 2));
        pending.remove(ids[0]);
        pending.remove(ids[0]);
        assert!(pending.add(ids[3], "a", 2) && !pending.add(ids[0], "a", 2));
        for id in ids {
            pending.remove(id);
        }
        let index = pending.index();
        assert!(index.counts.is_empty() && index.requesters.is_empty());
    }

    #[test]
    fn a_bound_of_nothing_rejects_every_upload() {
        let pending = PendingUploads::default();
        assert!(!pending.add(Uuid::nil(), "a", 0));
    }
}
