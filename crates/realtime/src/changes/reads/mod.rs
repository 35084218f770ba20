//! Reads of PostgreSQL: as a role of a reader, shared by those who ask the same, within their time
//! limits, and the pauses of work that fails.

pub(super) mod pauses;
pub(super) mod role_reads;
pub(super) mod shared_rounds;
pub(super) mod times;
