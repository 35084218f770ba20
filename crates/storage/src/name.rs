//! The names of buckets and objects.

use crate::error::{Result, StorageError};

/// The last segment of the object that marks an empty folder.
pub(crate) const EMPTY_FOLDER_PLACEHOLDER: &str = ".emptyFolderPlaceholder";

/// The longest key of an object, in characters. No route reaches a longer one.
pub(crate) const MAX_KEY: usize = 2500;

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
/// characters, and not longer than routes permit.
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
        let is_long = key.chars().count() > MAX_KEY;
        if key.is_empty() || is_long || has_dots || !key.chars().all(is_allowed) {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_have_the_allowed_characters_and_no_dot_segments() {
        for key in ["a", "a/b.png", "a//b", "/a", "a/", "...", "a/.b", "u 1/!-.*'()&$@=;:+,?_", &"x".repeat(2500)] {
            assert_eq!(ObjectKey::parse(key).map(|key| key.0), Ok(key.to_owned()));
        }
        for key in
            ["", ".", "..", "a/../b", "../a", "a/.", "ä", "a\u{308}", "a\0", "a\nb", "a%2fb", "a#", "~", "a\\b", "<"]
        {
            assert_eq!(ObjectKey::parse(key), Err(StorageError::InvalidKey(key.to_owned())), "{key:?}");
        }
        assert!(ObjectKey::parse(&"x".repeat(2501)).is_err());
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
    /// A segment of allowed characters that has another meaning than a folder.
    const SEGMENT: &str = "[a-zA-Z0-9_!\\-*'() &$@=;:+,?][a-zA-Z0-9_!\\-.*'() &$@=;:+,?]{0,6}";
    /// A character that no name has.
    const FOREIGN: &str = "[^a-zA-Z0-9_!\\-.*'() &$@=;:+,?/]";

    proptest! {
        #[test]
        fn every_key_of_plain_segments_is_accepted_as_it_is(segments in prop::collection::vec(SEGMENT, 1..6)) {
            let key = segments.join("/");
            prop_assert_eq!(ObjectKey::parse(&key).map(|key| key.0), Ok(key));
        }

        #[test]
        fn a_key_with_a_foreign_character_or_a_dot_segment_is_rejected(
            segments in prop::collection::vec(SEGMENT, 1..6), at: prop::sample::Index, foreign in FOREIGN, dots in "[.]{1,2}",
        ) {
            let at = at.index(segments.len());
            let with = |segment: String| {
                let mut segments = segments.clone();
                segments.insert(at, segment);
                segments.join("/")
            };
            for key in [with(foreign.clone()), with(format!("a{foreign}b")), with(dots)] {
                prop_assert_eq!(ObjectKey::parse(&key), Err(StorageError::InvalidKey(key)));
            }
        }

        #[test]
        fn an_accepted_key_never_leads_out_of_its_bucket(key in "[a./]{0,12}|\\PC{0,12}") {
            if ObjectKey::parse(&key).is_ok() {
                let depth = key.split('/').try_fold(0_u32, |depth, segment| match segment {
                    "" | "." => Some(depth),
                    ".." => depth.checked_sub(1),
                    _ => Some(depth + 1),
                });
                prop_assert!(depth.is_some() && key.is_ascii());
            }
        }

        #[test]
        fn every_bucket_name_of_one_plain_segment_is_accepted(name in SEGMENT) {
            prop_assert_eq!(check_bucket_name(&name), if name.trim() == name { Ok(()) } else { Err(StorageError::InvalidBucketName) });
            for blank in [' ', '\u{a0}'] {
                for padded in [format!("{name}{blank}"), format!("{blank}{name}")] {
                    prop_assert!(check_bucket_name(&padded).is_err());
                }
            }
        }

        #[test]
        fn a_bucket_name_with_a_slash_or_a_foreign_character_is_rejected(begin in SEGMENT, foreign in FOREIGN, end in SEGMENT) {
            for name in [format!("{begin}/{end}"), format!("{begin}{foreign}{end}"), format!("{begin}{}", "x".repeat(100))] {
                prop_assert_eq!(check_bucket_name(&name), Err(StorageError::InvalidBucketName), "{}", name);
            }
        }
    }
}
