//! The names of buckets and objects.

use crate::error::{Result, StorageError};

/// The last segment of the object that marks an empty folder.
pub(crate) const EMPTY_FOLDER_PLACEHOLDER: &str = ".emptyFolderPlaceholder";

/// The longest bucket name, in characters.
const MAX_BUCKET_NAME: usize = 100;

/// Names an object of a request. Nothing is known about it: the bucket may not exist, and the name
/// may be one that no object can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectPath {
    pub bucket: String,
    pub name: String,
}

/// The key of an object that may be written: without `.` and `..` segments, in the allowed
/// characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectKey(String);

impl ObjectKey {
    /// Parses a key.
    ///
    /// # Errors
    /// [`StorageError::InvalidKey`]
    pub fn parse(key: &str) -> Result<Self> {
        let is_allowed = |c: char| is_name_character(c) || c == '/';
        let has_dots = key.split('/').any(|segment| matches!(segment, "." | ".."));
        if key.is_empty() || has_dots || !key.chars().all(is_allowed) {
            return Err(StorageError::InvalidKey(key.to_owned()));
        }
        Ok(Self(key.to_owned()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the key is the mark of an empty folder.
    pub fn is_folder_placeholder(&self) -> bool {
        is_folder_placeholder(&self.0)
    }
}

/// Returns true if a name is that of the mark of an empty folder.
pub(crate) fn is_folder_placeholder(name: &str) -> bool {
    name.rsplit('/').next() == Some(EMPTY_FOLDER_PLACEHOLDER)
}

/// Checks the name or id of a new bucket.
///
/// # Errors
/// [`StorageError::InvalidBucketName`]
pub(crate) fn check_bucket_name(name: &str) -> Result<()> {
    let length = name.chars().count();
    let is_valid = (1..=MAX_BUCKET_NAME).contains(&length)
        && name.chars().all(is_name_character)
        && name.trim() == name
        && !matches!(name, "." | "..")
        && !name.ends_with("--table-s3");
    if is_valid { Ok(()) } else { Err(StorageError::InvalidBucketName) }
}

/// Returns true if names can contain the character.
fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_!-.*'() &$@=;:+,?".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_allowed_characters_and_no_dot_segments() {
        for key in ["a", "a/b.png", "a//b", "/a", "a/", "...", "a/.b", "u 1/!-.*'()&$@=;:+,?_", &"x".repeat(1025)] {
            assert_eq!(ObjectKey::parse(key).map(|key| key.0), Ok(key.to_owned()));
        }
        for key in
            ["", ".", "..", "a/../b", "../a", "a/.", "ä", "a\u{308}", "a\0", "a\nb", "a%2fb", "a#", "~", "a\\b", "<"]
        {
            assert_eq!(ObjectKey::parse(key), Err(StorageError::InvalidKey(key.to_owned())), "{key:?}");
        }
    }

    #[test]
    fn bucket_names_are_one_segment_of_at_most_a_hundred_characters() {
        for name in ["a", "my bucket", "A.b-c_d", &"x".repeat(100)] {
            assert_eq!(check_bucket_name(name), Ok(()), "{name:?}");
        }
        for name in ["", " a", "a ", "a/b", "ü", "..", ".", "x--table-s3", "a\0", &"x".repeat(101)] {
            assert_eq!(check_bucket_name(name), Err(StorageError::InvalidBucketName), "{name:?}");
        }
    }
}
