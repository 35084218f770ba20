//! Database changes: from the messages of the output plugin `pgoutput` to JSON.
//!
//! - `message` reads one message, with every length checked;
//! - `decoder` knows the open transaction and the relations, and makes [`Change`]s of messages;
//! - `types` describes how the values of a type are rendered, from the catalog;
//! - `json` renders a value from PostgreSQL's text form, as `to_jsonb` does;
//! - `table` has the facts about a table that the messages lack, and `catalog` keeps them;
//! - `record` renders the columns of a row.
//!
//! Everything but the queries of `types` and `table` is pure. A change holds slices of the buffer
//! that its message was read into.

mod array;
mod catalog;
mod change;
mod decoder;
mod document;
mod error;
#[cfg(test)]
mod fixture;
mod json;
mod json_string;
mod message;
mod number;
mod record;
mod row;
mod shape;
mod table;
#[cfg(test)]
mod tests;
mod tuple;
mod types;

pub(crate) use catalog::TableCatalog;
pub(crate) use change::{Change, ChangeKind, CommitTime, OldTuple, TransactionId};
pub(crate) use decoder::{Decoded, Decoder};
pub(crate) use error::DecodeError;
#[cfg(test)]
pub(crate) use fixture::{described_table, inserted};
pub(crate) use json_string::write_string;
pub(crate) use record::{DescribedTable, RenderedRow, WaitingColumn};
pub(crate) use table::Table;
pub(crate) use tuple::{ColumnValue, Tuple};
