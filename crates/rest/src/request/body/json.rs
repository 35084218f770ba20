//! The top level of a JSON body: the keys of its objects.

use std::fmt;

use bytes::Bytes;
use indexmap::IndexMap;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::payload::{JsonPayload, ObjectKeys, is_object};
use crate::RestError;

/// Parses the top level, and checks that the whole text is JSON.
///
/// # Errors
///
/// PGRST102: the text is not JSON, or an array whose elements are not objects with the same keys.
pub(super) fn read(bytes: Bytes) -> Result<JsonPayload, RestError> {
    let invalid = |_| RestError::Body("Empty or invalid json".to_owned());
    let text = std::str::from_utf8(&bytes).map_err(|_| RestError::Body("Empty or invalid json".to_owned()))?;
    let mut scan = KeyScan::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let is_object = is_object(&bytes);
    let first = text.trim_start_matches([' ', '\t', '\r', '\n']).bytes().next();
    match first {
        Some(b'{') => DeserializeSeed::deserialize(&mut scan, &mut json).map_err(invalid)?,
        Some(b'[') => json.deserialize_seq(ArrayElements(&mut scan)).map_err(invalid)?,
        _ => _ = IgnoredAny::deserialize(&mut json).map_err(invalid)?,
    }
    json.end().map_err(invalid)?;
    if scan.differs {
        return Err(RestError::Body("All object keys must match".to_owned()));
    }
    // A scalar counts as no rows
    let text = if matches!(first, Some(b'{' | b'[')) { bytes } else { Bytes::from_static(b"[]") };
    let mut keys: Vec<String> = scan.keys.into_keys().collect();
    keys.sort_unstable();
    Ok(JsonPayload { text, is_object, known: Some(ObjectKeys { keys, objects: scan.objects }) })
}

/// The keys of the objects so far.
#[derive(Default)]
struct KeyScan {
    /// The keys of the first object; for each, the last object that has it.
    keys: IndexMap<String, usize>,
    objects: usize,
    /// An element is not an object, or one with other keys.
    differs: bool,
}

impl KeyScan {
    /// Adds the key at position `position` of the current object. Returns true if it is new in this
    /// object.
    fn note(&mut self, key: &str, position: usize) -> bool {
        // Most objects list their keys in the same order
        let found = match self.keys.get_index(position) {
            Some((same, _)) if same == key => Some(position),
            _ => self.keys.get_index_of(key),
        };
        match found.and_then(|at| self.keys.get_index_mut(at)) {
            Some((_, last)) => std::mem::replace(last, self.objects) != self.objects,
            None if self.objects == 1 => self.keys.insert(key.to_owned(), 1).is_none(),
            None => {
                self.differs = true;
                false
            }
        }
    }
}

/// Reads an object, or an element of an array.
impl<'de> DeserializeSeed<'de> for &mut KeyScan {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut KeyScan {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.objects += 1;
        let (mut position, mut distinct) = (0, 0);
        while let Some(is_new) = map.next_key_seed(KeySeed { scan: self, position })? {
            map.next_value::<IgnoredAny>()?;
            position += 1;
            distinct += usize::from(is_new);
        }
        self.differs |= distinct != self.keys.len();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        self.differs = true;
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.differs = true;
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.differs = true;
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.differs = true;
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.differs = true;
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.differs = true;
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.differs = true;
        Ok(())
    }
}

/// The elements of an array.
struct ArrayElements<'a>(&'a mut KeyScan);

impl<'de> Visitor<'de> for ArrayElements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(&mut *self.0)?.is_some() {}
        Ok(())
    }
}

/// A key of an object.
struct KeySeed<'a> {
    scan: &'a mut KeyScan,
    position: usize,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(self.scan.note(key, self.position))
    }
}
