//! Strings that must not be printed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use subtle::ConstantTimeEq;

/// A password, key or signing secret. `Debug` prints `***`, and comparison takes the same time for
/// every content.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps the text of a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// Returns the text. Never log it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns true if the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self == other.expose()
    }
}

impl Eq for Secret {}

impl PartialEq<str> for Secret {
    fn eq(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("correct horse");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(format!("{:?}", Some(&secret)), "Some(***)");
    }

    #[test]
    fn secrets_compare_by_content() {
        assert_eq!(Secret::new("a"), Secret::from("a"));
        assert_ne!(Secret::new("a"), Secret::new("ab"));
        assert!(Secret::new("a") == *"a");
    }
}
