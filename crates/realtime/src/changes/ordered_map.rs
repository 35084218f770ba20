//! A map that is asked for its keys in nearly the same order again and again.

use std::hash::Hash;

use indexmap::IndexMap;

/// A map in the order of insertion, which looks for a key behind the one before first. Each change
/// has the same subscribers in the same order, and a look-up among ten thousand of them misses the
/// processor's cache several times.
#[derive(Debug)]
pub(crate) struct OrderedMap<K, V> {
    entries: IndexMap<K, V>,
    /// The position that is looked at first.
    next: usize,
}

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self { entries: IndexMap::new(), next: 0 }
    }
}

impl<K: Hash + Eq, V: Default> OrderedMap<K, V> {
    /// Returns the value of a key, which is empty at first. `is_key` returns true for the key
    /// alone, and may return false for an equal one.
    pub fn entry_where(&mut self, is_key: impl Fn(&K) -> bool, key: impl FnOnce() -> K) -> &mut V {
        let is_at = |position: usize| self.entries.get_index(position).is_some_and(|(known, _)| is_key(known));
        // The entries of a reader follow each other; behind the last reader comes the first
        let tried = [self.next, self.next.wrapping_sub(1), 0];
        let position = match tried.into_iter().find(|position| is_at(*position)) {
            Some(position) => position,
            None => {
                let entry = self.entries.entry(key());
                let position = entry.index();
                entry.or_default();
                position
            }
        };
        self.next = position + 1;
        &mut self.entries[position]
    }

    /// Returns the entries in the order in which they were added.
    pub fn into_entries(self) -> impl ExactSizeIterator<Item = (K, V)> {
        self.entries.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_entry_in_whatever_order_it_comes() {
        let mut map = OrderedMap::<u8, Vec<usize>>::default();
        for (number, key) in [1, 2, 2, 3, 1, 2, 3, 3, 1, 3, 2, 4, 1].into_iter().enumerate() {
            // Also where an equal key is not recognised
            map.entry_where(|known| *known == key && number % 5 != 0, || key).push(number);
        }
        let entries: Vec<_> = map.into_entries().collect();
        assert_eq!(entries, [(1, vec![0, 4, 8, 12]), (2, vec![1, 2, 5, 10]), (3, vec![3, 6, 7, 9]), (4, vec![11])]);
    }
}
