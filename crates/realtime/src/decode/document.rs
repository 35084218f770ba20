//! Documents of type `json`, rewritten as `jsonb` has them: the keys of an object in the order of
//! `jsonb`, the last of several equal ones, no space between tokens.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json_string::write_string;
use super::shape::key_order;

/// The nesting up to which a document is rewritten. Each level is scanned once for every level
/// around it.
const MAX_DEPTH: usize = 64;

/// Writes a document. Numbers keep their text: JSON allows them an exponent that would fill the
/// memory if it were written out. A document that cannot be rewritten (nested too deeply, or with
/// half of a surrogate pair) is written as it is.
pub(super) fn write_document(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    if write_value(out, text.trim_ascii(), 0).is_none() {
        out.truncate(start);
        out.extend_from_slice(text.as_bytes());
    }
}

/// Writes a value. `None`: it cannot be rewritten.
fn write_value(out: &mut Vec<u8>, text: &str, depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match text.as_bytes().first() {
        Some(b'{') => {
            let Object(mut entries) = serde_json::from_str(text).ok()?;
            // Stable, so the last of several equal keys stays the last of them
            entries.sort_by(|left, right| key_order(&left.0, &right.0));
            out.push(b'{');
            let mut is_first = true;
            for (at, (key, value)) in entries.iter().enumerate() {
                if entries.get(at + 1).is_some_and(|next| next.0 == *key) {
                    continue;
                }
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                write_string(out, key);
                out.push(b':');
                write_value(out, value.get(), depth + 1)?;
            }
            out.push(b'}');
        }
        Some(b'[') => {
            let Array(elements) = serde_json::from_str(text).ok()?;
            out.push(b'[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_value(out, element.get(), depth + 1)?;
            }
            out.push(b']');
        }
        Some(b'"') => {
            // Escapes that are not needed are removed
            let string: String = serde_json::from_str(text).ok()?;
            write_string(out, &string);
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
    Some(())
}

struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);
struct Array<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object<'de>, M::Error> {
                let mut entries = Vec::new();
                while let Some((key, value)) = map.next_entry::<Key<'de>, &RawValue>()? {
                    entries.push((key.0, value));
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A key, borrowed where it has no escape.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Array<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Array<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Array<'de>, S::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(Array(elements))
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let mut out = Vec::new();
        write_document(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_ordered_and_the_last_of_equal_ones_stays() {
        assert_eq!(
            written(r#" {"bb": 1, "a" : [ 1.50 , {"z":1,"b":2} ], "b":0, "bb":"\u0061\/" } "#),
            r#"{"a":[1.50,{"b":2,"z":1}],"b":0,"bb":"a/"}"#
        );
        assert_eq!(written(r#"{"\u0061":1,"a":2}"#), r#"{"a":2}"#);
        assert_eq!(written(" 1e400 "), "1e400");
        assert_eq!(written("null"), "null");
    }

    #[test]
    fn a_document_that_cannot_be_rewritten_is_written_as_it_is() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(written(&deep), deep);
        let half = r#"{"b":"\ud800","a":1}"#;
        assert_eq!(written(half), half);
    }
}
