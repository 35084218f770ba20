//! Names, and ways into JSON.

use super::cursor::{Cursor, Parsed, looked_at};
use super::types::{Arrow, Field, JsonStep, Operand};

const FIELD_NAME: &str = "field name (* or [a..z0..9_$])";

/// A name, and whether it stood in quotes.
pub(super) struct ParsedName {
    pub(super) text: String,
    pub(super) quoted: bool,
}

/// `name`
pub(super) fn name(cursor: &mut Cursor<'_>) -> Parsed<String> {
    Ok(named(cursor)?.text)
}

/// `name`, for who must know about quotes.
pub(super) fn named(cursor: &mut Cursor<'_>) -> Parsed<ParsedName> {
    if cursor.sees("\"") {
        return Ok(ParsedName { text: quoted(cursor)?, quoted: true });
    }
    match dashed(cursor, is_ident_char) {
        Some(text) => Ok(ParsedName { text, quoted: false }),
        None => cursor.fail(FIELD_NAME),
    }
}

/// `ident`: a type, or a text search configuration.
pub(super) fn ident(cursor: &mut Cursor<'_>, label: &'static str) -> Parsed<String> {
    let text = cursor.take_while(is_ident_char);
    if text.is_empty() { cursor.fail(label) } else { Ok(text.trim().to_owned()) }
}

/// `quoted`, which must come next.
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

/// What `rest`, which begins with a quote, says in quotes, and its length with the quotes. `None` without a closing one.
pub(super) fn scan_quoted(rest: &str) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        looked_at(1);
        match c {
            '"' => return Some((text, at + 1)),
            '\\' => text.push(chars.next()?.1),
            c => text.push(c),
        }
    }
    None
}

/// `field`, with the spaces around it: a name in quotes may stand between some, too.
pub(super) fn field(cursor: &mut Cursor<'_>) -> Parsed<Field> {
    cursor.spaces();
    let name = name(cursor)?;
    let json_path = json_path(cursor)?;
    cursor.spaces();
    Ok(Field { name, json_path })
}

/// `json-path`
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
    if cursor.sees("\"") {
        return quoted(cursor).map(Operand::Key);
    }
    match dashed(cursor, |c| !matches!(c, '(' | '-' | ':' | '.' | ',' | '>' | ')')) {
        Some(key) => Ok(Operand::Key(key)),
        None => cursor.fail("any non reserved character different from: .,>()"),
    }
}

/// An index and its length. Contract 5.3: before a `)` it is none, but a key.
fn scan_index(rest: &str) -> Option<(i32, usize)> {
    let digits = rest.strip_prefix('-').unwrap_or(rest);
    let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let after = &digits[length..];
    let ends = after.is_empty() || ["->", "::", ".", ","].iter().any(|end| after.starts_with(end));
    let length = rest.len() - after.len();
    // More than 32 bits are no index for PostgreSQL either: a key, then.
    ends.then(|| rest[..length].parse().ok()).flatten().map(|index| (index, length))
}

/// Trimmed parts with `-` between them. A `-` directly before a `>` is an arrow's.
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
