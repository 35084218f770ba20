//! The folders of extensions: which ones PostgreSQL searches, in which order.
//!
//! 1. Our own folder in the data folder: look-alikes, and copies of control files that mark
//!    extensions as trusted.
//! 2. The folder of the programs themselves, PostgreSQL's `$system`.
//! 3. What `scripts/extensions` has fetched for this major version, beside the npm package.
//! 4. Debian's folders of this major version, where the programs are not Debian's.
//!
//! A library is loaded only if PostgreSQL finds its own version's mark in it, so a folder of
//! another version cannot do harm; it is not searched in the first place.

use std::io;
use std::path::{Path, PathBuf};

use super::binaries::Binaries;
use super::home::{Home, private_folder};
use super::private::close;

/// The first version that looks for extensions in more than one folder.
const SEARCHES_FOLDERS: u32 = 18;

/// The settings of PostgreSQL that name the folders.
pub(super) struct SearchPaths {
    /// `extension_control_path`: folders with a folder `extension` in them.
    pub control: String,
    /// `dynamic_library_path`.
    pub library: String,
}

/// Writes the files that differ from what is there. PostgreSQL reads them at `create extension`.
pub(super) fn write(home: &Home, binaries: &Binaries) -> io::Result<()> {
    if search_paths(home, binaries).is_none() {
        return Ok(());
    }
    let folder = home.extensions();
    private_folder(&folder, home.account)?;
    let others = further(binaries).into_iter().map(|found| found.control.join("extension"));
    let sources: Vec<PathBuf> = system_folder(binaries).into_iter().chain(others).collect();
    crate::bootstrap::install_extensions(&folder, &sources)?;
    close(&folder, home.account)
}

/// Returns where PostgreSQL is to search. `None`: it is too old for that, or our folder has a colon
/// in its path, which separates the folders.
pub(super) fn search_paths(home: &Home, binaries: &Binaries) -> Option<SearchPaths> {
    let ours = setting(&home.extensions()).filter(|_| binaries.major() >= SEARCHES_FOLDERS)?;
    let further = further(binaries);
    let join = |first: String, rest: Vec<String>| [vec![first], rest].concat().join(":");
    Some(SearchPaths {
        control: join(format!("{ours}:$system"), further.iter().filter_map(|found| setting(&found.control)).collect()),
        library: join("$libdir".into(), further.iter().filter_map(|found| setting(&found.library)).collect()),
    })
}

/// Checks that the programs have a library of this name, such as `pg_stat_statements`.
pub(super) fn has_library(binaries: &Binaries, name: &str) -> bool {
    let prefix = binaries.folder().parent();
    let folders = prefix.into_iter().flat_map(|prefix| [prefix.join("lib/postgresql"), prefix.join("lib")]);
    folders.into_iter().any(|folder| ["so", "dylib"].iter().any(|end| folder.join(format!("{name}.{end}")).is_file()))
}

/// The folders of a source besides the programs' own.
struct ExtensionFolders {
    control: PathBuf,
    library: PathBuf,
}

fn further(binaries: &Binaries) -> Vec<ExtensionFolders> {
    let fetched = binaries
        .additions()
        .map(|folder| ExtensionFolders { control: folder.join("share"), library: folder.join("lib") });
    let is_debians = binaries.folder().starts_with("/usr/lib/postgresql");
    let debian = if is_debians { None } else { debian(Path::new("/usr"), binaries.major()) };
    fetched.into_iter().chain(debian).collect()
}

/// Returns Debian's folders for a major version, if anything is installed there. `usr` is `/usr`.
fn debian(usr: &Path, major: u32) -> Option<ExtensionFolders> {
    let major = major.to_string();
    let found = ExtensionFolders {
        control: usr.join("share/postgresql").join(&major),
        library: usr.join("lib/postgresql").join(&major).join("lib"),
    };
    found.control.join("extension").is_dir().then_some(found)
}

/// Returns a folder as an item of the settings, whose items a colon separates.
fn setting(folder: &Path) -> Option<String> {
    folder.to_str().filter(|text| !text.contains(':')).map(str::to_owned)
}

/// Returns where the extensions of the programs are: beside them, or in Debian's own folder.
fn system_folder(binaries: &Binaries) -> Option<PathBuf> {
    let prefix = binaries.folder().parent()?;
    let folders = [
        prefix.join("share/postgresql/extension"),
        prefix.join("share/extension"),
        Path::new("/usr/share/postgresql").join(binaries.major().to_string()).join("extension"),
    ];
    folders.into_iter().find(|found| found.is_dir())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn debians_folders_are_searched_for_the_same_major_version_only() {
        let usr = tempfile::tempdir().unwrap();
        fs::create_dir_all(usr.path().join("share/postgresql/18/extension")).unwrap();
        let found = debian(usr.path(), 18).unwrap();
        assert_eq!(setting(&found.control), usr.path().join("share/postgresql/18").to_str().map(str::to_owned));
        assert_eq!(setting(&found.library), usr.path().join("lib/postgresql/18/lib").to_str().map(str::to_owned));
        assert!(debian(usr.path(), 17).is_none() && debian(usr.path(), 19).is_none());
        assert_eq!(setting(Path::new("/a:b")), None, "a colon separates folders");
    }
}
