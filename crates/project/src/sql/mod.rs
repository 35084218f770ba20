//! SQL text: tokens, and the statements a file consists of.

mod lexer;
mod split;

pub use split::{SqlStatement, split};

/// The largest SQL file, in bytes. PostgreSQL's own limit is near.
pub(crate) const MAX_SQL: u64 = 256 * 1024 * 1024;
