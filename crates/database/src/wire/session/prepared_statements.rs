//! The prepared statements of a connection, and the texts that the connections of a pool share.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// The statements that a connection has parsed. The least recently used ones are evicted.
#[derive(Debug)]
pub(crate) struct PreparedStatements {
    prepared: HashMap<u64, PreparedStatement, BuildHasherDefault<DigestHasher>>,
    max: usize,
    texts: Arc<StatementTexts>,
    /// The number of the current batch.
    batch: u64,
    /// Names start at a random number and are never reused, so that no statement that SQL prepares has one of
    /// them.
    next_name: u64,
    /// Forgotten statements that the server still keeps. They are closed with the next batch.
    obsolete_names: Vec<u64>,
    /// The text of the unnamed statement, if it is kept.
    unnamed: Option<&'static str>,
}

#[derive(Debug)]
struct PreparedStatement {
    text: Arc<str>,
    scope: Arc<str>,
    name: u64,
    /// The last batch that used it.
    last_used: u64,
}

/// The way in which a statement of a batch is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParseStep {
    /// It is prepared under this name.
    Prepared { key: u64, name: u64 },
    /// It is parsed under this name.
    Parse { key: u64, name: u64 },
    /// It is parsed as the unnamed statement.
    Unnamed,
    /// It is prepared as the unnamed statement.
    PreparedUnnamed,
}

impl ParseStep {
    /// Returns whether the statement has to be parsed.
    pub fn parses(self) -> bool {
        matches!(self, Self::Parse { .. } | Self::Unnamed)
    }
}

impl PreparedStatements {
    /// Returns an empty set for up to `max` statements.
    pub fn new(max: usize, texts: Arc<StatementTexts>, first_name: u64) -> Self {
        Self {
            prepared: HashMap::default(),
            max,
            texts,
            batch: 0,
            next_name: first_name,
            obsolete_names: Vec::new(),
            unnamed: None,
        }
    }

    /// Begins a batch. Statements that it uses are not evicted before the next one.
    pub fn begin_batch(&mut self) {
        self.batch += 1;
    }

    /// Returns how to send a statement. A new one counts as prepared from now on.
    pub fn plan(&mut self, text: &str, scope: &str) -> ParseStep {
        let key = self.key(text, scope);
        if let Some(known) = self.prepared.get_mut(&key) {
            if *known.text == *text && *known.scope == *scope {
                known.last_used = self.batch;
                return ParseStep::Prepared { key, name: known.name };
            }
            // Two texts with the same digest are practically impossible, but must not run the wrong statement
            return ParseStep::Unnamed;
        }
        if self.prepared.len() >= self.max && !self.evict() {
            return ParseStep::Unnamed;
        }
        self.next_name = self.next_name.wrapping_add(1);
        let name = self.next_name;
        let (text, scope) = (self.texts.share(text), self.texts.share(scope));
        self.prepared.insert(key, PreparedStatement { text, scope, name, last_used: self.batch });
        ParseStep::Parse { key, name }
    }

    /// Returns how to send a statement as the unnamed statement. `kept`: its text, if it is kept until another one
    /// replaces it. It counts as prepared from now on.
    pub fn plan_unnamed(&mut self, kept: Option<&'static str>) -> ParseStep {
        if kept.is_some() && self.unnamed == kept {
            return ParseStep::PreparedUnnamed;
        }
        self.unnamed = kept;
        ParseStep::Unnamed
    }

    /// Returns whether this text is the unnamed statement.
    pub fn is_unnamed(&self, text: &str) -> bool {
        self.unnamed == Some(text)
    }

    /// Forgets the unnamed statement.
    pub fn forget_unnamed(&mut self) {
        self.unnamed = None;
    }

    /// Returns the key of a text in a scope.
    pub fn key(&self, text: &str, scope: &str) -> u64 {
        self.texts.key(text, scope)
    }

    /// Returns the name of a prepared statement.
    pub fn name(&mut self, key: u64, text: &str, scope: &str) -> Option<u64> {
        let known = self.prepared.get_mut(&key).filter(|known| *known.text == *text && *known.scope == *scope)?;
        known.last_used = self.batch;
        Some(known.name)
    }

    /// Forgets the least recently used statement that the current batch does not use. `false`: there is none.
    fn evict(&mut self) -> bool {
        let oldest = self
            .prepared
            .iter()
            .filter(|(_, known)| known.last_used != self.batch)
            .min_by_key(|(_, known)| known.last_used);
        match oldest.map(|(key, _)| *key) {
            Some(key) => {
                self.forget(key);
                true
            }
            None => false,
        }
    }

    /// Forgets a statement. The server closes it with the next batch.
    pub fn forget(&mut self, key: u64) {
        if let Some(known) = self.prepared.remove(&key) {
            self.obsolete_names.push(known.name);
        }
    }

    /// Forgets a statement that the server has not parsed.
    pub fn forget_unparsed(&mut self, key: u64) {
        self.prepared.remove(&key);
    }

    /// Forgets every statement. Called after the server has discarded them.
    pub fn forget_all(&mut self) {
        self.prepared.clear();
        self.obsolete_names.clear();
        self.unnamed = None;
    }

    /// Takes the names of the statements to close.
    pub fn obsolete_names(&mut self) -> std::vec::Drain<'_, u64> {
        self.obsolete_names.drain(..)
    }
}

/// The texts of prepared statements. The connections of a pool mostly prepare the same ones, and share them.
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

    /// Returns the shared copy of a text. Called only for a statement that has to be parsed.
    fn share(&self, text: &str) -> Arc<str> {
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
struct DigestHasher(u64);

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

/// Returns the digest of a text in a scope. Each request digests texts of a thousand bytes and more, so it
/// processes eight bytes at a time.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(plan: ParseStep) -> u64 {
        match plan {
            ParseStep::Prepared { name, .. } | ParseStep::Parse { name, .. } => name,
            ParseStep::Unnamed | ParseStep::PreparedUnnamed => 0,
        }
    }

    #[test]
    fn a_statement_is_parsed_once_per_scope() {
        let mut statements = PreparedStatements::new(8, Arc::new(StatementTexts::new(1)), 0);
        statements.begin_batch();
        let first = statements.plan("select 1", "anon");
        assert!(matches!(first, ParseStep::Parse { .. }));
        let again = statements.plan("select 1", "anon");
        assert!(matches!(again, ParseStep::Prepared { .. }));
        assert_eq!(name(first), name(again));
        assert!(matches!(statements.plan("select 1", "other"), ParseStep::Parse { .. }));
        assert!(
            matches!(statements.plan("select 1a", "non"), ParseStep::Parse { .. }),
            "text and scope do not run together"
        );
    }

    #[test]
    fn the_least_recently_used_statement_is_evicted_but_none_of_the_current_batch() {
        let mut statements = PreparedStatements::new(2, Arc::new(StatementTexts::new(1)), 0);
        statements.begin_batch();
        let (a, b) = (statements.plan("a", ""), statements.plan("b", ""));
        assert_eq!(statements.plan("c", ""), ParseStep::Unnamed, "both are in this very batch");
        statements.begin_batch();
        statements.plan("a", "");
        assert!(matches!(statements.plan("c", ""), ParseStep::Parse { .. }));
        assert_eq!(statements.obsolete_names().collect::<Vec<_>>(), [name(b)]);
        statements.begin_batch();
        assert_eq!(statements.plan("a", ""), ParseStep::Prepared { key: digest(1, "a", ""), name: name(a) });
        statements.forget_all();
        assert_eq!(statements.obsolete_names().count(), 0);
        assert!(matches!(statements.plan("a", ""), ParseStep::Parse { .. }));
    }

    #[test]
    fn connections_share_their_texts_and_unused_texts_are_removed() {
        let texts = Arc::new(StatementTexts::new(1));
        let mut connections =
            [PreparedStatements::new(4, texts.clone(), 0), PreparedStatements::new(4, texts.clone(), 0)];
        for number in 0..1000 {
            for statements in &mut connections {
                statements.begin_batch();
                statements.plan(&format!("select {number}"), "anon");
            }
        }
        assert!(texts.shared.lock().unwrap().texts.len() <= 100);
        let [first, second] = connections.map(|statements| statements.prepared.into_values().map(|known| known.text));
        let second: Vec<_> = second.collect();
        assert!(first.into_iter().all(|text| second.iter().any(|other| Arc::ptr_eq(&text, other))));
    }

    #[test]
    fn digests_of_different_texts_differ() {
        let texts: Vec<String> = (0..10_000).map(|number| format!("select * from items where id = {number}")).collect();
        let digests: HashSet<u64> = texts.iter().map(|text| digest(7, text, "anon")).collect();
        assert_eq!(digests.len(), texts.len());
    }
}
