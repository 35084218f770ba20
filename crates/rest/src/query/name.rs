//! Names and JSON paths.

use super::cursor::{Cursor, Parsed, count_scanned};
use super::types::{Arrow, Field, JsonStep, Operand};

const FIELD_NAME: &str = "field name (* or [a..z0..9_$])";

/// A name, and whether it was quoted.
pub(super) struct ParsedName {
    pub(super) text: String,
    pub(super) quoted: bool,
}

/// Parses a `name`.
pub(super) fn name(cursor: &mut Cursor<'_>) -> Parsed<String> {
    Ok(named(cursor)?.text)
}

/// Parses a `name` and reports whether it was quoted.
pub(super) fn named(cursor: &mut Cursor<'_>) -> Parsed<ParsedName> {
    if cursor.is_next("\"") {
        return Ok(ParsedName { text: quoted(cursor)?, quoted: true });
    }
    match dashed(cursor, is_ident_char) {
        Some(text) => Ok(ParsedName { text, quoted: false }),
        None => cursor.fail(FIELD_NAME),
    }
}

/// Parses an `ident`: a type, or a text search configuration.
pub(super) fn ident(cursor: &mut Cursor<'_>, label: &'static str) -> Parsed<String> {
    let text = cursor.take_while(is_ident_char);
    if text.is_empty() { cursor.fail(label) } else { Ok(text.trim().to_owned()) }
}

/// Parses a `quoted` text, which must come next.
pub(super) fn quoted(cursor: &mut Cursor<'_>) -> Parsed<String> {
    match scan_quoted(cursor.rest()) {
        Some((text, length)) => {
            cursor.skip(length);
            Ok(text)
        }
        None => {
            cursor.skip(cursor.rest().len());
            cursor.fail("\"\\\"\"")
        }
    }
}

/// Returns the quoted text at the start of `rest`, and its length with the quotes; `None` without a
/// closing quote.
pub(super) fn scan_quoted(rest: &str) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        count_scanned(1);
        match c {
            '"' => return Some((text, at + 1)),
            '\\' => text.push(chars.next()?.1),
            c => text.push(c),
        }
    }
    None
}

/// Parses a `field` with the spaces around it. A quoted name may have spaces around it, too.
pub(super) fn field(cursor: &mut Cursor<'_>) -> Parsed<Field> {
    cursor.spaces();
    let name = name(cursor)?;
    let json_path = json_path(cursor)?;
    cursor.spaces();
    Ok(Field { name, json_path })
}

/// Parses a `json-path`.
pub(super) fn json_path(cursor: &mut Cursor<'_>) -> Parsed<Vec<JsonStep>> {
    let mut path = Vec::new();
    loop {
        let arrow = if cursor.take("->>") {
            Arrow::Text
        } else if cursor.take("->") {
            Arrow::Json
        } else {
            return Ok(path);
        };
        cursor.count()?;
        path.push(JsonStep { arrow, operand: operand(cursor)? });
    }
}

fn operand(cursor: &mut Cursor<'_>) -> Parsed<Operand> {
    if let Some((index, length)) = scan_index(cursor.rest()) {
        cursor.skip(length);
        return Ok(Operand::Index(index));
    }
    if cursor.is_next("\"") {
        return quoted(cursor).map(Operand::Key);
    }
    match dashed(cursor, |c| !matches!(c, '(' | '-' | ':' | '.' | ',' | '>' | ')')) {
        Some(key) => Ok(Operand::Key(key)),
        None => cursor.fail("any non reserved character different from: .,>()"),
    }
}

/// Returns an index and its length. Before a `)`, digits are a key.
fn scan_index(rest: &str) -> Option<(i32, usize)> {
    let digits = rest.strip_prefix('-').unwrap_or(rest);
    let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let after = &digits[length..];
    let ends = after.is_empty() || ["->", "::", ".", ","].iter().any(|end| after.starts_with(end));
    let length = rest.len() - after.len();
    // PostgreSQL has no index of more than 32 bits: a longer number is a key
    ends.then(|| rest[..length].parse().ok()).flatten().map(|index| (index, length))
}

/// Parses parts with `-` between them, each trimmed. A `-` directly before `>` belongs to an arrow.
fn dashed(cursor: &mut Cursor<'_>, fits: impl Fn(char) -> bool) -> Option<String> {
    let first = cursor.take_while(&fits);
    if first.is_empty() {
        return None;
    }
    let mut text = first.trim().to_owned();
    while let Some(after) = cursor.rest().strip_prefix('-') {
        if !after.chars().next().is_some_and(&fits) {
            break;
        }
        cursor.skip(1);
        text.push('-');
        text.push_str(cursor.take_while(&fits).trim());
    }
    Some(text)
}

fn is_ident_char(c: char) -> bool {
    c.is_alphabetic() || c.is_ascii_digit() || matches!(c, '_' | ' ' | '$')
}
