//! The primary keys of the changes that are worked on at once, by number.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::committed_change::{CommittedChange, RowKey};

/// A key that is read, and its number.
pub(crate) type NumberedKey<'a> = (usize, &'a RowKey);

/// The keys of changes. The number of a key is the position of its first change.
#[derive(Debug)]
pub(crate) struct SliceKeys {
    /// By the positions of the changes: the number of the key. `None`: the change has none.
    numbers: Vec<Option<usize>>,
    /// By number.
    keys: HashMap<usize, RowKey>,
}

impl SliceKeys {
    /// Returns the keys of changes.
    pub fn of(changes: &[CommittedChange]) -> Self {
        let mut known: HashMap<(u32, RowKey), usize> = HashMap::new();
        let numbers = changes.iter().enumerate().map(|(position, change)| {
            Some(match known.entry((change.table.table.oid, change.key()?)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => *unknown.insert(position),
            })
        });
        let numbers = numbers.collect();
        Self { numbers, keys: known.into_iter().map(|((_, key), number)| (number, key)).collect() }
    }

    /// Returns the number of a change's key.
    pub fn number(&self, change: usize) -> Option<usize> {
        self.numbers.get(change).copied().flatten()
    }

    /// Returns the keys with some numbers, each once.
    pub fn with_numbers(&self, mut numbers: Vec<usize>) -> Vec<NumberedKey<'_>> {
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().filter_map(|number| Some((number, self.keys.get(&number)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decode::{CommitTime, described_table, inserted};

    #[test]
    fn changes_of_one_row_share_the_number_of_its_key() {
        let (items, others) = (described_table(1, &["id"]), described_table(2, &["id"]));
        let changes = [(&items, "a"), (&items, "b"), (&others, "a"), (&items, "a")].map(|(table, id)| {
            CommittedChange { commit_time: CommitTime(0), table: Arc::clone(table), change: inserted(&[id]) }
        });
        let keys = SliceKeys::of(&changes);
        assert_eq!([0, 1, 2, 3, 4].map(|change| keys.number(change)), [Some(0), Some(1), Some(2), Some(0), None]);
        let read = keys.with_numbers(vec![1, 0, 1]);
        assert_eq!(read.iter().map(|(number, key)| (*number, &*key[0])).collect::<Vec<_>>(), [(0, "a"), (1, "b")]);
    }
}
