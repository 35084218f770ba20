//! The results of a batch: rows as slices of the buffer that they were read into.

use std::ops::Range;

use bytes::Bytes;

use super::joined_rows::JoinedRows;
use super::message_reader::MalformedMessage;

/// The results of the statements of a batch, in the order of the batch.
#[derive(Debug, Default)]
pub struct ResultSets {
    rows: Vec<Row>,
    statements: Vec<CompletedStatement>,
    /// The index of the first row of the current statement.
    first_row: usize,
    /// The joined rows of a statement.
    pub(crate) joined_rows: Option<JoinedRows>,
    pub(crate) notices: usize,
    pub(crate) in_transaction: bool,
}

#[derive(Debug)]
struct CompletedStatement {
    rows: Range<usize>,
    tag: CommandTag,
}

impl ResultSets {
    pub(crate) fn with_capacity(statements: usize) -> Self {
        Self { rows: Vec::with_capacity(statements), statements: Vec::with_capacity(statements), ..Self::default() }
    }

    pub(crate) fn add_row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Ends the current statement.
    pub(crate) fn complete(&mut self, tag: &[u8]) {
        self.statements.push(CompletedStatement { rows: self.first_row..self.rows.len(), tag: CommandTag::new(tag) });
        self.first_row = self.rows.len();
    }

    /// Discards the results after the first `statements`.
    pub(crate) fn truncate(&mut self, statements: usize) {
        self.statements.truncate(statements);
    }

    /// Discards the results of some statements. They have to be there.
    pub(crate) fn leave_out(&mut self, statements: Range<usize>) {
        self.statements.drain(statements);
    }

    /// Takes the joined rows of the statement that asked for
    /// [joining](crate::wire::Statement::joined). Its [`rows`](Self::rows) are empty.
    pub fn take_joined_rows(&mut self) -> Option<JoinedRows> {
        self.joined_rows.take()
    }

    /// Returns the number of statements with a result.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Returns true if there was no statement.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Returns the rows of a statement, counted from 0. Empty for a statement that does not exist.
    pub fn rows(&self, statement: usize) -> &[Row] {
        self.statements.get(statement).and_then(|completed| self.rows.get(completed.rows.clone())).unwrap_or_default()
    }

    /// Returns the first row of a statement.
    pub fn row(&self, statement: usize) -> Option<&Row> {
        self.rows(statement).first()
    }

    /// Returns PostgreSQL's command tag, such as `INSERT 0 3`. Empty for an empty statement and for
    /// one that does not exist.
    pub fn tag(&self, statement: usize) -> &str {
        self.statements.get(statement).map(|completed| completed.tag.as_str()).unwrap_or_default()
    }

    /// Returns how many rows the statement returned or changed, according to its command tag.
    pub fn affected(&self, statement: usize) -> Option<u64> {
        self.tag(statement).rsplit(' ').next().and_then(|count| count.parse().ok())
    }

    /// Returns the number of notices and warnings. Their texts are discarded.
    pub fn notices(&self) -> usize {
        self.notices
    }

    /// Returns true if the batch left a transaction open, which another batch has to end.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }
}

/// A command tag. PostgreSQL's tags have less than 64 bytes, so they are stored without an
/// allocation.
#[derive(Debug, Clone, Copy)]
struct CommandTag {
    length: u8,
    text: [u8; Self::LONGEST],
}

impl CommandTag {
    const LONGEST: usize = 63;

    fn new(tag: &[u8]) -> Self {
        let mut text = [0; Self::LONGEST];
        let length = tag.len().min(Self::LONGEST);
        text[..length].copy_from_slice(&tag[..length]);
        Self { length: u8::try_from(length).unwrap_or_default(), text }
    }

    fn as_str(&self) -> &str {
        self.text.get(..self.length.into()).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

/// One row. Its values are slices of the read buffer: a value that is kept keeps that buffer (some
/// kilobytes, or exactly one large row) in memory.
#[derive(Debug, Clone)]
pub struct Row {
    /// The body of a `DataRow` message, checked to be well-formed.
    body: Bytes,
}

/// Returns the value of the first column in the body of a `DataRow` message.
pub(crate) fn first_value(body: &[u8]) -> Result<Option<&[u8]>, MalformedMessage> {
    const CUT: MalformedMessage = MalformedMessage("a row without a first column");
    let (_, rest) = body.split_first_chunk::<2>().ok_or(CUT)?;
    value(rest).map(|(value, _)| value).ok_or(CUT)
}

impl Row {
    /// Makes a row of the body of a `DataRow` message, after a check of every length in it.
    pub(crate) fn new(body: Bytes) -> Result<Self, MalformedMessage> {
        const CUT: MalformedMessage = MalformedMessage("a row that ends too early");
        let (count, mut rest) = body.split_first_chunk().ok_or(CUT)?;
        for _ in 0..u16::from_be_bytes(*count) {
            (_, rest) = value(rest).ok_or(CUT)?;
        }
        if !rest.is_empty() {
            return Err(MalformedMessage("a row with more than its columns"));
        }
        Ok(Self { body })
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.body.first_chunk().map_or(0, |count| u16::from_be_bytes(*count).into())
    }

    /// Returns true if it has no columns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a column, counted from 0, in PostgreSQL's text form and without a copy.
    /// `None` when it is null or the column does not exist.
    pub fn get(&self, column: usize) -> Option<Bytes> {
        self.bytes(column).map(|value| self.body.slice_ref(value))
    }

    /// Returns the value as [`get`](Self::get) does, borrowed.
    pub fn bytes(&self, column: usize) -> Option<&[u8]> {
        let (count, mut rest) = self.body.split_first_chunk()?;
        if column >= usize::from(u16::from_be_bytes(*count)) {
            return None;
        }
        for _ in 0..column {
            (_, rest) = value(rest)?;
        }
        value(rest)?.0
    }

    /// Returns the value as [`get`](Self::get) does, as text.
    pub fn text(&self, column: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(column)?).ok()
    }
}

/// Reads one value: a length (-1 for null) and that many bytes. Also returns the bytes after it.
fn value(body: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = body.split_first_chunk()?;
    match i32::from_be_bytes(*length) {
        -1 => Some((None, rest)),
        length => {
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((Some(value), rest))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(values: &[Option<Vec<u8>>]) -> Vec<u8> {
        let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
        for value in values {
            match value {
                None => body.extend((-1_i32).to_be_bytes()),
                Some(bytes) => {
                    body.extend(i32::try_from(bytes.len()).unwrap().to_be_bytes());
                    body.extend(bytes);
                }
            }
        }
        body
    }

    proptest! {
        #[test]
        fn a_row_returns_its_values_and_a_truncated_one_is_rejected(values: Vec<Option<Vec<u8>>>) {
            let body = encoded(&values);
            let row = Row::new(Bytes::from(body.clone())).unwrap();
            prop_assert_eq!(row.len(), values.len());
            for (column, value) in values.iter().enumerate() {
                let got = row.get(column);
                prop_assert_eq!(got.as_deref(), value.as_deref());
            }
            prop_assert_eq!(row.get(values.len()), None);
            prop_assert!(Row::new(Bytes::from(body).slice(..encoded(&values).len() - 1)).is_err());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(body: Vec<u8>) {
            if let Ok(row) = Row::new(Bytes::from(body)) {
                for column in 0..=row.len() {
                    let _ = row.text(column);
                }
            }
        }
    }

    #[test]
    fn result_sets_keep_the_rows_of_each_statement_apart() {
        let row = || Row::new(Bytes::from(encoded(&[Some(b"x".to_vec())]))).unwrap();
        let mut results = ResultSets::with_capacity(3);
        results.add_row(row());
        results.add_row(row());
        results.complete(b"SELECT 2");
        results.complete(b"");
        results.add_row(row());
        results.complete(b"INSERT 0 1");
        assert_eq!(
            [results.rows(0).len(), results.rows(1).len(), results.rows(2).len(), results.rows(3).len()],
            [2, 0, 1, 0]
        );
        assert_eq!((results.tag(2), results.affected(2), results.affected(1)), ("INSERT 0 1", Some(1), None));
    }
}
