//! Joins the values of many rows as they arrive, so that neither a list of rows nor a second copy
//! of the result is needed.

use bytes::{BufMut, Bytes, BytesMut};

/// The minimum size of the first piece and the maximum size of any piece. A longer value gets a
/// larger piece.
const PIECE_SIZE: std::ops::RangeInclusive<usize> = 512..=256 * 1024;

/// The texts around and between joined values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowSeparators {
    /// Written before the first value.
    pub open: &'static str,
    /// Written between two values.
    pub between: &'static str,
    /// Written after the last value.
    pub close: &'static str,
}

/// The joined first columns of the rows of a statement, in their order.
#[derive(Debug, Default)]
pub struct JoinedRows {
    /// The number of rows.
    pub rows: u64,
    /// The joined values; a null is joined as an empty value.
    pub pieces: Vec<Bytes>,
}

impl JoinedRows {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Returns true if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(Bytes::is_empty)
    }

    /// Returns the joined values as one piece.
    pub fn to_bytes(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [piece] => piece.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

/// Builds [`JoinedRows`].
#[derive(Debug)]
pub(crate) struct RowJoiner {
    separators: RowSeparators,
    done: JoinedRows,
    piece: BytesMut,
}

impl RowJoiner {
    pub fn new(separators: RowSeparators) -> Self {
        Self { separators, done: JoinedRows::default(), piece: BytesMut::new() }
    }

    /// Appends a row's value.
    pub fn add(&mut self, value: Option<&[u8]>) {
        let RowSeparators { open, between, .. } = self.separators;
        let before = if self.done.rows == 0 { open } else { between };
        self.done.rows += 1;
        self.put(before, value.unwrap_or_default());
    }

    fn put(&mut self, before: &str, value: &[u8]) {
        let length = before.len() + value.len();
        // The closing text usually fits too
        if self.piece.capacity() - self.piece.len() < length + self.separators.close.len() {
            // Each piece is larger than the one before, and a full piece is never copied
            let size = (2 * self.piece.capacity()).clamp(*PIECE_SIZE.start(), *PIECE_SIZE.end()).max(length + 8);
            let full = std::mem::replace(&mut self.piece, BytesMut::with_capacity(size));
            if !full.is_empty() {
                self.done.pieces.push(full.freeze());
            }
        }
        self.piece.put_slice(before.as_bytes());
        self.piece.put_slice(value);
    }

    /// Closes the list.
    pub fn finish(mut self) -> JoinedRows {
        let RowSeparators { open, close, .. } = self.separators;
        let before = if self.done.rows == 0 { open } else { "" };
        self.put(before, close.as_bytes());
        if !self.piece.is_empty() {
            self.done.pieces.push(self.piece.freeze());
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: RowSeparators = RowSeparators { open: "[", between: ", \n ", close: "]" };

    proptest! {
        #[test]
        fn values_are_joined_with_their_separators(values in prop::collection::vec("[a-z]{0,600}", 0..40)) {
            let mut joiner = RowJoiner::new(LIST);
            for value in &values {
                joiner.add(Some(value.as_bytes()));
            }
            let joined_rows = joiner.finish();
            prop_assert_eq!(joined_rows.rows, values.len() as u64);
            let joined = format!("[{}]", values.join(", \n "));
            prop_assert_eq!(joined_rows.len(), joined.len());
            prop_assert_eq!(joined_rows.pieces.concat(), joined.as_bytes());
        }
    }

    #[test]
    fn pieces_are_few_and_of_bounded_size() {
        let mut joiner = RowJoiner::new(LIST);
        let value = [b'x'; 1000];
        for _ in 0..10_000 {
            joiner.add(Some(&value));
        }
        let joined_rows = joiner.finish();
        assert!(joined_rows.pieces.len() < 60, "{}", joined_rows.pieces.len());
        assert!(joined_rows.pieces.iter().all(|piece| piece.len() <= *PIECE_SIZE.end()));
        assert!(RowJoiner::new(RowSeparators::default()).finish().is_empty());
    }
}
