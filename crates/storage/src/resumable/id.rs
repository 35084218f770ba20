//! The id of a resumable upload in its URL.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::name::ObjectPath;

/// The longest id, in bytes. Names of buckets and objects are shorter.
const MAX_ID: usize = 4096;

/// The id of a resumable upload: base64url of `<bucket>/<object name>/<version>`. The version is
/// random, so an id cannot be guessed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResumableId {
    pub target: ObjectPath,
    pub version: Uuid,
}

impl ResumableId {
    /// Decodes an id; `None` if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_ID {
            return None;
        }
        let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let (bucket, rest) = decoded.split_once('/')?;
        let (name, version) = rest.rsplit_once('/')?;
        let parsed = Uuid::try_parse(version).ok()?;
        // Every upload has one id
        let is_canonical = parsed.hyphenated().to_string() == version;
        let target = ObjectPath { bucket: bucket.to_owned(), name: name.to_owned() };
        (is_canonical && !bucket.is_empty() && !name.is_empty()).then_some(Self { target, version: parsed })
    }

    /// Encodes the id.
    pub fn encode(&self) -> String {
        let Self { target: ObjectPath { bucket, name }, version } = self;
        URL_SAFE_NO_PAD.encode(format!("{bucket}/{name}/{version}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VERSION: &str = "5f0e7a0c-52b1-4a3f-9c55-0f0a6a9c3b11";

    #[test]
    fn texts_of_another_form_are_no_ids() {
        let upper = VERSION.to_uppercase();
        for decoded in
            ["", "a", "a/b", "a/b/c", &format!("a/{VERSION}"), &format!("a//{VERSION}"), &format!("a/b/{upper}")]
        {
            assert_eq!(ResumableId::parse(&URL_SAFE_NO_PAD.encode(decoded)), None, "{decoded}");
        }
        for text in ["", "%", "../../etc", "YQ==", "_w", &"A".repeat(5000)] {
            assert_eq!(ResumableId::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_id_names_one_upload(bucket in "[^/]{1,20}", name in "\\PC{1,30}", version: u128) {
            let id = ResumableId { target: ObjectPath { bucket, name }, version: Uuid::from_u128(version) };
            prop_assert_eq!(ResumableId::parse(&id.encode()), Some(id));
        }

        #[test]
        fn every_text_is_an_id_with_one_spelling_or_none(text in "\\PC{0,60}|[A-Za-z0-9_-]{0,120}") {
            if let Some(id) = ResumableId::parse(&text) {
                prop_assert_eq!(id.encode(), text);
            }
        }
    }
}
