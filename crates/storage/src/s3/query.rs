//! The query of a request, decoded once: the signature covers what the operation reads.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::{Result, S3Error};

/// The characters that SigV4 encodes: all but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Like [`RESERVED`], but in a path.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');
/// The most parameters of a query.
const MAX_PARAMETERS: usize = 200;

/// The parameters of a query, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct S3Query(Vec<(String, String)>);

impl S3Query {
    /// Decodes a query.
    ///
    /// # Errors
    /// When a parameter is not UTF-8, or when there are too many.
    pub fn parse(raw: &str) -> Result<Self> {
        let decode = |text: &str| -> Result<String> {
            let text = text.replace('+', " ");
            let decoded = percent_decode_str(&text).decode_utf8();
            Ok(decoded.map_err(|_| S3Error::invalid("The query is not UTF-8"))?.into_owned())
        };
        let mut parameters = Vec::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            if parameters.len() == MAX_PARAMETERS {
                return Err(S3Error::invalid("The query has too many parameters").into());
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((decode(name)?, decode(value)?));
        }
        Ok(Self(parameters))
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Like [`get`](Self::get), but for a parameter that stands for a header.
    pub fn get_header(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns true if the parameter is there, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the canonical query of SigV4, without the signature itself.
    pub fn canonical(&self) -> String {
        let mut encoded: Vec<(String, String)> = self
            .pairs()
            .filter(|(name, _)| *name != "X-Amz-Signature")
            .map(|(name, value)| (encode(name), encode(value)))
            .collect();
        encoded.sort();
        let pairs: Vec<String> = encoded.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    }
}

/// Encodes a text as SigV4 does.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Like [`encode`]; slashes stay.
pub(super) fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, RESERVED_IN_PATH).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_query_is_encoded_and_sorted_for_the_signature() {
        let query = S3Query::parse("prefix=a%2Fb c&delimiter=/&uploads&a=%C3%A4+x&X-Amz-Signature=1&a=1").unwrap();
        assert_eq!(query.canonical(), "a=%C3%A4%20x&a=1&delimiter=%2F&prefix=a%2Fb%20c&uploads=");
        assert_eq!((query.get("prefix"), query.get("uploads"), query.has("a")), (Some("a/b c"), Some(""), true));
        assert!(S3Query::parse("a=%ff").is_err());
        assert!(S3Query::parse(&"a&".repeat(201)).is_err());
    }

    proptest! {
        #[test]
        fn the_canonical_query_means_the_same(raw in "[a-c=&%+0-9A-F/ é]{0,30}") {
            if let Ok(query) = S3Query::parse(&raw) {
                let again = S3Query::parse(&query.canonical()).unwrap();
                prop_assert_eq!(again.canonical(), query.canonical());
            }
        }
    }
}
