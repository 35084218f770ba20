//! Splits and decodes the raw query string.

use std::borrow::Cow;
use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::RestError;

/// The limit of a query string's length, in bytes. HTTP libraries reject longer ones.
const MAX_LENGTH: usize = 64 * 1024;

/// The limit of parameters.
const MAX_PAIRS: usize = 4096;

/// A key and its value, decoded.
pub(super) type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Returns the parameters of a query string. Those without `=` or without a key are dropped.
pub(super) fn pairs(raw: &str) -> Result<Vec<Pair<'_>>, RestError> {
    if raw.len() > MAX_LENGTH {
        return Err(query_error(format!("the query string is longer than {MAX_LENGTH} bytes")));
    }
    let mut pairs = Vec::new();
    for (key, value) in split(raw) {
        if pairs.len() == MAX_PAIRS {
            return Err(query_error(format!("the query string has more than {MAX_PAIRS} parameters")));
        }
        let decoded = |text| decode(text).ok_or_else(|| query_error("the query string is not UTF-8".to_owned()));
        pairs.push((decoded(key)?, decoded(value)?));
    }
    Ok(pairs)
}

/// Returns the query string for `Content-Location`: sorted by key, encoded again, values of equal
/// keys joined by commas.
pub fn canonical(raw: &str) -> String {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let mut values: BTreeMap<Cow<'_, str>, String> = BTreeMap::new();
    for (key, value) in split(raw) {
        // A query string that is not UTF-8 was rejected before
        let (key, value) = (decode(key).unwrap_or_default(), decode(value).unwrap_or_default());
        let encoded = utf8_percent_encode(&value, KEPT);
        match values.get_mut(&key) {
            Some(merged) => merged.extend(std::iter::once(",").chain(encoded)),
            None => drop(values.insert(key, encoded.collect())),
        }
    }
    let mut text = String::with_capacity(raw.len());
    for (key, value) in values {
        if !text.is_empty() {
            text.push('&');
        }
        text.extend(utf8_percent_encode(&key, KEPT));
        text.push('=');
        text.push_str(&value);
    }
    text
}

/// Decodes `+` and `%XX`. An invalid escape stays as it is. Returns `None` if the result is not
/// UTF-8.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'+' || byte == b'%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = match byte {
            b'%' => bytes.get(at + 1).zip(bytes.get(at + 2)).and_then(|(&high, &low)| Some((hex(high)?, hex(low)?))),
            _ => None,
        };
        match (byte, escaped) {
            (_, Some((high, low))) => {
                decoded.push(high << 4 | low);
                at += 3;
                continue;
            }
            (b'+', None) => decoded.push(b' '),
            (other, None) => decoded.push(other),
        }
        at += 1;
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// Splits into parameters. Those without `=` are ignored; so are those without a key, which the
/// hosted gateway removes.
fn split(raw: &str) -> impl Iterator<Item = (&str, &str)> {
    raw.split(['&', ';']).filter_map(|pair| pair.split_once('=')).filter(|(key, _)| !key.is_empty())
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn query_error(details: String) -> RestError {
    RestError::Parse { message: "\"failed to parse query string\" (line 1, column 1)".to_owned(), details }
}
