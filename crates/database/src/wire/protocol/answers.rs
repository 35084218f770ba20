//! What is answered: rows as slices of the buffer they were read into.

use std::ops::Range;

use bytes::Bytes;

use super::gathered::Gathered;
use super::reader::Malformed;

/// The answers to the statements of a batch, in the batch's order.
#[derive(Debug, Default)]
pub struct Answers {
    rows: Vec<Row>,
    statements: Vec<Answer>,
    /// Where the rows of the statement under way begin.
    begun: usize,
    /// What a statement's rows were joined to.
    pub(crate) gathered: Option<Gathered>,
    pub(crate) notices: usize,
    pub(crate) in_transaction: bool,
}

#[derive(Debug)]
struct Answer {
    rows: Range<usize>,
    tag: Tag,
}

impl Answers {
    pub(crate) fn with_capacity(statements: usize) -> Self {
        Self { rows: Vec::with_capacity(statements), statements: Vec::with_capacity(statements), ..Self::default() }
    }

    pub(crate) fn add_row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Ends the statement under way.
    pub(crate) fn complete(&mut self, tag: &[u8]) {
        self.statements.push(Answer { rows: self.begun..self.rows.len(), tag: Tag::new(tag) });
        self.begun = self.rows.len();
    }

    /// Leaves out the answers behind the first `statements`.
    pub(crate) fn truncate(&mut self, statements: usize) {
        self.statements.truncate(statements);
    }

    /// What the rows of the batch's [gathered](crate::wire::Statement::gathered) statement were joined to; they are not among its
    /// [`rows`](Self::rows).
    pub fn gathered(&mut self) -> Option<Gathered> {
        self.gathered.take()
    }

    /// How many statements were answered.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether there was no statement.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// The rows of a statement, counted from 0; none for a statement that is not there.
    pub fn rows(&self, statement: usize) -> &[Row] {
        self.statements.get(statement).and_then(|answer| self.rows.get(answer.rows.clone())).unwrap_or_default()
    }

    /// The first row of a statement.
    pub fn row(&self, statement: usize) -> Option<&Row> {
        self.rows(statement).first()
    }

    /// PostgreSQL's command tag, such as `INSERT 0 3`; empty for an empty statement and for one that is not there.
    pub fn tag(&self, statement: usize) -> &str {
        self.statements.get(statement).map(|answer| answer.tag.as_str()).unwrap_or_default()
    }

    /// How many rows the statement returned or changed, as its tag says.
    pub fn affected(&self, statement: usize) -> Option<u64> {
        self.tag(statement).rsplit(' ').next().and_then(|count| count.parse().ok())
    }

    /// How many notices and warnings came along; their texts are dropped.
    pub fn notices(&self) -> usize {
        self.notices
    }

    /// Whether the batch left a transaction open, which another batch has to end.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }
}

/// PostgreSQL's command tags have less than 64 bytes: no allocation for them.
#[derive(Debug, Clone, Copy)]
struct Tag {
    length: u8,
    text: [u8; Self::LONGEST],
}

impl Tag {
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

/// One row. Its values are slices of what was read from the connection: to keep one keeps the read buffer (some kilobytes, or
/// exactly a large row).
#[derive(Debug, Clone)]
pub struct Row {
    /// The body of a `DataRow`, known to be well-formed.
    body: Bytes,
}

/// The value of the first column in the body of a `DataRow`.
pub(crate) fn first_value(body: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    const CUT: Malformed = Malformed("a row without a first column");
    let (_, rest) = body.split_first_chunk::<2>().ok_or(CUT)?;
    value(rest).map(|(value, _)| value).ok_or(CUT)
}

impl Row {
    /// Takes the body of a `DataRow`, after a look at every length in it.
    pub(crate) fn new(body: Bytes) -> Result<Self, Malformed> {
        const CUT: Malformed = Malformed("a row that ends too early");
        let (count, mut rest) = body.split_first_chunk().ok_or(CUT)?;
        for _ in 0..u16::from_be_bytes(*count) {
            (_, rest) = value(rest).ok_or(CUT)?;
        }
        if !rest.is_empty() {
            return Err(Malformed("a row with more than its columns"));
        }
        Ok(Self { body })
    }

    /// How many columns it has.
    pub fn len(&self) -> usize {
        self.body.first_chunk().map_or(0, |count| u16::from_be_bytes(*count).into())
    }

    /// Whether it has no columns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a column, counted from 0, in PostgreSQL's text form and without a copy; `None` when it is null or there
    /// is no such column.
    pub fn get(&self, column: usize) -> Option<Bytes> {
        self.bytes(column).map(|value| self.body.slice_ref(value))
    }

    /// As [`get`](Self::get), borrowed.
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

    /// As [`get`](Self::get), as text.
    pub fn text(&self, column: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(column)?).ok()
    }
}

/// Takes one value: a length (-1 for null) and so many bytes. Also what follows it.
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
        fn a_row_gives_back_its_values_and_one_byte_less_is_no_row(values: Vec<Option<Vec<u8>>>) {
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
        fn any_bytes_are_a_row_or_not_without_harm(body: Vec<u8>) {
            if let Ok(row) = Row::new(Bytes::from(body)) {
                for column in 0..=row.len() {
                    let _ = row.text(column);
                }
            }
        }
    }

    #[test]
    fn answers_keep_the_rows_of_each_statement_apart() {
        let row = || Row::new(Bytes::from(encoded(&[Some(b"x".to_vec())]))).unwrap();
        let mut answers = Answers::with_capacity(3);
        answers.add_row(row());
        answers.add_row(row());
        answers.complete(b"SELECT 2");
        answers.complete(b"");
        answers.add_row(row());
        answers.complete(b"INSERT 0 1");
        assert_eq!(
            [answers.rows(0).len(), answers.rows(1).len(), answers.rows(2).len(), answers.rows(3).len()],
            [2, 0, 1, 0]
        );
        assert_eq!((answers.tag(2), answers.affected(2), answers.affected(1)), ("INSERT 0 1", Some(1), None));
    }
}
