//! The texts of prepared statements, which the connections of a pool share, and their keys.

use std::collections::HashSet;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, PoisonError};

/// The texts of prepared statements. The connections of a pool mostly prepare the same ones, and
/// share them.
#[derive(Debug)]
pub(crate) struct StatementTexts {
    /// Random, so that an attacker cannot compute texts with the same digest.
    seed: u64,
    shared: Mutex<SharedTexts>,
}

#[derive(Debug, Default)]
struct SharedTexts {
    texts: HashSet<Arc<str>>,
    /// The number of texts from which unused ones are removed.
    sweep_at: usize,
}

impl StatementTexts {
    /// Returns an empty set.
    pub fn new(seed: u64) -> Self {
        Self { seed, shared: Mutex::default() }
    }

    /// Returns the key of a text in a scope, which is the same on every connection.
    pub fn key(&self, text: &str, scope: &str) -> u64 {
        digest(self.seed, text, scope)
    }

    /// Returns the number of shared texts.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).texts.len()
    }

    /// Returns the shared copy of a text. Called only for a statement that has to be parsed.
    pub fn share(&self, text: &str) -> Arc<str> {
        // Consistent after a panic: it changes by single inserts and removals
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shared.texts.get(text) {
            return found.clone();
        }
        if shared.texts.len() >= shared.sweep_at {
            shared.texts.retain(|text| Arc::strong_count(text) > 1);
            shared.sweep_at = 64 + 2 * shared.texts.len();
        }
        let text = Arc::<str>::from(text);
        shared.texts.insert(text.clone());
        text
    }
}

/// A hasher for keys that are digests already.
#[derive(Debug, Default)]
pub(crate) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// Returns the digest of a text in a scope. Each request digests texts of a thousand bytes and
/// more, so it processes eight bytes at a time.
fn digest(seed: u64, text: &str, scope: &str) -> u64 {
    let mut state = fold(seed ^ text.len() as u64, 0x9e37_79b9_7f4a_7c15);
    for part in [text.as_bytes(), scope.as_bytes()] {
        let (words, rest) = part.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), 0xd6e8_feb8_6659_fd93);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        state = fold(state ^ u64::from_le_bytes(last), 0xa076_1d64_78bd_642f);
    }
    state
}

/// Multiplies, and combines the halves of the product.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_different_texts_differ() {
        let texts: Vec<String> = (0..10_000).map(|number| format!("select * from items where id = {number}")).collect();
        let digests: HashSet<u64> = texts.iter().map(|text| digest(7, text, "anon")).collect();
        assert_eq!(digests.len(), texts.len());
    }
}
