//! Splits a template into text and the tokens of its actions.

use super::TemplateError;

/// A stretch of a template.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplatePiece {
    Text(String),
    Action { line: usize, tokens: Vec<TemplateToken> },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TemplateToken {
    pub kind: TemplateTokenKind,
    /// White space stands before it: `.A.B` is one operand, `.A .B` are two.
    pub spaced: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateTokenKind {
    Word(String),
    Field(String),
    Variable(String),
    Dot,
    Text(String),
    Number(serde_json::Number),
    Pipe,
    Open,
    Close,
    Comma,
    Declare,
    Assign,
}

/// Tokens that one action can have.
const MOST_TOKENS: usize = 2_000;

pub(super) fn split(source: &str) -> Result<Vec<TemplatePiece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut rest = source;
    let mut line = 1;
    let mut trim_next = false;
    loop {
        let (text, action) = match rest.find("{{") {
            Some(start) => (&rest[..start], Some(&rest[start + 2..])),
            None => (rest, None),
        };
        let mut kept = if trim_next { text.trim_start_matches(is_space) } else { text };
        let opens_trimmed = action.is_some_and(|action| action.starts_with('-') && action[1..].starts_with(is_space));
        if opens_trimmed {
            kept = kept.trim_end_matches(is_space);
        }
        if !kept.is_empty() {
            pieces.push(TemplatePiece::Text(kept.to_owned()));
        }
        line += lines(text);
        let Some(action) = action else { return Ok(pieces) };

        let action = if opens_trimmed { &action[1..] } else { action };
        let (tokens, length, trimmed) = match action.trim_start_matches(is_space).strip_prefix("/*") {
            Some(comment) => (None, skip_comment(action, comment, line)?, false),
            None => {
                let (tokens, length, trimmed) = Actions { source: action, at: 0, line }.tokens()?;
                (Some(tokens), length, trimmed)
            }
        };
        // A comment's end says by itself whether it trims
        trim_next = trimmed || (tokens.is_none() && action[..length].ends_with("-}}"));
        if let Some(tokens) = tokens {
            pieces.push(TemplatePiece::Action { line, tokens });
        }
        line += lines(&action[..length]);
        rest = &action[length..];
    }
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn lines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

/// Returns the length of `action` up to and with the `}}` of the comment that it begins with.
fn skip_comment(action: &str, comment: &str, line: usize) -> Result<usize, TemplateError> {
    let end = comment.find("*/").ok_or_else(|| TemplateError::at(line, "the comment is not closed"))?;
    let after = &comment[end + 2..];
    let spaces = after.len() - after.trim_start_matches(is_space).len();
    let closing = &after[spaces..];
    let closing_length = if closing.starts_with("}}") {
        2
    } else if closing.starts_with("-}}") && spaces > 0 {
        3
    } else {
        return Err(TemplateError::at(line, "a comment must end its action"));
    };
    Ok(action.len() - closing.len() + closing_length)
}

struct Actions<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl Actions<'_> {
    /// Returns the tokens, the length with the closing braces, and whether the text after them is
    /// trimmed.
    fn tokens(mut self) -> Result<(Vec<TemplateToken>, usize, bool), TemplateError> {
        let mut tokens = Vec::new();
        let mut spaced = false;
        loop {
            let rest = &self.source[self.at..];
            if rest.starts_with("}}") {
                return Ok((tokens, self.at + 2, false));
            }
            let Some(first) = rest.chars().next() else {
                return Err(self.error("an action is not closed with }}"));
            };
            if is_space(first) {
                if rest[1..].starts_with("-}}") {
                    return Ok((tokens, self.at + 4, true));
                }
                self.at += 1;
                self.line += usize::from(first == '\n');
                spaced = true;
                continue;
            }
            if tokens.len() == MOST_TOKENS {
                return Err(self.error("an action is too long"));
            }
            let kind = self.token(first)?;
            tokens.push(TemplateToken { kind, spaced });
            spaced = false;
        }
    }

    fn token(&mut self, first: char) -> Result<TemplateTokenKind, TemplateError> {
        let rest = &self.source[self.at..];
        let simple = |kind, length| (kind, length);
        let (kind, length) = match first {
            '|' => simple(TemplateTokenKind::Pipe, 1),
            '(' => simple(TemplateTokenKind::Open, 1),
            ')' => simple(TemplateTokenKind::Close, 1),
            ',' => simple(TemplateTokenKind::Comma, 1),
            '=' => simple(TemplateTokenKind::Assign, 1),
            ':' if rest.starts_with(":=") => simple(TemplateTokenKind::Declare, 2),
            '"' => return self.quoted().map(TemplateTokenKind::Text),
            '`' => {
                let end = rest[1..].find('`').ok_or_else(|| self.error("a raw string is not closed"))?;
                self.line += lines(&rest[1..=end]);
                (TemplateTokenKind::Text(rest[1..=end].to_owned()), end + 2)
            }
            '\'' => return self.character(),
            '.' if !rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                let name = word(&rest[1..]);
                match name {
                    "" => (TemplateTokenKind::Dot, 1),
                    name => (TemplateTokenKind::Field(name.to_owned()), 1 + name.len()),
                }
            }
            '$' => {
                let name = word(&rest[1..]);
                (TemplateTokenKind::Variable(name.to_owned()), 1 + name.len())
            }
            '0'..='9' | '+' | '-' | '.' => return self.number(),
            _ => match word(rest) {
                "" => return Err(self.error(format!("unexpected {first:?}"))),
                name => (TemplateTokenKind::Word(name.to_owned()), name.len()),
            },
        };
        self.at += length;
        Ok(kind)
    }

    fn quoted(&mut self) -> Result<String, TemplateError> {
        let mut text = String::new();
        let mut position = self.at + 1;
        loop {
            let (character, length) = self.unescaped(position, "a string is not closed")?;
            match character {
                Unescaped::Closing('"') => {
                    self.at = position + 1;
                    return Ok(text);
                }
                Unescaped::Closing(other) | Unescaped::Plain(other) => text.push(other),
            }
            position += length;
        }
    }

    fn character(&mut self) -> Result<TemplateTokenKind, TemplateError> {
        let (character, length) = self.unescaped(self.at + 1, "a character is not closed")?;
        let (Unescaped::Plain(value) | Unescaped::Closing(value)) = character;
        let end = self.at + 1 + length;
        if matches!(character, Unescaped::Closing('\'')) || !self.source[end..].starts_with('\'') {
            return Err(self.error("a character constant holds one character"));
        }
        self.at = end + 1;
        Ok(TemplateTokenKind::Number(u32::from(value).into()))
    }

    /// Returns the character at `position` of a quoted text, escapes resolved, and its length in
    /// the source.
    fn unescaped(&self, position: usize, unclosed: &str) -> Result<(Unescaped, usize), TemplateError> {
        let rest = &self.source[position..];
        let mut characters = rest.chars();
        let first = characters.next().filter(|&first| first != '\n').ok_or_else(|| self.error(unclosed))?;
        if first != '\\' {
            let character =
                if matches!(first, '"' | '\'') { Unescaped::Closing(first) } else { Unescaped::Plain(first) };
            return Ok((character, first.len_utf8()));
        }
        let wrong = || self.error("unknown escape in a string");
        let code = |from: usize, digits: usize, radix: u32| {
            let text = rest.get(from..from + digits).ok_or_else(wrong)?;
            let number = u32::from_str_radix(text, radix).map_err(|_| wrong())?;
            char::from_u32(number).ok_or_else(wrong).map(|character| (Unescaped::Plain(character), from + digits))
        };
        let plain = |character| Ok((Unescaped::Plain(character), 2));
        match characters.next().ok_or_else(|| self.error(unclosed))? {
            'a' => plain('\u{7}'),
            'b' => plain('\u{8}'),
            'f' => plain('\u{c}'),
            'n' => plain('\n'),
            'r' => plain('\r'),
            't' => plain('\t'),
            'v' => plain('\u{b}'),
            same @ ('\\' | '"' | '\'') => plain(same),
            'x' => code(2, 2, 16),
            'u' => code(2, 4, 16),
            'U' => code(2, 8, 16),
            '0'..='7' => code(1, 3, 8),
            _ => Err(wrong()),
        }
    }

    fn number(&mut self) -> Result<TemplateTokenKind, TemplateError> {
        let rest = &self.source[self.at..];
        let mut end = 1;
        while let Some(next) = rest[end..].chars().next() {
            let signed_exponent = matches!(next, '+' | '-') && rest[..end].ends_with(['e', 'E']);
            if !next.is_ascii_alphanumeric() && next != '.' && next != '_' && !signed_exponent {
                break;
            }
            end += 1;
        }
        let text = rest[..end].replace('_', "");
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(&text)),
        };
        let prefixed = |prefixes: [&str; 2], radix| {
            prefixes
                .iter()
                .find_map(|prefix| digits.strip_prefix(prefix))
                .map(|digits| i64::from_str_radix(digits, radix))
        };
        let whole = prefixed(["0x", "0X"], 16)
            .or_else(|| prefixed(["0o", "0O"], 8))
            .or_else(|| prefixed(["0b", "0B"], 2))
            .unwrap_or_else(|| digits.parse::<i64>());
        let number = match whole {
            Ok(whole) => Some(if negative { -whole } else { whole }.into()),
            Err(_) if digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') => digits
                .parse::<f64>()
                .ok()
                .and_then(|float| serde_json::Number::from_f64(if negative { -float } else { float })),
            Err(_) => None,
        };
        let number = number.ok_or_else(|| self.error(format!("{text:?} is no number")))?;
        self.at += end;
        Ok(TemplateTokenKind::Number(number))
    }

    fn error(&self, message: impl Into<String>) -> TemplateError {
        TemplateError::at(self.line, message)
    }
}

enum Unescaped {
    Plain(char),
    /// A quotation mark that was not escaped.
    Closing(char),
}

fn word(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(text.len());
    &text[..end]
}
