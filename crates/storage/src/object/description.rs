//! The description of content by its sender.

use serde_json::Value;

/// The description of the content by its sender.
#[derive(Debug, Clone)]
pub(crate) struct ContentDescription {
    pub mimetype: String,
    pub cache_control: String,
    pub robots_tag: Option<String>,
    /// JSON as text: the parsed form can be many times as large, and is not needed while the
    /// content arrives.
    pub user_metadata: Option<String>,
}

/// Returns the metadata that a client has written as JSON; `None` for any other text.
pub(crate) fn metadata_text(text: &[u8]) -> Option<String> {
    serde_json::from_slice::<Value>(text).ok().map(|metadata| metadata.to_string())
}
