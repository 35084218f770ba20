//! A place in a text, and what would have been right where reading came furthest.

use std::fmt::Write as _;

use crate::RestError;

/// How deep embeds and logic may be nested.
pub(super) const MAX_DEPTH: usize = 64;

/// How many columns, embeds, conditions, terms … one parameter may list. Elements of `in.(…)` are not counted: they become one value.
pub(super) const MAX_ITEMS: usize = 4096;

/// How many alternatives a refusal names.
const MAX_LABELS: usize = 6;

/// The text does not fit here; the [`Cursor`] knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mismatch;

/// What reading one production yields.
pub(super) type Parsed<T> = Result<T, Mismatch>;

/// Reads a text from left to right.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    items: usize,
    /// Where something was expected that is not there: the place furthest to the right.
    failed_at: usize,
    expected: [&'static str; MAX_LABELS],
    labels: usize,
    /// Whether the text's end was expected there.
    end_expected: bool,
    /// A bound that was crossed; nothing else matters then.
    bound: Option<&'static str>,
}

impl<'a> Cursor<'a> {
    /// Reads `text` by `read`. A text that does not fit is a PGRST100 about `what` (contract 4.3).
    pub(super) fn read<T>(
        text: &'a str,
        what: std::fmt::Arguments<'_>,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Result<T, RestError> {
        let mut cursor = Self::new(text);
        read(&mut cursor).map_err(|Mismatch| cursor.refusal(what))
    }

    /// AtLevel the beginning of `text`.
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
            bound: None,
        }
    }

    /// The text that is not read yet.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Whether `token` comes next.
    pub(super) fn sees(&self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    /// Where reading is, to [`Cursor::go_back`] to.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Back to a [`Cursor::place`].
    pub(super) fn go_back(&mut self, place: usize) {
        self.at = place;
    }

    /// Steps over `length` bytes, which must end at a character's end.
    pub(super) fn skip(&mut self, length: usize) {
        self.at += length;
    }

    /// Steps over `token` if it comes next.
    pub(super) fn take(&mut self, token: &str) -> bool {
        let sees = self.sees(token);
        if sees {
            self.at += token.len();
        }
        sees
    }

    /// Takes the characters that fit.
    pub(super) fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !fits(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        looked_at(taken.len());
        taken
    }

    /// Steps over spaces and tabs.
    pub(super) fn spaces(&mut self) {
        self.take_while(|c| c == ' ' || c == '\t');
    }

    /// Steps over `token`, which must come next; `label` is how a refusal calls it.
    pub(super) fn expect(&mut self, token: &str, label: &'static str) -> Parsed<()> {
        if self.take(token) { Ok(()) } else { self.fail(label) }
    }

    /// Steps over `token`, which must come next, and the spaces around it.
    pub(super) fn expect_between_spaces(&mut self, token: &str, label: &'static str) -> Parsed<()> {
        self.spaces();
        self.expect(token, label)?;
        self.spaces();
        Ok(())
    }

    /// Nothing may follow.
    pub(super) fn expect_end(&mut self) -> Parsed<()> {
        if self.rest().is_empty() {
            return Ok(());
        }
        self.note("end of input");
        self.end_expected |= self.failed_at == self.at;
        Err(Mismatch)
    }

    /// Something else was expected here.
    pub(super) fn fail<T>(&mut self, label: &'static str) -> Parsed<T> {
        self.note(label);
        Err(Mismatch)
    }

    /// Something else would have been right here too.
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

    /// Counts one item of a list.
    pub(super) fn count(&mut self) -> Parsed<()> {
        self.items += 1;
        if self.items > MAX_ITEMS { self.cross("too many items") } else { Ok(()) }
    }

    /// Reads items between which there are commas, with spaces around each. What follows the last is left.
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

    /// Reads something that lies one level deeper.
    pub(super) fn nest<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return self.cross("nested too deeply");
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Whether reading failed where it began.
    pub(super) fn came_no_further_than(&self, place: usize) -> bool {
        self.failed_at <= place && !self.crossed()
    }

    /// Whether a bound was crossed: no other way of reading helps then.
    pub(super) fn crossed(&self) -> bool {
        self.bound.is_some()
    }

    fn cross<T>(&mut self, bound: &'static str) -> Parsed<T> {
        self.bound = Some(bound);
        self.failed_at = self.at;
        Err(Mismatch)
    }

    fn refusal(&self, what: std::fmt::Arguments<'_>) -> RestError {
        let (line, column) = position(&self.text[..self.failed_at]);
        let expecting = expecting(&self.expected[..self.labels]);
        let details = match (self.bound, self.text[self.failed_at..].chars().next()) {
            (Some(bound), _) => bound.to_owned(),
            (None, None) => format!("unexpected end of input{expecting}"),
            (None, Some(found)) if self.end_expected => format!("unexpected '{found}'{expecting}"),
            (None, Some(found)) => format!("unexpected \"{found}\"{expecting}"),
        };
        RestError::Parse { message: format!("\"failed to parse {what}\" (line {line}, column {column})"), details }
    }
}

/// Tests count the bytes that were looked at, to see that they grow as the text does.
#[cfg(not(test))]
pub(super) fn looked_at(_bytes: usize) {}
#[cfg(test)]
pub(super) use super::tests::looked_at;

/// Line and column after `text`, both from 1; a tab leads to the next eighth column.
fn position(text: &str) -> (usize, usize) {
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

/// ` expecting a, b or c`
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
