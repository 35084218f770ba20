//! Owned copies of batches, and the encoding of statements that a connection has already parsed.

use std::fmt;
use std::ops::Range;

use bytes::BytesMut;

use super::prepared_statements::PreparedStatements;
use crate::wire::protocol::batch::{Batch, Param, Preparation, Statement};
use crate::wire::protocol::encode::{EXECUTE, bind};
use crate::wire::protocol::joined_rows::RowSeparators;

/// An owned copy of a batch, which a connection of another caller can send.
pub(crate) struct BatchCopy {
    /// All texts and values, one after the other.
    bytes: Vec<u8>,
    statements: Vec<StatementCopy>,
}

struct StatementCopy {
    key: u64,
    text: Range<usize>,
    scope: Range<usize>,
    params: Vec<Option<Range<usize>>>,
    binary: bool,
    is_main: bool,
    joined: Option<RowSeparators>,
}

impl fmt::Debug for BatchCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Claims and values stay out of logs
        write!(f, "BatchCopy({} statements)", self.statements.len())
    }
}

impl BatchCopy {
    /// Copies a batch. `key_of` returns the keys of its statements.
    pub fn new(batch: &Batch<'_>, key_of: impl Fn(&Statement<'_>) -> u64) -> Self {
        let mut bytes = Vec::with_capacity(size(batch));
        let mut copy = |value: &[u8]| {
            let start = bytes.len();
            bytes.extend_from_slice(value);
            start..bytes.len()
        };
        let copy_statement = |statement: &Statement<'_>| StatementCopy {
            key: key_of(statement),
            text: copy(statement.text.as_bytes()),
            scope: copy(statement.scope.as_bytes()),
            params: statement.params.iter().map(|param| param.map(&mut copy)).collect(),
            binary: statement.binary,
            is_main: statement.is_main,
            joined: statement.joined,
        };
        let statements = batch.statements.iter().map(copy_statement).collect();
        Self { bytes, statements }
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Returns the position of the statement whose rows are joined, and their separators.
    pub fn joined(&self) -> Option<(usize, RowSeparators)> {
        let mut each = self.statements.iter().enumerate();
        each.find_map(|(position, statement)| Some((position, statement.joined?)))
    }

    /// Returns the key of the main statement.
    pub fn main_key(&self) -> Option<u64> {
        self.statements.iter().find(|statement| statement.is_main).map(|statement| statement.key)
    }

    /// Returns true if the connection with these prepared statements has parsed all statements.
    pub fn is_prepared(&self, prepared: &mut PreparedStatements) -> bool {
        let mut each = self.statements.iter();
        each.all(|it| prepared.name(it.key, self.text(&it.text), self.text(&it.scope)).is_some())
    }

    /// Encodes the statements. `false`: one would have to be parsed first, or its values are too
    /// large.
    pub fn write(&self, out: &mut BytesMut, prepared: &mut PreparedStatements) -> bool {
        self.statements.iter().all(|it| {
            let params: Vec<Param<'_>> =
                it.params.iter().map(|param| param.as_ref().map(|value| self.bytes(value))).collect();
            let (text, scope) = (self.text(&it.text), self.text(&it.scope));
            let statement = Statement { binary: it.binary, ..Statement::named(text, &params) }.scope(scope);
            write_prepared(out, prepared, it.key, &statement)
        })
    }

    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    fn text(&self, range: &Range<usize>) -> &str {
        // The bytes were copied from text
        std::str::from_utf8(self.bytes(range)).unwrap_or_default()
    }
}

/// Returns the size of a batch in bytes, texts and values together.
pub(crate) fn size(batch: &Batch<'_>) -> usize {
    let size_of = |statement: &Statement<'_>| {
        let values: usize = statement.params.iter().flatten().map(|value| value.len()).sum();
        statement.text.len() + statement.scope.len() + values
    };
    batch.statements.iter().map(size_of).sum()
}

/// Returns true if a connection has parsed a statement.
pub(crate) fn is_prepared(prepared: &mut PreparedStatements, key: u64, statement: &Statement<'_>) -> bool {
    match statement.preparation {
        Preparation::KeptUnnamed(text) => prepared.is_unnamed(text),
        Preparation::Named | Preparation::Unnamed => prepared.name(key, statement.text, statement.scope).is_some(),
    }
}

/// Encodes a statement that the connection has parsed. `false`: it would have to be parsed first,
/// or its values are too large.
pub(crate) fn write_prepared(
    out: &mut BytesMut,
    prepared: &mut PreparedStatements,
    key: u64,
    statement: &Statement<'_>,
) -> bool {
    let name = match statement.preparation {
        Preparation::KeptUnnamed(text) if prepared.is_unnamed(text) => None,
        Preparation::KeptUnnamed(_) => return false,
        Preparation::Named | Preparation::Unnamed => match prepared.name(key, statement.text, statement.scope) {
            Some(name) => Some(name),
            None => return false,
        },
    };
    let mut large_values = Vec::new();
    bind(out, name, statement, &mut large_values);
    out.extend_from_slice(EXECUTE);
    large_values.is_empty()
}
