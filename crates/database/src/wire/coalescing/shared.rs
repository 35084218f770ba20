//! The limits and the knowledge that the reads of a coalescer share.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::statement_times::StatementTimes;

/// The state of a coalescer and its clones.
#[derive(Debug)]
pub(super) struct SharedCoalescer {
    pub quick_read_limit: Duration,
    pub max_quick_reads: Option<usize>,
    pub times: StatementTimes,
    pub coalesced: AtomicU64,
}
