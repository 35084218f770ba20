//! Which statements the server keeps for a connection.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// The statements that a connection has parsed, the least recently used of which make way.
#[derive(Debug)]
pub(crate) struct PreparedStatements {
    known: HashMap<u64, Known, BuildHasherDefault<DigestHasher>>,
    most: usize,
    texts: Arc<StatementTexts>,
    /// Counts batches.
    batch: u64,
    /// Names begin at a random number and are never used again, so that no statement that SQL prepares has one.
    next_name: u64,
    /// Statements that the server still keeps and that we forgot: closed with the next batch.
    obsolete_names: Vec<u64>,
    /// The text of the unnamed statement, where it is to be kept.
    unnamed: Option<&'static str>,
}

#[derive(Debug)]
struct Known {
    text: Arc<str>,
    scope: Arc<str>,
    name: u64,
    used: u64,
}

/// How a statement of a batch is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatementPlan {
    /// Parsed on this connection before: by the batch of this number.
    Known { key: u64, name: u64 },
    /// To be parsed under this name.
    Parse { key: u64, name: u64 },
    /// To be parsed without a name.
    Unnamed,
    /// Parsed without a name, and not replaced since.
    KnownUnnamed,
}

impl StatementPlan {
    /// Returns whether the statement has to be parsed.
    pub fn parses(self) -> bool {
        matches!(self, Self::Parse { .. } | Self::Unnamed)
    }
}

impl PreparedStatements {
    /// Keeps `most` statements.
    pub fn new(most: usize, texts: Arc<StatementTexts>, first_name: u64) -> Self {
        Self {
            known: HashMap::default(),
            most,
            texts,
            batch: 0,
            next_name: first_name,
            obsolete_names: Vec::new(),
            unnamed: None,
        }
    }

    /// A new batch begins: what is planned from here on is not made way for until the next one.
    pub fn begin(&mut self) {
        self.batch += 1;
    }

    /// How to send a statement. One that is new counts as known from here on.
    pub fn plan(&mut self, text: &str, scope: &str) -> StatementPlan {
        let key = self.key(text, scope);
        if let Some(known) = self.known.get_mut(&key) {
            if *known.text == *text && *known.scope == *scope {
                known.used = self.batch;
                return StatementPlan::Known { key, name: known.name };
            }
            // Two texts with one digest: it happens to nobody, but it must not run the wrong statement.
            return StatementPlan::Unnamed;
        }
        if self.known.len() >= self.most && !self.evict() {
            return StatementPlan::Unnamed;
        }
        self.next_name = self.next_name.wrapping_add(1);
        let name = self.next_name;
        let (text, scope) = (self.texts.share(text), self.texts.share(scope));
        self.known.insert(key, Known { text, scope, name, used: self.batch });
        StatementPlan::Parse { key, name }
    }

    /// Returns how to send a statement without a name. `keeps`: its text, where it is to be kept until another one takes
    /// its place. It counts as known from here on.
    pub fn plan_unnamed(&mut self, keeps: Option<&'static str>) -> StatementPlan {
        if keeps.is_some() && self.unnamed == keeps {
            return StatementPlan::KnownUnnamed;
        }
        self.unnamed = keeps;
        StatementPlan::Unnamed
    }

    /// Returns whether this text is the unnamed statement.
    pub fn is_unnamed(&self, text: &str) -> bool {
        self.unnamed == Some(text)
    }

    /// Forgets the unnamed statement.
    pub fn forget_unnamed(&mut self) {
        self.unnamed = None;
    }

    /// What a text in a scope is found by.
    pub fn key(&self, text: &str, scope: &str) -> u64 {
        self.texts.key(text, scope)
    }

    /// The name of a statement that needs no parsing.
    pub fn name(&mut self, key: u64, text: &str, scope: &str) -> Option<u64> {
        let known = self.known.get_mut(&key).filter(|known| *known.text == *text && *known.scope == *scope)?;
        known.used = self.batch;
        Some(known.name)
    }

    /// Forgets the least recently used statement, but none of this batch.
    fn evict(&mut self) -> bool {
        let oldest =
            self.known.iter().filter(|(_, known)| known.used != self.batch).min_by_key(|(_, known)| known.used);
        match oldest.map(|(key, _)| *key) {
            Some(key) => {
                self.forget(key);
                true
            }
            None => false,
        }
    }

    /// Forgets a statement, and has the server forget it with the next batch.
    pub fn forget(&mut self, key: u64) {
        if let Some(known) = self.known.remove(&key) {
            self.obsolete_names.push(known.name);
        }
    }

    /// Forgets a statement that the server did not get to parse.
    pub fn forget_unparsed(&mut self, key: u64) {
        self.known.remove(&key);
    }

    /// Forgets every statement: the server has discarded them.
    pub fn forget_all(&mut self) {
        self.known.clear();
        self.obsolete_names.clear();
        self.unnamed = None;
    }

    /// The statements to close in front of the batch.
    pub fn obsolete_names(&mut self) -> std::vec::Drain<'_, u64> {
        self.obsolete_names.drain(..)
    }
}

/// The texts of a pool's statements: its connections mostly know the same ones, and share them.
#[derive(Debug)]
pub(crate) struct StatementTexts {
    /// Makes the digests differ between processes, so that nobody can prepare texts that collide.
    seed: u64,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    texts: HashSet<Arc<str>>,
    /// How many there may be before those that nobody knows any more are looked for.
    tolerated: usize,
}

impl StatementTexts {
    /// No texts yet.
    pub fn new(seed: u64) -> Self {
        Self { seed, shared: Mutex::default() }
    }

    /// What a text in a scope is found by, on every connection.
    pub fn key(&self, text: &str, scope: &str) -> u64 {
        digest(self.seed, text, scope)
    }

    /// The one copy of a text. Asked for only when a statement is to be parsed.
    fn share(&self, text: &str) -> Arc<str> {
        // Changed by single inserts and removals: whole even after a panic.
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shared.texts.get(text) {
            return found.clone();
        }
        if shared.texts.len() >= shared.tolerated {
            shared.texts.retain(|text| Arc::strong_count(text) > 1);
            shared.tolerated = 64 + 2 * shared.texts.len();
        }
        let text = Arc::<str>::from(text);
        shared.texts.insert(text.clone());
        text
    }
}

/// The keys are digests already.
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

/// A statement's text has a thousand bytes and more, on every request: eight of them at a time.
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

/// Multiplies, and mixes the halves of the product.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(plan: StatementPlan) -> u64 {
        match plan {
            StatementPlan::Known { name, .. } | StatementPlan::Parse { name, .. } => name,
            StatementPlan::Unnamed | StatementPlan::KnownUnnamed => 0,
        }
    }

    #[test]
    fn a_statement_is_parsed_once_for_each_scope() {
        let mut statements = PreparedStatements::new(8, Arc::new(StatementTexts::new(1)), 0);
        statements.begin();
        let first = statements.plan("select 1", "anon");
        assert!(matches!(first, StatementPlan::Parse { .. }));
        let again = statements.plan("select 1", "anon");
        assert!(matches!(again, StatementPlan::Known { .. }));
        assert_eq!(name(first), name(again));
        assert!(matches!(statements.plan("select 1", "other"), StatementPlan::Parse { .. }));
        assert!(
            matches!(statements.plan("select 1a", "non"), StatementPlan::Parse { .. }),
            "text and scope do not run together"
        );
    }

    #[test]
    fn the_least_recently_used_makes_way_but_none_of_the_batch_under_way() {
        let mut statements = PreparedStatements::new(2, Arc::new(StatementTexts::new(1)), 0);
        statements.begin();
        let (a, b) = (statements.plan("a", ""), statements.plan("b", ""));
        assert_eq!(statements.plan("c", ""), StatementPlan::Unnamed, "both are in this very batch");
        statements.begin();
        statements.plan("a", "");
        assert!(matches!(statements.plan("c", ""), StatementPlan::Parse { .. }));
        assert_eq!(statements.obsolete_names().collect::<Vec<_>>(), [name(b)]);
        statements.begin();
        assert_eq!(statements.plan("a", ""), StatementPlan::Known { key: digest(1, "a", ""), name: name(a) });
        statements.forget_all();
        assert_eq!(statements.obsolete_names().count(), 0);
        assert!(matches!(statements.plan("a", ""), StatementPlan::Parse { .. }));
    }

    #[test]
    fn connections_share_their_texts_and_what_nobody_knows_is_dropped() {
        let texts = Arc::new(StatementTexts::new(1));
        let mut connections =
            [PreparedStatements::new(4, texts.clone(), 0), PreparedStatements::new(4, texts.clone(), 0)];
        for number in 0..1000 {
            for statements in &mut connections {
                statements.begin();
                statements.plan(&format!("select {number}"), "anon");
            }
        }
        assert!(texts.shared.lock().unwrap().texts.len() <= 100);
        let [first, second] = connections.map(|statements| statements.known.into_values().map(|known| known.text));
        let second: Vec<_> = second.collect();
        assert!(first.into_iter().all(|text| second.iter().any(|other| Arc::ptr_eq(&text, other))));
    }

    #[test]
    fn digests_tell_texts_apart() {
        let texts: Vec<String> = (0..10_000).map(|number| format!("select * from items where id = {number}")).collect();
        let digests: HashSet<u64> = texts.iter().map(|text| digest(7, text, "anon")).collect();
        assert_eq!(digests.len(), texts.len());
    }
}
