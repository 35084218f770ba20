//! Waits until committed transactions are visible to other sessions.
//!
//! The stream delivers a transaction as soon as its commit is in the server's log. Other sessions
//! see it a moment later, and with synchronous replication whenever a standby has answered. A read
//! in between finds the rows as they were before: it would apply the permission of an old row to
//! the content of the new one, or miss the new one. So nothing that a transaction has changed is
//! read before this wait.

use std::time::Duration;

use tokio_postgres::{Client, Error};

use crate::decode::TransactionId;

/// The pause between two looks at the server, which grows to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const SNAPSHOT: &str = "select pg_catalog.pg_current_snapshot()::pg_catalog.text";

/// Waits until every snapshot that is taken from now on contains these transactions, which the
/// stream has delivered. Does not wait longer than the server does.
///
/// # Errors
/// PostgreSQL's error, or that of the connection.
pub(crate) async fn wait_until_visible(client: &Client, transactions: &[TransactionId]) -> Result<(), Error> {
    let mut pause = FIRST_PAUSE;
    loop {
        let rows = client.query_typed(SNAPSHOT, &[]).await?;
        let text = rows.first().map(|row| row.try_get::<_, String>(0)).transpose()?;
        let snapshot = text.as_deref().and_then(TransactionSnapshot::read);
        if snapshot.is_some_and(|snapshot| transactions.iter().all(|id| snapshot.contains(*id))) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The transactions that a snapshot contains, as `pg_snapshot` describes it.
#[derive(Debug)]
struct TransactionSnapshot {
    /// The oldest transaction that was running: all before it had ended.
    oldest: u64,
    /// The first transaction that had not ended and had no id, or a later one than any that had.
    next: u64,
    running: Vec<u64>,
}

impl TransactionSnapshot {
    /// Reads `xmin:xmax:xip,xip`.
    fn read(text: &str) -> Option<Self> {
        let mut fields = text.split(':');
        let (oldest, next) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let running = fields.next()?.split(',').filter(|id| !id.is_empty());
        Some(Self { oldest, next, running: running.map(|id| id.parse().ok()).collect::<Option<_>>()? })
    }

    /// Returns true if a transaction that has been committed is contained.
    fn contains(&self, TransactionId(id): TransactionId) -> bool {
        // Of the ids with these lower 32 bits, the one that is nearest
        let distance = id.wrapping_sub(self.next as u32).cast_signed();
        let id = self.next.wrapping_add_signed(distance.into());
        id < self.oldest || id < self.next && !self.running.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_contains_the_transactions_that_had_ended() {
        let snapshot = TransactionSnapshot::read("100:105:100,103").unwrap();
        let contained = |id| snapshot.contains(TransactionId(id));
        assert_eq!([99, 101, 102, 104].map(contained), [true; 4]);
        assert_eq!([100, 103, 105, 106].map(contained), [false; 4]);
        let snapshot = TransactionSnapshot::read("7:7:").unwrap();
        assert_eq!([6, 7].map(|id| snapshot.contains(TransactionId(id))), [true, false]);
    }

    #[test]
    fn ids_are_compared_across_the_wrap_of_their_lower_bits() {
        let epoch = 1_u64 << 32;
        let snapshot = TransactionSnapshot::read(&format!("{}:{}:{}", epoch - 2, epoch + 5, epoch - 2)).unwrap();
        let contained = |id| snapshot.contains(TransactionId(id));
        assert_eq!([u32::MAX, u32::MAX - 2, 0, 4].map(contained), [true; 4]);
        assert_eq!([u32::MAX - 1, 5, 6].map(contained), [false; 3]);
    }

    #[test]
    fn a_text_that_is_no_snapshot_contains_nothing() {
        for text in ["", "1", "1:2", "a:b:", "1:2:x"] {
            assert!(TransactionSnapshot::read(text).is_none(), "{text}");
        }
    }
}
