//! `Upload-Metadata`: keys with values in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::media_type::OCTETS;
use crate::model::NO_CACHE;
use crate::object::description::{ContentDescription, metadata_text};

/// The key of the value of `Cache-Control`.
const CACHE_CONTROL: &str = "cacheControl";

/// The keys and values of `Upload-Metadata`, in the order of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadMetadata(Vec<(String, Vec<u8>)>);

impl UploadMetadata {
    /// Parses the header; `None` if it has another form. Keys are unique, a value may be empty.
    pub fn parse(header: &str) -> Option<Self> {
        let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
        for pair in header.split(',') {
            let pair = pair.trim_matches([' ', '\t']);
            let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
            let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_key || entries.iter().any(|(known, _)| known == key) {
                return None;
            }
            entries.push((key.to_owned(), STANDARD.decode(value).ok()?));
        }
        Some(Self(entries))
    }

    /// Returns a value that is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| known == key)?;
        std::str::from_utf8(value).ok()
    }

    /// Replaces the lifetime in caches by the header that will be sent: `max-age=<n>` for a number
    /// of seconds, otherwise `no-cache`.
    pub fn with_cache_control(mut self) -> Self {
        let seconds = self.text(CACHE_CONTROL).filter(|text| is_number(text));
        let header = seconds.map_or_else(|| NO_CACHE.to_owned(), |seconds| format!("max-age={seconds}")).into_bytes();
        match self.0.iter_mut().find(|(key, _)| key == CACHE_CONTROL) {
            Some((_, value)) => *value = header,
            None => self.0.push((CACHE_CONTROL.to_owned(), header)),
        }
        self
    }

    /// Returns the metadata as the header.
    pub fn to_header(&self) -> String {
        let pair = |(key, value): &(String, Vec<u8>)| match value.as_slice() {
            [] => key.clone(),
            value => format!("{key} {}", STANDARD.encode(value)),
        };
        self.0.iter().map(pair).collect::<Vec<_>>().join(",")
    }

    /// Returns the description of the content. User metadata that is no JSON is ignored.
    pub fn description(&self) -> ContentDescription {
        let mimetype = self.text("contentType").filter(|kind| !kind.is_empty()).unwrap_or(OCTETS);
        let user_metadata = self.text("metadata").and_then(|text| metadata_text(text.as_bytes()));
        ContentDescription {
            mimetype: mimetype.to_owned(),
            cache_control: self.text(CACHE_CONTROL).unwrap_or(NO_CACHE).to_owned(),
            robots_tag: None,
            user_metadata,
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(pairs: &[(&str, &str)]) -> String {
        pairs.iter().map(|(key, value)| format!("{key} {}", STANDARD.encode(value))).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn pairs_are_separated_by_commas_and_values_are_base64() {
        let parsed =
            UploadMetadata::parse("bucketName cGc=,objectName dHVzL29uZS5iaW4=, empty,also ,bytes /w==").unwrap();
        assert_eq!((parsed.text("bucketName"), parsed.text("objectName")), (Some("pg"), Some("tus/one.bin")));
        assert_eq!((parsed.text("empty"), parsed.text("also"), parsed.text("none")), (Some(""), Some(""), None));
        assert_eq!(parsed.text("bytes"), None, "bytes are no text");
        for wrong in [
            "",
            ",",
            "a,",
            ",a",
            "a b c",
            "a  YQ==",
            "a YQ",
            "a Y Q==",
            "a YQ==,a YQ==",
            "ä YQ==",
            "a *",
            "a YQ==;b",
            "a\u{7f}",
        ] {
            assert_eq!(UploadMetadata::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_lifetime_in_caches_is_seconds_or_nothing() {
        for (value, stored) in [
            ("3600", "max-age=3600"),
            ("max-age=5", "no-cache"),
            ("-1", "no-cache"),
            ("", "no-cache"),
            ("1e3", "no-cache"),
        ] {
            let parsed = UploadMetadata::parse(&header(&[("a", "b"), ("cacheControl", value)])).unwrap();
            let stored_metadata = parsed.with_cache_control();
            assert_eq!(stored_metadata.description().cache_control, stored, "{value}");
            assert_eq!(stored_metadata.to_header(), header(&[("a", "b"), ("cacheControl", stored)]));
        }
        let without = UploadMetadata::parse("a").unwrap().with_cache_control();
        assert_eq!(without.description().cache_control, "no-cache");
    }

    #[test]
    fn user_metadata_is_json_or_nothing() {
        for (text, expected) in [(r#"{ "a": 1 }"#, Some(r#"{"a":1}"#.to_owned())), ("{", None), ("", None)] {
            let parsed = UploadMetadata::parse(&header(&[("metadata", text)])).unwrap();
            assert_eq!(parsed.description().user_metadata, expected, "{text}");
        }
        let plain = UploadMetadata::parse("a").unwrap().description();
        assert_eq!((plain.mimetype.as_str(), plain.user_metadata), ("application/octet-stream", None));
    }

    proptest! {
        #[test]
        fn written_metadata_is_read_unchanged(entries in proptest::collection::btree_map("[!-+\\--~]{1,8}", proptest::collection::vec(any::<u8>(), 0..20), 1..6)) {
            let metadata = UploadMetadata(entries.into_iter().collect());
            prop_assert_eq!(UploadMetadata::parse(&metadata.to_header()), Some(metadata));
        }

        #[test]
        fn any_header_is_metadata_with_a_stable_form_or_none(header in "\\PC{0,60}|([a-c]{0,2}[ ,]{0,2}[YQ=A/+]{0,5}[ ,]{0,2}){0,6}") {
            if let Some(parsed) = UploadMetadata::parse(&header) {
                prop_assert_eq!(UploadMetadata::parse(&parsed.to_header()), Some(parsed));
            }
        }

        #[test]
        fn bytes_of_any_client_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(parsed) = http::HeaderValue::from_bytes(&bytes).ok().and_then(|value| UploadMetadata::parse(value.to_str().ok()?)) {
                let stored = parsed.with_cache_control();
                stored.description();
                prop_assert!(http::HeaderValue::try_from(stored.to_header()).is_ok());
            }
        }
    }
}
