//! Texts from comments, and references to other parts of a document.

use serde_json::{Map, Value, json};

/// Returns the first line of a comment, and the rest.
pub(super) fn lines(comment: &str) -> (&str, &str) {
    let (first, rest) = comment.split_once('\n').unwrap_or((comment, ""));
    (first.trim_end_matches('\r'), rest.trim_start_matches(['\r', '\n']))
}

/// Adds summary and description from a comment to an operation.
pub(super) fn describe(operation: &mut Map<String, Value>, comment: Option<&str>) {
    let Some(comment) = comment else { return };
    let (summary, description) = lines(comment);
    operation.insert("summary".into(), summary.into());
    if !description.is_empty() {
        operation.insert("description".into(), description.into());
    }
}

/// Returns `{"$ref": "#/…"}`, escaped for a JSON pointer in a fragment.
pub(super) fn reference(section: &str, name: &str) -> Value {
    use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
    const FRAGMENT: &AsciiSet = &CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'#')
        .add(b'%')
        .add(b'<')
        .add(b'>')
        .add(b'[')
        .add(b'\\')
        .add(b']')
        .add(b'^')
        .add(b'`')
        .add(b'{')
        .add(b'|')
        .add(b'}');
    let pointer = name.replace('~', "~0").replace('/', "~1");
    json!({ "$ref": format!("#/{section}/{}", utf8_percent_encode(&pointer, FRAGMENT)) })
}
