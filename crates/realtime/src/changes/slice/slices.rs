//! The changes that are worked on at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::committed_change::CommittedChange;
use crate::decode::DescribedTable;

/// The largest number of changes that are worked on at once.
const MAX_CHANGES: usize = 1_000;
/// The largest size of the changes that are worked on at once, in bytes; a single change may be
/// larger.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The largest number of entries that are looked at for the changes together; those for a single
/// change may be more.
const MAX_AUDIENCE: usize = 1_000_000;

/// Returns the number of changes that are worked on at once: a bounded number and size, and never
/// two descriptions of one table. What a role may read is asked for one description, and must not
/// be applied to the columns or keys of another. `audience` returns the number of entries for a
/// change's table.
pub(crate) fn slice_end(changes: &[CommittedChange], audience: impl Fn(&CommittedChange) -> usize) -> usize {
    let mut tables: HashMap<u32, (&Arc<DescribedTable>, usize)> = HashMap::new();
    let (mut bytes, mut all) = (0, 0);
    for (number, change) in changes.iter().enumerate() {
        bytes += change.size();
        let (known, audience) =
            *tables.entry(change.table.table.oid).or_insert_with(|| (&change.table, audience(change)));
        all += audience;
        let is_other = !Arc::ptr_eq(known, &change.table);
        if number > 0 && (number == MAX_CHANGES || bytes > MAX_BYTES || all > MAX_AUDIENCE || is_other) {
            return number;
        }
    }
    changes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{CommitTime, described_table, inserted};

    fn insert(table: &Arc<DescribedTable>, value: &str) -> CommittedChange {
        CommittedChange { commit_time: CommitTime(0), table: Arc::clone(table), change: inserted(&[value]) }
    }

    fn ends(changes: &[CommittedChange]) -> Vec<usize> {
        ends_for(1, changes)
    }

    fn ends_for(audience: usize, mut changes: &[CommittedChange]) -> Vec<usize> {
        let mut ends = Vec::new();
        while !changes.is_empty() {
            let end = slice_end(changes, |_| audience);
            ends.push(end);
            changes = &changes[end..];
        }
        ends
    }

    #[test]
    fn a_slice_has_one_description_of_a_table() {
        let (wide, other) = (described_table(1, &["id", "x", "secret"]), described_table(2, &["id"]));
        // The same table after a column was dropped
        let narrow = described_table(1, &["id", "secret"]);
        let changes: Vec<_> =
            [&wide, &other, &wide, &narrow, &other, &narrow, &wide].map(|table| insert(table, "1")).into();
        assert_eq!(ends(&changes), [3, 3, 1]);
    }

    #[test]
    fn a_slice_is_bounded_in_number_and_size() {
        let table = described_table(1, &["id"]);
        let many: Vec<_> = (0..=2 * MAX_CHANGES).map(|_| insert(&table, "1")).collect();
        assert_eq!(ends(&many), [MAX_CHANGES, MAX_CHANGES, 1]);
        assert_eq!(ends_for(MAX_AUDIENCE / 4, &many[..9]), [4, 4, 1]);
        assert_eq!(ends_for(2 * MAX_AUDIENCE, &many[..2]), [1, 1]);
        let (half, large) = ("x".repeat(MAX_BYTES / 2 - 100), "x".repeat(MAX_BYTES + 1));
        let sized: Vec<_> = [&half, &half, &half, &large, &large].map(|value| insert(&table, value)).into();
        assert_eq!(ends(&sized), [2, 1, 1, 1]);
    }
}
