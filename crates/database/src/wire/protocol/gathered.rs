//! Values of many rows, joined while they come in: neither a list of rows nor a second copy of everything is needed.

use bytes::{BufMut, Bytes, BytesMut};

/// How large the first piece is at least, and any at most (but for a value that is longer).
const PIECES: std::ops::RangeInclusive<usize> = 512..=256 * 1024;

/// What stands around and between the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Joining {
    /// In front of all.
    pub open: &'static str,
    /// Between two.
    pub between: &'static str,
    /// Behind all.
    pub close: &'static str,
}

/// The first columns of a statement's rows, in their order.
#[derive(Debug, Default)]
pub struct Gathered {
    /// How many rows there were.
    pub rows: u64,
    /// The joined values; a null is left out.
    pub pieces: Vec<Bytes>,
}

impl Gathered {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(Bytes::is_empty)
    }
}

/// Values under way.
#[derive(Debug)]
pub(crate) struct Gathering {
    joining: Joining,
    done: Gathered,
    piece: BytesMut,
}

impl Gathering {
    pub fn new(joining: Joining) -> Self {
        Self { joining, done: Gathered::default(), piece: BytesMut::new() }
    }

    /// Appends a row's value.
    pub fn add(&mut self, value: Option<&[u8]>) {
        let Joining { open, between, .. } = self.joining;
        let before = if self.done.rows == 0 { open } else { between };
        self.done.rows += 1;
        self.put(before, value.unwrap_or_default());
    }

    fn put(&mut self, before: &str, value: &[u8]) {
        let length = before.len() + value.len();
        // What closes it fits too, mostly
        if self.piece.capacity() - self.piece.len() < length + self.joining.close.len() {
            // Pieces grow with what is there, and what is full is never copied
            let size = (2 * self.piece.capacity()).clamp(*PIECES.start(), *PIECES.end()).max(length + 8);
            let full = std::mem::replace(&mut self.piece, BytesMut::with_capacity(size));
            if !full.is_empty() {
                self.done.pieces.push(full.freeze());
            }
        }
        self.piece.put_slice(before.as_bytes());
        self.piece.put_slice(value);
    }

    /// No more rows come.
    pub fn finish(mut self) -> Gathered {
        let Joining { open, close, .. } = self.joining;
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

    const LIST: Joining = Joining { open: "[", between: ", \n ", close: "]" };

    proptest! {
        #[test]
        fn joined_values_are_what_joining_them_gives(values in prop::collection::vec("[a-z]{0,600}", 0..40)) {
            let mut gathering = Gathering::new(LIST);
            for value in &values {
                gathering.add(Some(value.as_bytes()));
            }
            let gathered = gathering.finish();
            prop_assert_eq!(gathered.rows, values.len() as u64);
            let joined = format!("[{}]", values.join(", \n "));
            prop_assert_eq!(gathered.len(), joined.len());
            prop_assert_eq!(gathered.pieces.concat(), joined.as_bytes());
        }
    }

    #[test]
    fn pieces_are_few_and_no_larger_than_need_be() {
        let mut gathering = Gathering::new(LIST);
        let value = [b'x'; 1000];
        for _ in 0..10_000 {
            gathering.add(Some(&value));
        }
        let gathered = gathering.finish();
        assert!(gathered.pieces.len() < 60, "{}", gathered.pieces.len());
        assert!(gathered.pieces.iter().all(|piece| piece.len() <= *PIECES.end()));
        assert!(Gathering::new(Joining::default()).finish().is_empty());
    }
}
