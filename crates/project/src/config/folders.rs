//! The folders that relative paths are based on.

use std::path::{Path, PathBuf};

/// The folders that relative paths are based on.
pub(crate) struct Folders<'a> {
    /// The project root.
    pub root: &'a Path,
    /// `<root>/supabase`.
    pub supabase: PathBuf,
}

/// Makes a path of the configuration absolute, relative to its base folder.
pub(crate) fn absolute(base: &Path, path: PathBuf) -> PathBuf {
    let mut absolute = base.to_owned();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            part => absolute.push(part),
        }
    }
    absolute
}
