//! Statements: a plan as SQL text and parameters. Pure.
//!
//! The form of the result is known in advance ([`StatementOutput`]). Usually it is one row with the
//! columns of [`EnvelopeColumn`]. Where nothing is counted and only functions of PostgreSQL itself
//! can run, it is simply the rows, which costs PostgreSQL half as much. The text depends on the
//! shape of the request only, never on its values.

mod call;
mod envelope;
mod explain;
mod filter;
mod main_statement;
mod payload;
mod plain;
pub mod read;
mod subselect_output;
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

/// The form of a main statement's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementOutput {
    /// One row with the columns of [`EnvelopeColumn`].
    Envelope,
    /// The rows of the response, each as JSON, which are joined to the body.
    Rows(RowSeparators),
    /// No rows, only the number of rows that were written.
    Count,
}

/// The columns of an envelope, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum EnvelopeColumn {
    /// `bigint`: the number of all rows; NULL without a count.
    Total = 0,
    /// `bigint`: the number of rows of the response.
    Rows = 1,
    /// The bytes of the body; NULL if there is none.
    Body = 2,
    /// `text`: `response.headers`, NULL when it is not set or empty.
    Headers = 3,
    /// `text`: `response.status`, NULL when it is not set or empty.
    Status = 4,
    /// `bigint`: the number of rows that a merge upsert inserted; otherwise NULL.
    Inserted = 5,
    /// `text`: for a write with `return=headers-only` that wrote exactly one row, a JSON array of
    /// the primary key's columns, each a pair of name and value as text; otherwise NULL.
    Location = 6,
}
