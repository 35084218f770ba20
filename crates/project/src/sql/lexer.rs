//! Splits SQL into tokens, as far as needed to find the ends of statements.
//!
//! The tokens, joined, are the text. Unfinished strings and comments extend to the end of the text;
//! PostgreSQL reports the error.

use std::ops::Range;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqlTokenKind {
    Space,
    Comment,
    /// A keyword, name or number without quotes.
    Word,
    /// A string constant, with its prefix (`E'..'`), or a `$tag$..$tag$` body.
    Text,
    /// A name in double quotes.
    QuotedName,
    /// A backslash and the character that it escapes.
    Escape,
    /// Any other single character.
    Symbol,
}

/// A token and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SqlToken {
    pub kind: SqlTokenKind,
    pub span: Range<usize>,
}

/// Iterates over the tokens of a text.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
    /// `standard_conforming_strings = off`: a backslash escapes in every string.
    pub escapes_everywhere: bool,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, position: 0, escapes_everywhere: false }
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn at(&self, position: usize) -> Option<u8> {
        self.bytes().get(position).copied()
    }

    fn starts(&self, position: usize, with: &[u8]) -> bool {
        self.bytes().get(position..).is_some_and(|rest| rest.starts_with(with))
    }

    /// Returns the first position from `from` on whose byte does not satisfy `holds`.
    fn skip(&self, from: usize, holds: impl Fn(u8) -> bool) -> usize {
        let rest = self.bytes().get(from..).unwrap_or_default();
        rest.iter().position(|byte| !holds(*byte)).map_or(self.text.len(), |length| from + length)
    }

    fn line_end(&self, from: usize) -> usize {
        self.skip(from, |byte| byte != b'\n' && byte != b'\r')
    }

    /// Returns the end of a comment that begins with `/*`; these nest.
    fn block_comment_end(&self, from: usize) -> usize {
        let mut depth = 0_usize;
        let mut position = from;
        while position < self.text.len() {
            if self.starts(position, b"/*") {
                depth += 1;
                position += 2;
            } else if self.starts(position, b"*/") {
                depth -= 1;
                position += 2;
                if depth == 0 {
                    return position;
                }
            } else {
                position += 1;
            }
        }
        self.text.len()
    }

    /// Returns the end of a string whose opening quote is at `from`.
    fn string_end(&self, from: usize, escapes: bool) -> usize {
        let mut position = from + 1;
        loop {
            position = self.skip(position, |byte| byte != b'\'' && !(escapes && byte == b'\\'));
            match self.at(position) {
                None => return self.text.len(),
                Some(b'\\') => position = self.after_character(position + 1),
                Some(_) if self.at(position + 1) == Some(b'\'') => position += 2,
                // Strings on consecutive lines are one constant, and the prefix applies to all of
                // them
                Some(_) => match self.continuation(position + 1).filter(|_| escapes) {
                    Some(next) => position = next + 1,
                    None => return position + 1,
                },
            }
        }
    }

    /// Returns the position of the quote that continues a string after a line break.
    fn continuation(&self, from: usize) -> Option<usize> {
        let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b;
        let line = self.skip(from, |byte| is_space(byte) && byte != b'\n' && byte != b'\r');
        if !matches!(self.at(line), Some(b'\n' | b'\r')) {
            return None;
        }
        let mut position = line;
        loop {
            position = self.skip(position, is_space);
            if !self.starts(position, b"--") {
                return (self.at(position) == Some(b'\'')).then_some(position);
            }
            position = self.line_end(position);
        }
    }

    /// Returns the position after the whole character at `position`.
    fn after_character(&self, position: usize) -> usize {
        self.skip((position + 1).min(self.text.len()), |byte| (byte & 0xc0) == 0x80)
    }

    /// Returns the end of a dollar-quoted text that begins at `from`, if one begins there.
    fn dollar_end(&self, from: usize) -> Option<usize> {
        let tag_end = self.skip(from + 1, |byte| is_name(byte) && byte != b'$');
        if self.at(tag_end) != Some(b'$') || self.at(from + 1).is_some_and(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let tag = &self.text[from..=tag_end];
        let body = tag_end + 1;
        Some(self.text[body..].find(tag).map_or(self.text.len(), |length| body + length + tag.len()))
    }

    fn token_end(&self, first: u8) -> (SqlTokenKind, usize) {
        let start = self.position;
        match first {
            b'-' if self.starts(start, b"--") => (SqlTokenKind::Comment, self.line_end(start)),
            b'/' if self.starts(start, b"/*") => (SqlTokenKind::Comment, self.block_comment_end(start)),
            b'\'' => (SqlTokenKind::Text, self.string_end(start, self.escapes_everywhere)),
            b'"' => {
                let close = self.skip(start + 1, |byte| byte != b'"');
                (SqlTokenKind::QuotedName, (close + 1).min(self.text.len()))
            }
            b'$' => match self.dollar_end(start) {
                Some(end) => (SqlTokenKind::Text, end),
                None => (SqlTokenKind::Symbol, start + 1),
            },
            b'\\' => (SqlTokenKind::Escape, self.after_character(start + 1)),
            byte if byte.is_ascii_whitespace() || byte == 0x0b => {
                (SqlTokenKind::Space, self.skip(start, |byte| byte.is_ascii_whitespace() || byte == 0x0b))
            }
            byte if is_name(byte) => {
                let end = self.skip(start, is_name);
                let is_string = self.at(end) == Some(b'\'') && end == start + 1;
                match byte {
                    b'e' | b'E' if is_string => (SqlTokenKind::Text, self.string_end(end, true)),
                    _ => (SqlTokenKind::Word, end),
                }
            }
            _ => (SqlTokenKind::Symbol, start + 1),
        }
    }
}

/// Returns true for characters of names, keywords and numbers; every byte beyond ASCII is part of a
/// name.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

impl Iterator for Lexer<'_> {
    type Item = SqlToken;

    fn next(&mut self) -> Option<SqlToken> {
        let first = self.at(self.position)?;
        let (kind, end) = self.token_end(first);
        let span = self.position..end;
        self.position = end;
        Some(SqlToken { kind, span })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds(text: &str) -> Vec<(SqlTokenKind, &str)> {
        Lexer::new(text).map(|token| (token.kind, &text[token.span])).collect()
    }

    #[test]
    fn strings_end_where_postgresql_says() {
        use SqlTokenKind::{QuotedName, Symbol, Text, Word};
        let table: &[(&str, &[(SqlTokenKind, &str)])] = &[
            ("'a''b'c", &[(Text, "'a''b'"), (Word, "c")]),
            (r"E'\'';", &[(Text, r"E'\''"), (Symbol, ";")]),
            (r"e'it\'s; no';", &[(Text, r"e'it\'s; no'"), (Symbol, ";")]),
            (r"'\';", &[(Text, r"'\'"), (Symbol, ";")]),
            (r"te'\';", &[(Word, "te"), (Text, r"'\'"), (Symbol, ";")]),
            ("E'a'\n -- and\n '\\';';", &[(Text, "E'a'\n -- and\n '\\';'"), (Symbol, ";")]),
            ("E'a' '\\';", &[(Text, "E'a'"), (SqlTokenKind::Space, " "), (Text, "'\\'"), (Symbol, ";")]),
            ("\"a\"\"b\"", &[(QuotedName, "\"a\""), (QuotedName, "\"b\"")]),
            ("$a$ $b$ $a$;", &[(Text, "$a$ $b$ $a$"), (Symbol, ";")]),
            ("$$;$$", &[(Text, "$$;$$")]),
            ("$1;", &[(Symbol, "$"), (Word, "1"), (Symbol, ";")]),
            ("x$$y", &[(Word, "x$$y")]),
            ("$ä$;$ä$", &[(Text, "$ä$;$ä$")]),
            ("/* /* ; */ */;", &[(SqlTokenKind::Comment, "/* /* ; */ */"), (Symbol, ";")]),
        ];
        for (text, expected) in table {
            assert_eq!(&kinds(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_tokens_joined_are_the_text(text in "[eE'\"$a1é;()\\\\/*\\-\\n \\r]{0,40}") {
            let mut position = 0;
            for token in Lexer::new(&text) {
                prop_assert_eq!(token.span.start, position);
                prop_assert!(token.span.end > position);
                prop_assert!(text.is_char_boundary(token.span.end));
                position = token.span.end;
            }
            prop_assert_eq!(position, text.len());
        }
    }
}
