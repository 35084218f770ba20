//! The presence of one room.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::diff::{MetasByKey, PresenceMeta, diff_json};
use crate::ids::{ChannelId, NodeId};
use crate::rooms::Publication;

/// The channel that an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PresenceHolder {
    pub node: NodeId,
    /// The channel on that node.
    pub channel: ChannelId,
}

/// The entries of a room, one for each channel that tracks. They are in the order in which they
/// were tracked.
#[derive(Debug, Default)]
pub(super) struct RoomPresence {
    /// By key and number.
    metas: BTreeMap<(Arc<str>, u64), PresenceEntry>,
    positions: HashMap<PresenceHolder, (Arc<str>, u64)>,
    last_number: u64,
    /// The size of all entries.
    bytes: usize,
    /// The JSON of all entries, until the next change.
    state: Option<Bytes>,
    /// The messages that wait behind one that is not delivered to all threads yet.
    pub backlog: Option<VecDeque<Publication>>,
}

#[derive(Debug)]
struct PresenceEntry {
    holder: PresenceHolder,
    meta: PresenceMeta,
}

/// The memory of an entry beside its key and its JSON, about.
const ENTRY_BYTES: usize = 256;

/// Returns the size of an entry in bytes.
fn entry_size(key: &str, meta: &PresenceMeta) -> usize {
    ENTRY_BYTES + key.len() + meta.json().len()
}

/// A change of a room.
#[derive(Debug, Default)]
pub(super) struct PresenceChange {
    joins: Vec<(Arc<str>, PresenceMeta)>,
    leaves: Vec<(Arc<str>, PresenceMeta)>,
}

impl PresenceChange {
    /// Returns the payload of `presence_diff`.
    pub fn json(&self) -> Bytes {
        fn grouped(metas: &[(Arc<str>, PresenceMeta)]) -> MetasByKey<'_> {
            metas.iter().map(|(key, meta)| (&**key, meta)).collect()
        }
        diff_json(&grouped(&self.joins), &grouped(&self.leaves))
    }

    /// Returns true if nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.leaves.is_empty()
    }
}

impl RoomPresence {
    /// Returns true if the room can be forgotten.
    pub fn is_unused(&self) -> bool {
        self.metas.is_empty() && self.backlog.is_none()
    }

    /// Returns the size of all entries in bytes.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// Returns the size of all entries after [`set`](Self::set) with the same arguments.
    pub fn size_with(&self, holder: PresenceHolder, key: &str, meta: &PresenceMeta) -> usize {
        let before = self.positions.get(&holder).and_then(|position| Some((&position.0, self.metas.get(position)?)));
        let before = before.map_or(0, |(key, entry)| entry_size(key, &entry.meta));
        self.bytes - before + entry_size(key, meta)
    }

    /// Returns the entry of a channel.
    pub fn get(&self, holder: PresenceHolder) -> Option<&PresenceMeta> {
        let position = self.positions.get(&holder)?;
        self.metas.get(position).map(|entry| &entry.meta)
    }

    /// Returns the key of the entry of a channel.
    pub fn key(&self, holder: PresenceHolder) -> Option<&str> {
        self.positions.get(&holder).map(|(key, _)| &**key)
    }

    /// Adds the entry of a channel, in place of the one that it had.
    pub fn set(&mut self, holder: PresenceHolder, key: &str, meta: PresenceMeta) -> PresenceChange {
        let mut change = self.remove(holder);
        self.last_number += 1;
        let position = (Arc::from(key), self.last_number);
        change.joins.push((Arc::clone(&position.0), meta.clone()));
        self.bytes += entry_size(key, &meta);
        self.state = None;
        self.positions.insert(holder, position.clone());
        self.metas.insert(position, PresenceEntry { holder, meta });
        change
    }

    /// Removes the entry of a channel, if it has one.
    pub fn remove(&mut self, holder: PresenceHolder) -> PresenceChange {
        let mut change = PresenceChange::default();
        if let Some(position) = self.positions.remove(&holder)
            && let Some(entry) = self.metas.remove(&position)
        {
            self.bytes -= entry_size(&position.0, &entry.meta);
            change.leaves.push((position.0, entry.meta));
            self.state = None;
        }
        change
    }

    /// Removes the entries that `is_gone` returns true for.
    pub fn remove_all(&mut self, is_gone: impl Fn(PresenceHolder) -> bool) -> PresenceChange {
        let mut gone: Vec<(u64, PresenceHolder)> = self
            .metas
            .iter()
            .filter(|(_, entry)| is_gone(entry.holder))
            .map(|((_, number), entry)| (*number, entry.holder))
            .collect();
        gone.sort_unstable_by_key(|(number, _)| *number);
        let mut change = PresenceChange::default();
        for (_, holder) in gone {
            change.leaves.append(&mut self.remove(holder).leaves);
        }
        change
    }

    /// Returns the entries with their keys and channels, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (&Arc<str>, PresenceHolder, &PresenceMeta)> {
        self.metas.iter().map(|((key, _), entry)| (key, entry.holder, &entry.meta))
    }

    /// Returns the payload of `presence_state`.
    pub fn state(&mut self) -> Bytes {
        let metas = &self.metas;
        let encode = || metas.iter().map(|((key, _), entry)| (&**key, &entry.meta)).collect::<MetasByKey>().json();
        self.state.get_or_insert_with(encode).clone()
    }
}
