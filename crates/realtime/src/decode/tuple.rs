//! The column values of a row, as slices of the message that they came in.

use bytes::Bytes;

use super::error::DecodeError;

/// The value of a column in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnValue<'a> {
    /// Null.
    Null,
    /// A large value that an update did not change, which the log does not repeat.
    Unchanged,
    /// PostgreSQL's text form.
    Text(&'a [u8]),
}

/// The values of a row, in the order of the relation's columns. Shares the memory of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tuple {
    /// The values, checked to be well-formed.
    values: Bytes,
    columns: u16,
}

impl Tuple {
    /// Takes the values from the start of `body`, after a check of every length.
    pub fn take(body: &mut Bytes) -> Result<Self, DecodeError> {
        let (columns, mut rest) = body.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let columns = u16::from_be_bytes(*columns);
        for _ in 0..columns {
            (_, rest) = value(rest)?;
        }
        let end = body.len() - rest.len();
        let values = body.split_to(end).slice(2..);
        Ok(Self { values, columns })
    }

    /// Returns the values.
    pub fn values(&self) -> TupleValues<'_> {
        TupleValues { rest: &self.values, columns: self.columns }
    }

    /// Returns the value of a column, counted from 0. `None` for a column that is not there.
    pub fn get(&self, column: usize) -> Option<ColumnValue<'_>> {
        self.values().nth(column)
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns.into()
    }

    /// Returns the bytes of a value without a copy, for one that outlives the tuple.
    pub fn slice(&self, value: &[u8]) -> Bytes {
        self.values.slice_ref(value)
    }

    /// Returns the size of the values in bytes, with their lengths.
    pub fn size(&self) -> usize {
        self.values.len()
    }
}

/// Iterates over the values of a [`Tuple`].
#[derive(Debug, Clone)]
pub(crate) struct TupleValues<'a> {
    rest: &'a [u8],
    columns: u16,
}

impl<'a> Iterator for TupleValues<'a> {
    type Item = ColumnValue<'a>;

    fn next(&mut self) -> Option<ColumnValue<'a>> {
        self.columns = self.columns.checked_sub(1)?;
        // `Tuple::take` has checked the values
        let (value, rest) = value(self.rest).ok()?;
        self.rest = rest;
        Some(value)
    }
}

/// Reads one value. Also returns the bytes after it.
fn value(body: &[u8]) -> Result<(ColumnValue<'_>, &[u8]), DecodeError> {
    let (kind, rest) = body.split_first().ok_or(DecodeError::Truncated)?;
    match kind {
        b'n' => Ok((ColumnValue::Null, rest)),
        b'u' => Ok((ColumnValue::Unchanged, rest)),
        b't' => {
            let (length, rest) = rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
            let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| DecodeError::Truncated)?;
            let (value, rest) = rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
            Ok((ColumnValue::Text(value), rest))
        }
        _ => Err(DecodeError::UnknownValue),
    }
}
