//! A plan to one statement and its parameters. Pure.
//!
//! What a main statement yields is known beforehand ([`StatementOutput`]): mostly one row with the columns of [`EnvelopeColumn`]; where nobody counts
//! and nothing but PostgreSQL's own functions can run, simply the rows, which costs PostgreSQL half as much. Its text depends on the
//! request's shape only, never on its values.

mod call;
mod envelope;
mod explain;
mod filter;
mod main_statement;
mod page;
mod payload;
mod plain;
pub mod read;
#[cfg(test)]
mod tests;
mod write;

use portico_database::wire::RowSeparators;

pub use crate::plan::RowCount;
pub use crate::statement_builder::{BoundValue, Sql};
pub use call::call;
pub use envelope::{Envelope, TotalSource, envelope, matching, read as read_statement};
pub use filter::conditions;
pub(crate) use main_statement::MainStatement;
pub use plain::{read as plain_read, write as plain_write};
pub use write::write;

/// What a main statement yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementOutput {
    /// One row with the columns of [`EnvelopeColumn`].
    Envelope,
    /// The rows of the answer, each as its JSON, which so joined are the body.
    Rows(RowSeparators),
    /// No rows: the number of those that were written.
    Count,
}

/// The columns of the one row, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum EnvelopeColumn {
    /// `bigint`: the rows there are in all; NULL when nobody asked.
    Total = 0,
    /// `bigint`: the rows that the answer is about.
    Rows = 1,
    /// The body, in the bytes of the answer; NULL when it was not asked for.
    Body = 2,
    /// `text`: `response.headers`, NULL when it is not set or empty.
    Headers = 3,
    /// `text`: `response.status`, NULL when it is not set or empty.
    Status = 4,
    /// `bigint`: of a merge upsert, the rows that are new; else NULL.
    Inserted = 5,
    /// `text`: of a write with `return=headers-only` that wrote exactly one row, a JSON array of the
    /// primary key's columns, each a pair of its name and its value as text; else NULL.
    Location = 6,
}
