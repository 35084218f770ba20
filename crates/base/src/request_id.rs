//! The id of a request in the log and in responses.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// The id of a request, as it is logged and returned to the client: short, printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Returns a new random id.
    pub fn generate() -> Self {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        Self(Arc::from(&*next_uuid().hyphenated().encode_lower(&mut text)))
    }

    /// Returns the id that came with a request; `None` unless it is 8 to 128 letters, digits, `-`,
    /// `_` or `.`, so that it can be copied into logs and headers.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        ((8..=128).contains(&text.len()) && text.bytes().all(fits)).then(|| Self(text.into()))
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The ids for which a thread gets random bytes at once: a call of the generator takes longer than
/// all other work for an id.
const BATCH: usize = 64;

thread_local! {
    static UUIDS: RefCell<Vec<Uuid>> = const { RefCell::new(Vec::new()) };
}

/// Returns a random UUID that need not be secret before it is used.
fn next_uuid() -> Uuid {
    UUIDS.with_borrow_mut(|spare| {
        if spare.is_empty() {
            let bytes: [u8; 16 * BATCH] = crate::random::bytes();
            let (sixteens, _) = bytes.as_chunks::<16>();
            spare.extend(sixteens.iter().map(|bytes| uuid::Builder::from_random_bytes(*bytes).into_uuid()));
        }
        spare.pop().unwrap_or_else(crate::random::uuid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_came_with_a_request_is_used_only_if_it_is_harmless() {
        assert_eq!(RequestId::parse("abc-123_X.y").unwrap().as_str(), "abc-123_X.y");
        for bad in ["", "short", "has space in it", "line\nbreak-in-it", &"x".repeat(129), "quote\"quote\""] {
            assert!(RequestId::parse(bad).is_none(), "{bad:?}");
        }
        assert_eq!(RequestId::generate().as_str().len(), 36);
        assert_ne!(RequestId::generate(), RequestId::generate());
    }
}
