//! The keys of versions in a store: `<prefix>/<bucket>/<name>/<version>`, as the hosted service
//! stores them.
//!
//! A row without a version refers to the key without one. Names that clients can choose stay
//! readable. What SQL alone can write (a bucket with `/`, segments of dots, `%`, control
//! characters) and what is too long for a store is replaced by a digest behind `%`, so two names
//! never share a key, and no URL library changes one.

use portico_base::hash;

use crate::backend::model::VersionKey;
use crate::backend::path::is_uuid;

/// The longest key of an object, in bytes. Stores allow 1,024 with the prefix and the version.
const MAX_KEY: usize = 850;

/// Returns the key of a version.
pub(super) fn of(prefix: &str, at: &VersionKey) -> String {
    match at.version.as_deref() {
        Some(version) if is_uuid(version) => format!("{}{version}", folder_of(prefix, &at.bucket, &at.name)),
        Some(version) => {
            let digest = hash::sha256_hex(version.as_bytes());
            format!("{}%{digest}", folder_of(prefix, &at.bucket, &at.name))
        }
        // Otherwise it would be a version of the object above
        None if at.name.rsplit('/').next().is_some_and(is_uuid) => {
            format!("{}%", folder_of(prefix, &at.bucket, &at.name))
        }
        None => folder_of(prefix, &at.bucket, &at.name).trim_end_matches('/').to_owned(),
    }
}

/// Returns the prefix of the keys of all versions of an object, with a slash at the end.
pub(super) fn folder_of(prefix: &str, bucket: &str, name: &str) -> String {
    let is_plain = |text: &str| {
        !text.contains('%')
            && !text.chars().any(char::is_control)
            && !text.split('/').any(|segment| matches!(segment, "" | "." | ".."))
    };
    let digest = |text: &str| format!("%{}", hash::sha256_hex(text.as_bytes()));
    let bucket = if is_plain(bucket) && !bucket.contains('/') { bucket.to_owned() } else { digest(bucket) };
    let name = if is_plain(name) && bucket.len() + name.len() <= MAX_KEY { name.to_owned() } else { digest(name) };
    format!("{prefix}{bucket}/{name}/")
}

/// Returns the version that a key below [`folder_of`] names; `None` for other keys.
pub(super) fn version_of<'a>(folder: &str, key: &'a str) -> Option<&'a str> {
    key.strip_prefix(folder).filter(|version| is_uuid(version))
}

/// Returns true for the key of a version of any object: below the prefix, a bucket and a name.
/// Other keys may be another program's.
pub(super) fn is_version(prefix: &str, key: &str) -> bool {
    let mut segments = key.strip_prefix(prefix).unwrap_or_default().rsplit('/');
    segments.next().is_some_and(is_uuid) && segments.count() >= 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VERSION: &str = "5f0e7a0c-52b1-4a3f-9c55-0f0a6a9c3b11";

    fn key(bucket: &str, name: &str, version: Option<&str>) -> String {
        of("p/", &VersionKey::new(bucket, name, version))
    }

    #[test]
    fn keys_are_those_of_the_hosted_service() {
        assert_eq!(key("avatars", "u 1/Me.png", Some(VERSION)), format!("p/avatars/u 1/Me.png/{VERSION}"));
        assert_eq!(key("avatars", "u1/me.png", None), "p/avatars/u1/me.png");
    }

    #[test]
    fn a_key_fits_into_a_store_and_has_no_segment_that_a_url_loses() {
        for name in ["..", "a/../b", "./a", "a//b", "/a", "a/", "\u{1}", &"ä".repeat(600)] {
            let key = key("b", name, Some(VERSION));
            assert!(key.contains('%') && key.len() < 1000, "{key}");
        }
    }

    #[test]
    fn nothing_but_a_version_of_an_object_counts_as_one() {
        let folder = folder_of("p/", "b", "a");
        assert_eq!(version_of(&folder, &key("b", "a", Some(VERSION))), Some(VERSION));
        for other in [key("b", &format!("a/{VERSION}"), None), key("b", &format!("a/{VERSION}"), Some(VERSION))] {
            assert_eq!(version_of(&folder, &other), None, "{other}");
        }
        assert_ne!(folder_of("p/", "b/a", "c"), folder_of("p/", "b", "a/c"));
    }

    proptest! {
        #[test]
        fn two_names_never_share_a_folder(a in "[aA./%]{0,8}", b in "[aA./%]{0,8}") {
            prop_assert_eq!(a == b, folder_of("", "b", &a) == folder_of("", "b", &b));
        }
    }
}
