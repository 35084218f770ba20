//! The error of a failed statement, with its position in the file.

use std::fmt;
use std::path::PathBuf;

use tokio_postgres::error::ErrorPosition;

use super::script::SqlScript;
use crate::document::LineIndex;
use crate::sql::SqlStatement;

/// A statement of a file failed. `Display` is the text for a terminal.
#[derive(Debug, Clone)]
pub struct StatementError {
    /// The file, from the project root.
    pub file: PathBuf,
    /// The line of the file that PostgreSQL points at, else the first line of the statement.
    pub line: usize,
    /// The index of the statement in the file, from zero.
    pub index: usize,
    /// `ERROR`, `FATAL` or `PANIC`.
    pub severity: String,
    /// SQLSTATE; empty when the error is not PostgreSQL's.
    pub code: String,
    /// PostgreSQL's message.
    pub message: String,
    /// PostgreSQL's detail.
    pub detail: Option<String>,
    /// PostgreSQL's hint, or Portico's.
    pub hint: Option<String>,
    /// The context inside functions, in PostgreSQL's words.
    pub context: Option<String>,
    /// The statement up to the failing line, with a caret below the position, shortened if it is
    /// long.
    pub excerpt: String,
}

/// The number of lines of a statement that are shown.
const SHOWN_LINES: usize = 16;
/// The number of characters of a line that are shown.
const SHOWN_COLUMNS: usize = 160;

impl StatementError {
    pub(super) fn from_postgres(
        script: &SqlScript<'_>,
        index: usize,
        statement: &SqlStatement<'_>,
        error: &tokio_postgres::Error,
    ) -> Box<Self> {
        let database = error.as_db_error();
        let position = database.and_then(|error| match error.position() {
            Some(ErrorPosition::Original(position)) => byte_of_character(statement.text, *position),
            _ => None,
        });
        let mut failure = Self::at(script, index, statement, position);
        match database {
            Some(error) => {
                failure.severity = error.severity().to_owned();
                failure.code = error.code().code().to_owned();
                failure.message = error.message().to_owned();
                failure.detail = error.detail().map(str::to_owned);
                failure.hint =
                    error.hint().map(str::to_owned).or_else(|| own_hint(error.code().code(), error.message(), index));
                failure.context = error.where_().map(str::to_owned);
            }
            None => failure.message = driver_message(error),
        }
        Box::new(failure)
    }

    /// Returns the error of a statement that Portico itself rejects.
    pub(super) fn refused(
        script: &SqlScript<'_>,
        index: usize,
        statement: &SqlStatement<'_>,
        message: &str,
        hint: &str,
    ) -> Box<Self> {
        let mut failure = Self::at(script, index, statement, None);
        failure.message = message.to_owned();
        failure.hint = Some(hint.to_owned());
        Box::new(failure)
    }

    fn at(script: &SqlScript<'_>, index: usize, statement: &SqlStatement<'_>, position: Option<usize>) -> Self {
        let byte = statement.offset + position.unwrap_or_else(|| statement.first_code());
        Self {
            file: script.shown.to_owned(),
            line: LineIndex::new(script.text).line(byte),
            index,
            severity: "ERROR".to_owned(),
            code: String::new(),
            message: String::new(),
            detail: None,
            hint: None,
            context: None,
            excerpt: excerpt(statement.text, position),
        }
    }
}

/// Returns the message of PostgreSQL or the driver in one line.
pub(crate) fn message_of(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{}: {} (SQLSTATE {})", error.severity(), error.message(), error.code().code()),
        None => driver_message(error),
    }
}

fn driver_message(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Returns a hint for errors that are hard to understand in a file of statements.
fn own_hint(code: &str, message: &str, index: usize) -> Option<String> {
    match code {
        "42704" => {
            let name = message.strip_prefix("type \"")?.split('"').next()?;
            (!name.contains('.')).then(|| {
                format!(
                    "The type may be in a schema that is not in the search_path. Name the schema as well, for example \
                     extensions.{name}"
                )
            })
        }
        "25001" if index > 0 => Some(
            "This statement cannot run in a transaction: give it a migration file of its own, as the first statement"
                .to_owned(),
        ),
        "55P04" => Some("Use the new value in the next migration file".to_owned()),
        _ => None,
    }
}

/// Returns the byte offset of a character. PostgreSQL counts characters from one.
fn byte_of_character(text: &str, position: u32) -> Option<usize> {
    let index = usize::try_from(position).ok()?.checked_sub(1)?;
    match text.char_indices().nth(index) {
        Some((byte, _)) => Some(byte),
        // "at end of input" points behind the last character
        None => (text.chars().count() == index).then_some(text.len()),
    }
}

/// Returns the statement up to and including the line of the position, with a caret below it.
fn excerpt(text: &str, position: Option<usize>) -> String {
    let end = position.map_or(text.len(), |byte| text[byte..].find('\n').map_or(text.len(), |length| byte + length));
    let lines: Vec<&str> = text[..end].lines().collect();
    let mut shown: Vec<String> = Vec::new();
    let hidden = lines.len().saturating_sub(SHOWN_LINES);
    for (index, line) in lines.iter().enumerate() {
        // The beginning shows the kind of the statement, the end shows where it failed
        if hidden > 0 && index == 3 {
            shown.push(format!("... ({hidden} lines)"));
        }
        if hidden == 0 || index < 3 || index >= 3 + hidden {
            shown.push(line.to_string());
        }
    }
    let start = position.map(|byte| text[..byte].rfind('\n').map_or(0, |index| index + 1));
    let column = start.zip(position).map_or(0, |(start, byte)| text[start..byte].chars().count());
    let last = shown.pop().unwrap_or_default();
    let mut shown: Vec<String> = shown.iter().map(|line| cut(line, 0).0).collect();
    let (last, column) = cut(&last, column);
    let caret: String = last.chars().take(column).map(|character| if character == '\t' { '\t' } else { ' ' }).collect();
    // A caret behind the last character has fewer characters above it
    let missing = column.saturating_sub(caret.chars().count());
    shown.push(last);
    if position.is_some() {
        shown.push(format!("{caret}{}^", " ".repeat(missing)));
    }
    shown.join("\n")
}

/// Shortens a line around a column. Returns the new column as well.
fn cut(line: &str, column: usize) -> (String, usize) {
    let length = line.chars().count();
    if length <= SHOWN_COLUMNS {
        return (line.to_owned(), column);
    }
    let start = column.saturating_sub(SHOWN_COLUMNS / 2);
    let middle: String = line.chars().skip(start).take(SHOWN_COLUMNS).collect();
    let before = if start > 0 { "..." } else { "" };
    let after = if start + SHOWN_COLUMNS < length { "..." } else { "" };
    (format!("{before}{middle}{after}"), column - start + before.len())
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.message)?;
        if !self.code.is_empty() {
            write!(f, " (SQLSTATE {})", self.code)?;
        }
        if let Some(detail) = &self.detail {
            write!(f, "\n{detail}")?;
        }
        if let Some(context) = &self.context {
            write!(f, "\nCONTEXT: {context}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        write!(f, "\nIn {}, line {}", self.file.display(), self.line)?;
        write!(f, "\nAt statement: {}\n{}", self.index, self.excerpt)
    }
}

impl std::error::Error for StatementError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_excerpt_ends_at_the_failing_line_with_a_caret() {
        let text = "create policy \"own rows\" on public.orderz\n  for select using (true)";
        let byte = byte_of_character(text, 29);
        assert_eq!(excerpt(text, byte), "create policy \"own rows\" on public.orderz\n                            ^");
        assert_eq!(excerpt("select\n\tö, x", byte_of_character("select\n\tö, x", 12)), "select\n\tö, x\n\t   ^");
        assert_eq!(excerpt("select 1 +", byte_of_character("select 1 +", 11)), "select 1 +\n          ^");
        assert_eq!(excerpt("select 1\nfrom x", None), "select 1\nfrom x");
    }

    #[test]
    fn long_statements_are_shortened() {
        let long = format!("insert into t values\n{}('{}', oops)", "(1),\n".repeat(500), "x".repeat(1000));
        let position = long.find("oops");
        let shown = excerpt(&long, position);
        assert!(shown.starts_with("insert into t values\n(1),\n(1),\n... (486 lines)\n"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= SHOWN_COLUMNS + 6), "{shown}");
        let lines: Vec<&str> = shown.lines().rev().take(2).collect();
        let caret = lines[0].find('^');
        assert_eq!(caret, lines[1].find("oops"), "{shown}");
    }

    proptest! {
        #[test]
        fn no_place_makes_the_excerpt_panic(text in "[a\\nö\\t]{0,400}", position in 0u32..500) {
            let position = byte_of_character(&text, position);
            prop_assert!(excerpt(&text, position).chars().count() < 4000);
        }
    }
}
