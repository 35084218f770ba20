//! Our look-alikes of extensions, as files where PostgreSQL looks for them.

use std::io;
use std::path::{Path, PathBuf};

use super::binaries::Binaries;
use super::home::{Home, private_folder};
use super::private::close;

/// The first version that looks for extensions in more than one folder.
const SEARCHES_FOLDERS: u32 = 18;

/// Writes the files that differ from what is there. PostgreSQL reads them when somebody says `create extension`.
pub(super) fn write(home: &Home, binaries: &Binaries) -> io::Result<()> {
    if search_path(home, binaries.major()).is_none() {
        return Ok(());
    }
    let folder = home.extensions();
    private_folder(&folder, home.account)?;
    crate::bootstrap::install_extensions(&folder, system_folder(binaries).as_deref())?;
    close(&folder, home.account)
}

/// Where PostgreSQL is to search: ours first. `None`: it can not, being too old or by a colon in the path, which separates
/// the folders.
pub(super) fn search_path(home: &Home, major: u32) -> Option<String> {
    let folder = home.extensions().into_os_string().into_string().ok()?;
    (major >= SEARCHES_FOLDERS && !folder.contains(':')).then(|| format!("{folder}:$system"))
}

/// Where the extensions of the programs lie: beside them, or in Debian's own place.
fn system_folder(binaries: &Binaries) -> Option<PathBuf> {
    let prefix = binaries.folder().parent()?;
    let places = [
        prefix.join("share/postgresql/extension"),
        prefix.join("share/extension"),
        Path::new("/usr/share/postgresql").join(binaries.major().to_string()).join("extension"),
    ];
    places.into_iter().find(|place| place.is_dir())
}
