//! The prepared statements of a connection.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::statement_texts::{DigestHasher, StatementTexts};

/// The statements that a connection has parsed. The least recently used ones are evicted.
#[derive(Debug)]
pub(crate) struct PreparedStatements {
    prepared: HashMap<u64, PreparedStatement, BuildHasherDefault<DigestHasher>>,
    max: usize,
    texts: Arc<StatementTexts>,
    /// The number of the current batch.
    batch: u64,
    /// Names start at a random number and are never reused, so that no statement that SQL prepares
    /// has one of them.
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
    /// Returns true if the statement has to be parsed.
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
    pub fn step(&mut self, text: &str, scope: &str) -> ParseStep {
        let key = self.key(text, scope);
        if let Some(known) = self.prepared.get_mut(&key) {
            if *known.text == *text && *known.scope == *scope {
                known.last_used = self.batch;
                return ParseStep::Prepared { key, name: known.name };
            }
            // Two texts with the same digest are practically impossible, but must not run the wrong
            // statement
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

    /// Returns how to send a statement as the unnamed statement. `kept`: its text, if it is kept
    /// until another one replaces it. It counts as prepared from now on.
    pub fn unnamed_step(&mut self, kept: Option<&'static str>) -> ParseStep {
        if kept.is_some() && self.unnamed == kept {
            return ParseStep::PreparedUnnamed;
        }
        self.unnamed = kept;
        ParseStep::Unnamed
    }

    /// Returns true if this text is the unnamed statement.
    pub fn is_unnamed(&self, text: &str) -> bool {
        self.unnamed == Some(text)
    }

    /// Removes the unnamed statement.
    pub fn remove_unnamed(&mut self) {
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

    /// Evicts the least recently used statement that the current batch does not use. `false`:
    /// there is none.
    fn evict(&mut self) -> bool {
        let oldest = self
            .prepared
            .iter()
            .filter(|(_, known)| known.last_used != self.batch)
            .min_by_key(|(_, known)| known.last_used);
        match oldest.map(|(key, _)| *key) {
            Some(key) => {
                self.remove(key);
                true
            }
            None => false,
        }
    }

    /// Removes a statement. The server closes it with the next batch.
    pub fn remove(&mut self, key: u64) {
        if let Some(known) = self.prepared.remove(&key) {
            self.obsolete_names.push(known.name);
        }
    }

    /// Removes a statement that the server has not parsed.
    pub fn remove_unparsed(&mut self, key: u64) {
        self.prepared.remove(&key);
    }

    /// Removes every statement. Called after the server has discarded them.
    pub fn remove_all(&mut self) {
        self.prepared.clear();
        self.obsolete_names.clear();
        self.unnamed = None;
    }

    /// Takes the names of the statements to close.
    pub fn obsolete_names(&mut self) -> std::vec::Drain<'_, u64> {
        self.obsolete_names.drain(..)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(step: ParseStep) -> u64 {
        match step {
            ParseStep::Prepared { name, .. } | ParseStep::Parse { name, .. } => name,
            ParseStep::Unnamed | ParseStep::PreparedUnnamed => 0,
        }
    }

    #[test]
    fn a_statement_is_parsed_once_per_scope() {
        let mut statements = PreparedStatements::new(8, Arc::new(StatementTexts::new(1)), 0);
        statements.begin_batch();
        let first = statements.step("select 1", "anon");
        assert!(matches!(first, ParseStep::Parse { .. }));
        let again = statements.step("select 1", "anon");
        assert!(matches!(again, ParseStep::Prepared { .. }));
        assert_eq!(name(first), name(again));
        assert!(matches!(statements.step("select 1", "other"), ParseStep::Parse { .. }));
        assert!(
            matches!(statements.step("select 1a", "non"), ParseStep::Parse { .. }),
            "text and scope do not run together"
        );
    }

    #[test]
    fn the_least_recently_used_statement_is_evicted_but_none_of_the_current_batch() {
        let mut statements = PreparedStatements::new(2, Arc::new(StatementTexts::new(1)), 0);
        statements.begin_batch();
        let (a, b) = (statements.step("a", ""), statements.step("b", ""));
        assert_eq!(statements.step("c", ""), ParseStep::Unnamed, "both are in this very batch");
        statements.begin_batch();
        statements.step("a", "");
        assert!(matches!(statements.step("c", ""), ParseStep::Parse { .. }));
        assert_eq!(statements.obsolete_names().collect::<Vec<_>>(), [name(b)]);
        statements.begin_batch();
        assert_eq!(
            statements.step("a", ""),
            ParseStep::Prepared { key: StatementTexts::new(1).key("a", ""), name: name(a) }
        );
        statements.remove_all();
        assert_eq!(statements.obsolete_names().count(), 0);
        assert!(matches!(statements.step("a", ""), ParseStep::Parse { .. }));
    }

    #[test]
    fn connections_share_their_texts_and_unused_texts_are_removed() {
        let texts = Arc::new(StatementTexts::new(1));
        let mut connections =
            [PreparedStatements::new(4, texts.clone(), 0), PreparedStatements::new(4, texts.clone(), 0)];
        for number in 0..1000 {
            for statements in &mut connections {
                statements.begin_batch();
                statements.step(&format!("select {number}"), "anon");
            }
        }
        assert!(texts.len() <= 100);
        let [first, second] = connections.map(|statements| statements.prepared.into_values().map(|known| known.text));
        let second: Vec<_> = second.collect();
        assert!(first.into_iter().all(|text| second.iter().any(|other| Arc::ptr_eq(&text, other))));
    }
}
