//! The statements of a SQL file.
//!
//! The history table stores the result and other tools read it back, so the boundaries of
//! statements have to be the same as theirs.

use super::lexer::{Lexer, SqlToken, SqlTokenKind};

/// One statement of a file, without the semicolon that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlStatement<'a> {
    /// The text, with comments inside, without white space around it.
    pub text: &'a str,
    /// The byte offset of the text in the file.
    pub offset: usize,
}

impl SqlStatement<'_> {
    /// Returns the first words outside comments, in lower case; quoted names lose their quotes. At
    /// most `limit`.
    pub(crate) fn words(&self, limit: usize) -> Vec<String> {
        Lexer::new(self.text)
            .filter_map(|token| match token.kind {
                SqlTokenKind::Word => Some(self.text[token.span].to_ascii_lowercase()),
                SqlTokenKind::QuotedName => Some(self.text[token.span].trim_matches('"').to_owned()),
                _ => None,
            })
            .take(limit)
            .collect()
    }

    /// Returns the byte offset of the first token that is not a comment, from the start of the
    /// text.
    pub(crate) fn first_code(&self) -> usize {
        Lexer::new(self.text)
            .find(|token| !matches!(token.kind, SqlTokenKind::Space | SqlTokenKind::Comment))
            .map_or(0, |token| token.span.start)
    }
}

/// Splits a file into its statements.
///
/// A semicolon ends a statement except in strings, quoted names, comments, dollar-quoted bodies,
/// parentheses and `begin atomic ... end` bodies. White space alone is not a statement; comments
/// alone are.
pub fn split(text: &str) -> Vec<SqlStatement<'_>> {
    let mut statements = Vec::new();
    let mut lexer = Lexer::new(text);
    let mut start = 0;
    let mut open = Nesting::default();
    while let Some(token) = lexer.next() {
        if open.ends_statement(text, &token) {
            let statement = trimmed(text, start, token.span.start);
            if let Some(escapes) = statement.and_then(|statement| turns_escapes(&statement)) {
                lexer.escapes_everywhere = escapes;
            }
            statements.extend(statement);
            start = token.span.end;
            open = Nesting::default();
        }
    }
    statements.extend(trimmed(text, start, text.len()));
    statements
}

fn trimmed(text: &str, start: usize, end: usize) -> Option<SqlStatement<'_>> {
    let piece = &text[start..end];
    let trimmed = piece.trim_start();
    let offset = start + piece.len() - trimmed.len();
    let trimmed = trimmed.trim_end();
    (!trimmed.is_empty()).then_some(SqlStatement { text: trimmed, offset })
}

/// The parts of a statement that are open.
#[derive(Default)]
struct Nesting {
    parentheses: usize,
    /// `begin atomic` and the `case`s in it, each of which has its own `end`.
    blocks: usize,
    /// The previous word, without comments and space.
    previous: PreviousWord,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum PreviousWord {
    #[default]
    Other,
    Begin,
    /// `as` or a dot: the next word is a name.
    Naming,
}

impl Nesting {
    fn ends_statement(&mut self, text: &str, token: &SqlToken) -> bool {
        let piece = &text[token.span.clone()];
        match (token.kind, piece) {
            (SqlTokenKind::Space | SqlTokenKind::Comment, _) => return false,
            (SqlTokenKind::Symbol, "(") => self.parentheses += 1,
            (SqlTokenKind::Symbol, ")") => self.parentheses = self.parentheses.saturating_sub(1),
            (SqlTokenKind::Symbol, ";") if self.parentheses == 0 && self.blocks == 0 => return true,
            (SqlTokenKind::Symbol, ".") => {
                self.previous = PreviousWord::Naming;
                return false;
            }
            (SqlTokenKind::Word, word) if self.parentheses == 0 => {
                self.previous = self.word(word);
                return false;
            }
            _ => {}
        }
        self.previous = PreviousWord::Other;
        false
    }

    fn word(&mut self, word: &str) -> PreviousWord {
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if self.previous == PreviousWord::Naming {
            return PreviousWord::Other;
        }
        if is("begin") {
            return PreviousWord::Begin;
        }
        if is("as") {
            return PreviousWord::Naming;
        }
        let opens = (is("atomic") && self.previous == PreviousWord::Begin) || (self.blocks > 0 && is("case"));
        if opens {
            self.blocks += 1;
        } else if is("end") {
            self.blocks = self.blocks.saturating_sub(1);
        }
        PreviousWord::Other
    }
}

/// Returns true if a statement changes the meaning of a backslash in a plain string.
fn turns_escapes(statement: &SqlStatement<'_>) -> Option<bool> {
    if statement.text.len() > 200 {
        return None;
    }
    let words = statement.words(6);
    let words: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !matches!(*word, "session" | "local" | "to")).collect();
    match words.as_slice() {
        ["set", "standard_conforming_strings", "off" | "false" | "0" | "no"] => Some(true),
        ["set", "standard_conforming_strings", ..] | ["reset", "standard_conforming_strings" | "all"] => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        split(text).into_iter().map(|statement| statement.text).collect()
    }

    #[test]
    fn statements_end_at_their_semicolon() {
        let atomic = "create function f(i int) returns int language sql begin atomic \
                      insert into vendor values (i); select case i when 1 then 2 end as end; select append(i); END";
        let nested = "create procedure p() begin atomic select 1; end";
        let body = "create function g() returns text language plpgsql as $fn$ begin return 'a;b'; end; $fn$";
        let rule = "create rule r as on insert to t do also (insert into u values (1); insert into v values (2))";
        let both = format!("{atomic};\n{nested};\n{body} ;{rule};");
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            (" ;; \n;", &[]),
            ("select 1; select 2", &["select 1", "select 2"]),
            ("select 1;\n-- the end\n", &["select 1", "-- the end"]),
            ("-- a; b\nselect 1;", &["-- a; b\nselect 1"]),
            (r"select E'\''; select 2;", &[r"select E'\''", "select 2"]),
            (r"select '\'; select 2;", &[r"select '\'", "select 2"]),
            ("select \"a;b\"; select $x$;$x$;", &["select \"a;b\"", "select $x$;$x$"]),
            ("/* a; /* b; */ c; */ select 1; x", &["/* a; /* b; */ c; */ select 1", "x"]),
            ("begin; select 1; commit;", &["begin", "select 1", "commit"]),
            ("select case when a then 1 end; select 2", &["select case when a then 1 end", "select 2"]),
            (r"select 1\; still; b", &[r"select 1\; still", "b"]),
            ("select 'never closed; at all", &["select 'never closed; at all"]),
            ("select );select 2", &["select )", "select 2"]),
            (
                "set standard_conforming_strings = off; select '\\';'; set standard_conforming_strings to on; select '\\'; x",
                &[
                    "set standard_conforming_strings = off",
                    "select '\\';'",
                    "set standard_conforming_strings to on",
                    "select '\\'",
                    "x",
                ],
            ),
            (&both, &[atomic, nested, body, rule]),
        ];
        for (text, expected) in table {
            assert_eq!(&texts(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_large_file_is_split_in_one_pass() {
        let text = "insert into t values ('a;b', $$;$$); -- c;\n".repeat(100_000);
        assert_eq!(split(&text).len(), 100_001);
    }

    proptest! {
        #[test]
        fn every_statement_is_where_it_says(text in "[beginatomcsd'\"$E1é;()\\\\/*\\-\\n ]{0,60}") {
            let mut end = 0;
            for statement in split(&text) {
                prop_assert!(statement.offset >= end);
                end = statement.offset + statement.text.len();
                prop_assert_eq!(&text[statement.offset..end], statement.text);
                prop_assert_eq!(statement.text.trim(), statement.text);
                prop_assert!(!statement.text.is_empty());
            }
        }

        /// Only semicolons and white space are between statements.
        #[test]
        fn nothing_is_lost_between_statements(text in "[acdegimnost'\"$E;()\\n ]{0,60}") {
            let mut rest = String::new();
            let mut end = 0;
            for statement in split(&text) {
                rest.push_str(&text[end..statement.offset]);
                end = statement.offset + statement.text.len();
            }
            rest.push_str(&text[end..]);
            prop_assert!(rest.chars().all(|left| left == ';' || left.is_whitespace()), "{:?}", rest);
        }

        /// The stored statements, joined again, are an equivalent file.
        #[test]
        fn joined_statements_split_into_themselves(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "select 1", "select ';'", "select E'\\';'", "select $a$;$b$;$a$", "/* ; */ select 2", "select \";\"",
                    "select (1; 2)", "create function f() begin atomic select 1; select case 1 when 1 then 2 end; end",
                    "-- note;\nselect 3", "do $$ begin perform 1; end $$",
                ]),
                0..12,
            )
        ) {
            let file = pieces.join(";\n") + ";\n";
            prop_assert_eq!(texts(&file), pieces);
        }
    }
}
