//! Strings in JSON.

/// Writes a string with the escapes that JSON requires.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    // Writing a string into memory cannot fail
    let _ = serde_json::to_writer(out, text);
}
