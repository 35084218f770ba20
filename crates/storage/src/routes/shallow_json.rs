//! JSON without what no route reads. A list of small objects takes many times the memory of its
//! text, and a body must not take much more than was reserved for it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The depth that is kept: the fields of a body, and the items or fields of one of them. What is
/// deeper counts as empty.
const DEPTH: usize = 2;

/// Parses JSON. Lists and objects within the items of a list, or within the fields of a nested
/// object, are empty.
///
/// # Errors
/// When it is malformed.
pub(super) fn parse(json: &[u8]) -> serde_json::Result<Value> {
    let mut parser = serde_json::Deserializer::from_slice(json);
    let value = ShallowValue { depth: DEPTH }.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// Reads a value of which this many levels are kept.
#[derive(Clone, Copy)]
struct ShallowValue {
    depth: usize,
}

impl ShallowValue {
    fn inner(self) -> Option<Self> {
        Some(Self { depth: self.depth.checked_sub(1)? })
    }
}

impl<'de> DeserializeSeed<'de> for ShallowValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShallowValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        match self.inner() {
            Some(inner) => {
                while let Some(item) = list.next_element_seed(inner)? {
                    items.push(item);
                }
            }
            None => while list.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        match self.inner() {
            Some(inner) => {
                while let Some(name) = object.next_key::<String>()? {
                    fields.insert(name, object.next_value_seed(inner)?);
                }
            }
            None => while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_deeper_than_a_route_reads_is_empty() {
        let whole = json!({
            "a": "b", "n": [1, -1, 1.5, null, true, "x", [1], { "c": 1 }], "o": { "p": "q", "r": [1], "s": { "t": 1 } },
        });
        let kept = json!({
            "a": "b", "n": [1, -1, 1.5, null, true, "x", [], {}], "o": { "p": "q", "r": [], "s": {} },
        });
        assert_eq!(parse(whole.to_string().as_bytes()).unwrap(), kept);
        let deep = format!(r#"{{"a":[{}{}]}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(parse(deep.as_bytes()).unwrap(), json!({ "a": [[]] }));
        for malformed in ["", "{", "{} {}", r#"{"a":[[1,]]}"#, r#"{"a":1e999}"#] {
            assert!(parse(malformed.as_bytes()).is_err(), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn shallow_json_is_read_as_it_is(fields in prop::collection::btree_map("\\PC{0,9}", "\\PC{0,9}", 0..6), list in prop::collection::vec(any::<i64>(), 0..6)) {
            let whole = json!({ "fields": fields, "list": list });
            prop_assert_eq!(parse(whole.to_string().as_bytes()).unwrap(), whole);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, text in "[\\[\\]{}\":,a0-9.e-]{0,40}") {
            let _ = parse(&bytes);
            let _ = parse(text.as_bytes());
        }
    }
}
