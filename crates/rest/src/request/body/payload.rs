//! Rows, or arguments by name, as JSON.

use bytes::Bytes;

/// An object, or an array of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPayload {
    /// The JSON text for PostgreSQL.
    pub text: Bytes,
    /// The text is one object, not an array.
    pub is_object: bool,
    /// The keys of the objects; `None` if the text was not parsed, because `columns` names the
    /// columns.
    pub known: Option<ObjectKeys>,
}

/// The keys of a body's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectKeys {
    /// The keys that all objects have, sorted.
    pub keys: Vec<String>,
    /// The number of objects.
    pub objects: usize,
}

impl JsonPayload {
    /// Returns the columns of the payload: `columns` if given, otherwise its keys.
    pub fn columns<'a>(&'a self, columns: Option<&'a [String]>) -> &'a [String] {
        columns.unwrap_or_else(|| self.known.as_ref().map_or(&[], |known| &known.keys))
    }
}

/// Returns true if the first byte that is not white space begins an object.
pub fn is_object(json: &[u8]) -> bool {
    json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}
