//! The paths of versions: `<bucket>/<name>/<version>`, where each segment of the name is a folder.
//!
//! A segment that a file system could misread is replaced by its readable characters, `%`, and its
//! digest: one that is too long, is empty or consists of dots, has upper-case letters (file systems
//! may fold them), or characters outside of a small set (file systems may normalise them). Names
//! without that never contain `%`, so two names never share a path, and no path leaves the root.

use std::path::PathBuf;

use portico_base::hash;
use uuid::Uuid;

use super::model::VersionKey;

/// The longest segment that is used as it is, in bytes.
const MAX_SEGMENT: usize = 120;
/// The longest path of a name, in bytes. A longer one is replaced as a whole.
const MAX_PATH: usize = 1500;
/// The most segments of a name that become folders. A name with more is replaced as a whole.
const MAX_SEGMENTS: usize = 32;
/// The most readable characters of a replaced segment.
const READABLE: usize = 60;
/// The folder of the names that are replaced as a whole. No segment has this form.
const LONG_NAMES: &str = "%long";

/// Returns the path of an object's folder, relative to the root.
pub(super) fn folder_of(bucket: &str, name: &str) -> PathBuf {
    let bucket = segment(bucket);
    // Every folder takes space and has to be flushed
    if name.split('/').nth(MAX_SEGMENTS).is_none() {
        let path: PathBuf = name.split('/').map(segment).collect();
        if path.as_os_str().len() <= MAX_PATH {
            return PathBuf::from(bucket).join(path);
        }
    }
    let digest = hash::sha256_hex(name.as_bytes());
    [bucket.as_str(), LONG_NAMES, &digest[..2], &digest].iter().collect()
}

/// Returns the path of a version, relative to the root.
pub(super) fn of(key: &VersionKey) -> PathBuf {
    folder_of(&key.bucket, &key.name).join(version_file(key.version.as_deref()))
}

/// Returns the name of a version's file. A folder never has such a name.
fn version_file(version: Option<&str>) -> String {
    match version {
        Some(version) if is_uuid(version) => version.to_owned(),
        Some(version) => format!("%{}.version", hash::sha256_hex(version.as_bytes())),
        None => "%.version".to_owned(),
    }
}

/// Returns the version of a file that [`version_file`] has named; `None` for folders, and for
/// versions whose name cannot be read back.
pub(super) fn version_of_file(file: &str) -> Option<&str> {
    is_uuid(file).then_some(file)
}

/// Returns true for the names that [`version_file`] returns.
pub(super) fn is_version_file(file: &str) -> bool {
    is_uuid(file) || (file.starts_with('%') && file.ends_with(".version"))
}

/// Returns true for a UUID in its usual form, in lower case.
pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok_and(|id| id.hyphenated().to_string() == text)
}

/// Returns the folder name of a segment.
fn segment(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-!.'()&$@=;+, ".contains(&byte);
    let keeps_form = !text.is_empty()
        && text.len() <= MAX_SEGMENT
        && text.bytes().all(is_plain)
        && !text.ends_with(['.', ' '])
        && !is_uuid(text);
    if keeps_form {
        return text.to_owned();
    }
    let readable: String = text.chars().filter(|c| c.is_ascii() && is_plain(*c as u8)).take(READABLE).collect();
    format!("{readable}%{}", hash::sha256_hex(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    fn path(bucket: &str, name: &str, version: Option<&str>) -> String {
        of(&VersionKey::new(bucket, name, version)).to_str().unwrap().to_owned()
    }

    const VERSION: &str = "5f0e7a0c-52b1-4a3f-9c55-0f0a6a9c3b11";

    #[test]
    fn plain_names_are_readable() {
        assert_eq!(path("avatars", "u1/me.png", Some(VERSION)), format!("avatars/u1/me.png/{VERSION}"));
    }

    #[test]
    fn names_that_a_file_system_could_misread_get_a_digest() {
        for name in ["IMG.png", "..", ".", "", "a.", "a:b", "ä", &"x".repeat(200), VERSION, "*", "a?"] {
            let path = path("b", name, Some(VERSION));
            assert!(path.contains('%') && path.len() < 250, "{path}");
        }
        assert_ne!(path("b", "A", Some(VERSION)).to_lowercase(), path("b", "a", Some(VERSION)));
        // The two normal forms of one character
        assert_ne!(path("b", "\u{e4}", None), path("b", "a\u{308}", None));
    }

    #[test]
    fn a_version_is_never_a_folder_of_another_name() {
        let version = path("b", "a", Some(VERSION));
        assert_ne!(folder_of("b", &format!("a/{VERSION}")).to_str(), Some(version.as_str()));
        assert_ne!(path("b", "a", None), path("b", "a", Some("")));
    }

    #[test]
    fn a_name_becomes_few_folders() {
        let segments = |name: &str| folder_of("b", name).components().count();
        assert_eq!(segments(&vec!["a"; MAX_SEGMENTS].join("/")), MAX_SEGMENTS + 1);
        let deep = vec!["a"; MAX_SEGMENTS + 1].join("/");
        assert_eq!(segments(&deep), 4);
        assert_ne!(folder_of("b", &deep), folder_of("b", &format!("{deep}/a")));
    }

    #[test]
    fn a_path_is_short_enough_for_every_file_system() {
        for name in ["A/".repeat(1250), "x".repeat(2500), "ab/".repeat(800)] {
            assert!(path("b", &name, Some(VERSION)).len() < 1800);
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_root(bucket in "\\PC{0,20}|[./\\\\]{0,6}", name in "\\PC{0,40}|[./a\\\\]{0,12}", version in proptest::option::of("\\PC{0,20}|[./]{0,6}")) {
            let path = of(&VersionKey::new(&bucket, &name, version.as_deref()));
            prop_assert!(path.components().all(|segment| matches!(segment, Component::Normal(_))));
            prop_assert!(path.components().count() >= 3);
        }

        #[test]
        fn two_names_never_share_a_folder(a in "[aA./%]{0,8}", b in "[aA./%]{0,8}") {
            let [one, other] = [&a, &b].map(|name| folder_of("b", name).to_str().unwrap().to_lowercase());
            prop_assert_eq!(a == b, one == other);
        }
    }
}
