//! The id that a request is logged and answered under.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// The request's id, as it is logged and answered: short, printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// A new random one.
    pub fn generate() -> Self {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        Self(Arc::from(&*next_uuid().hyphenated().encode_lower(&mut text)))
    }

    /// One that came with the request; `None` unless it is 8 to 128 letters, digits, `-`, `_` or `.`, so that
    /// it can go into logs and headers as it is.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        ((8..=128).contains(&text.len()) && text.bytes().all(fits)).then(|| Self(text.into()))
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Each thread gets random numbers for so many ids at once: a call of the generator takes longer than all the rest of an id.
const STOCK: usize = 64;

thread_local! {
    static UUIDS: RefCell<Vec<Uuid>> = const { RefCell::new(Vec::new()) };
}

/// A random id that need not be secret before it is used.
fn next_uuid() -> Uuid {
    UUIDS.with_borrow_mut(|stock| {
        if stock.is_empty() {
            let bytes: [u8; 16 * STOCK] = crate::random::bytes();
            let (sixteens, _) = bytes.as_chunks::<16>();
            stock.extend(sixteens.iter().map(|bytes| uuid::Builder::from_random_bytes(*bytes).into_uuid()));
        }
        stock.pop().unwrap_or_else(crate::random::uuid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_others_are_taken_only_when_harmless() {
        assert_eq!(RequestId::parse("abc-123_X.y").unwrap().as_str(), "abc-123_X.y");
        for bad in ["", "short", "has space in it", "line\nbreak-in-it", &"x".repeat(129), "quote\"quote\""] {
            assert!(RequestId::parse(bad).is_none(), "{bad:?}");
        }
        assert_eq!(RequestId::generate().as_str().len(), 36);
        assert_ne!(RequestId::generate(), RequestId::generate());
    }
}
