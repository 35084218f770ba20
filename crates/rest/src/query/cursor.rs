//! A position in a text, and what was expected at the furthest position that was reached.

use std::fmt::Write as _;

use crate::RestError;

/// The limit of nested embeds and of nested logic.
pub(super) const MAX_DEPTH: usize = 64;

/// The limit of items (columns, embeds, conditions, terms) of one parameter. Elements of `in.(…)`
/// are not counted, since they become one value.
pub(super) const MAX_ITEMS: usize = 4096;

/// The limit of alternatives that an error names.
const MAX_LABELS: usize = 6;

/// The text does not match; the [`Cursor`] knows the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mismatch;

/// The result of parsing one production.
pub(super) type Parsed<T> = Result<T, Mismatch>;

/// Reads a text from left to right.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    items: usize,
    /// The furthest position at which something was expected and not found.
    failed_at: usize,
    expected: [&'static str; MAX_LABELS],
    labels: usize,
    /// The end of the text was expected there.
    end_expected: bool,
    /// The limit that was exceeded; it takes precedence over everything else.
    limit: Option<&'static str>,
}

impl<'a> Cursor<'a> {
    /// Parses `text`. A text that does not match is PGRST100 about `what`.
    pub(super) fn read<T>(
        text: &'a str,
        what: std::fmt::Arguments<'_>,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Result<T, RestError> {
        let mut cursor = Self::new(text);
        read(&mut cursor).map_err(|Mismatch| cursor.error(what))
    }

    /// Makes a cursor at the start of `text`.
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            items: 0,
            failed_at: 0,
            expected: [""; MAX_LABELS],
            labels: 0,
            end_expected: false,
            limit: None,
        }
    }

    /// Returns the text that is not read yet.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Returns the next character.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Returns true if `token` comes next.
    pub(super) fn is_next(&self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    /// Returns the position, for [`Cursor::go_back`].
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Returns to an earlier [`Cursor::position`].
    pub(super) fn go_back(&mut self, position: usize) {
        self.at = position;
    }

    /// Skips `length` bytes, which must end at a character boundary.
    pub(super) fn skip(&mut self, length: usize) {
        self.at += length;
    }

    /// Skips `token` if it comes next.
    pub(super) fn take(&mut self, token: &str) -> bool {
        let is_next = self.is_next(token);
        if is_next {
            self.at += token.len();
        }
        is_next
    }

    /// Skips the first of `tokens` that comes next. Returns the value beside it.
    pub(super) fn take_one_of<T: Copy>(&mut self, tokens: &[(&str, T)]) -> Option<T> {
        tokens.iter().find(|(token, _)| self.take(token)).map(|(_, value)| *value)
    }

    /// Takes the characters for which `fits` returns true.
    pub(super) fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !fits(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        count_scanned(taken.len());
        taken
    }

    /// Skips spaces and tabs.
    pub(super) fn spaces(&mut self) {
        self.take_while(|c| c == ' ' || c == '\t');
    }

    /// Skips `token`, which must come next. `label` is its name in errors.
    pub(super) fn expect(&mut self, token: &str, label: &'static str) -> Parsed<()> {
        if self.take(token) { Ok(()) } else { self.fail(label) }
    }

    /// Skips `token`, which must come next, and the spaces around it.
    pub(super) fn expect_between_spaces(&mut self, token: &str, label: &'static str) -> Parsed<()> {
        self.spaces();
        self.expect(token, label)?;
        self.spaces();
        Ok(())
    }

    /// Requires the end of the text.
    pub(super) fn expect_end(&mut self) -> Parsed<()> {
        if self.rest().is_empty() {
            return Ok(());
        }
        self.note("end of input");
        self.end_expected |= self.failed_at == self.at;
        Err(Mismatch)
    }

    /// Fails because `label` was expected here.
    pub(super) fn fail<T>(&mut self, label: &'static str) -> Parsed<T> {
        self.note(label);
        Err(Mismatch)
    }

    /// Notes that `label` is also possible here.
    pub(super) fn note(&mut self, label: &'static str) {
        if self.at > self.failed_at {
            self.failed_at = self.at;
            self.labels = 0;
            self.end_expected = false;
        }
        let known = self.expected[..self.labels].contains(&label);
        if self.at == self.failed_at && !known && self.labels < MAX_LABELS {
            self.expected[self.labels] = label;
            self.labels += 1;
        }
    }

    /// Counts an item of a list.
    pub(super) fn count(&mut self) -> Parsed<()> {
        self.items += 1;
        if self.items > MAX_ITEMS { self.exceed("too many items") } else { Ok(()) }
    }

    /// Parses items with commas between them and spaces around each. The text after the last one is
    /// left unread.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        loop {
            self.count()?;
            self.spaces();
            items.push(item(self)?);
            self.spaces();
            if !self.take(",") {
                self.note("\",\"");
                return Ok(items);
            }
        }
    }

    /// Parses a production one level deeper.
    pub(super) fn nest<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return self.exceed("nested too deeply");
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Returns true if parsing has failed where it began.
    pub(super) fn failed_at_or_before(&self, position: usize) -> bool {
        self.failed_at <= position && !self.exceeded_limit()
    }

    /// Returns true if a limit was exceeded. Then no alternative can match.
    pub(super) fn exceeded_limit(&self) -> bool {
        self.limit.is_some()
    }

    fn exceed<T>(&mut self, limit: &'static str) -> Parsed<T> {
        self.limit = Some(limit);
        self.failed_at = self.at;
        Err(Mismatch)
    }

    fn error(&self, what: std::fmt::Arguments<'_>) -> RestError {
        let (line, column) = line_and_column(&self.text[..self.failed_at]);
        let expecting = expecting(&self.expected[..self.labels]);
        let details = match (self.limit, self.text[self.failed_at..].chars().next()) {
            (Some(limit), _) => limit.to_owned(),
            (None, None) => format!("unexpected end of input{expecting}"),
            (None, Some(found)) if self.end_expected => format!("unexpected '{found}'{expecting}"),
            (None, Some(found)) => format!("unexpected \"{found}\"{expecting}"),
        };
        RestError::Parse { message: format!("\"failed to parse {what}\" (line {line}, column {column})"), details }
    }
}

/// Counts the bytes that are scanned, for tests that parsing takes linear time.
#[cfg(not(test))]
pub(super) fn count_scanned(_bytes: usize) {}
#[cfg(test)]
pub(super) use super::tests::count_scanned;

/// Returns line and column after `text`, both from 1. A tab advances to the next eighth column.
fn line_and_column(text: &str) -> (usize, usize) {
    let (mut line, mut column) = (1, 1);
    for c in text.chars() {
        match c {
            '\n' => (line, column) = (line + 1, 1),
            '\t' => column += 8 - (column - 1) % 8,
            _ => column += 1,
        }
    }
    (line, column)
}

/// Returns ` expecting a, b or c`.
fn expecting(labels: &[&str]) -> String {
    let mut text = String::new();
    for (at, label) in labels.iter().enumerate() {
        let before = match at {
            0 => " expecting ",
            _ if at + 1 == labels.len() => " or ",
            _ => ", ",
        };
        let _ = write!(text, "{before}{label}");
    }
    text
}
