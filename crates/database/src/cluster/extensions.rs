//! Our look-alikes of extensions, as files where PostgreSQL looks for them.

use std::io;
use std::path::PathBuf;

use super::binaries::Binaries;
use super::home::{Home, private_folder};
use crate::bootstrap;

/// Writes the files that differ from what is there. PostgreSQL reads them when somebody says `create extension`; versions
/// before 18 look in their own folder only.
pub(super) fn write(home: &Home, binaries: &Binaries) -> io::Result<()> {
    if binaries.major() < 18 {
        return Ok(());
    }
    let folder = home.extensions();
    private_folder(&folder, home.account)?;
    private_folder(&folder.join("extension"), home.account)?;
    bootstrap::install_extensions(&folder, system_folder(binaries).as_deref())
}

/// Where the server's own extensions lie: beside its programs, or where Debian puts them.
fn system_folder(binaries: &Binaries) -> Option<PathBuf> {
    let beside = binaries.folder().parent().map(|home| home.join("share/postgresql/extension"));
    let debian = PathBuf::from(format!("/usr/share/postgresql/{}/extension", binaries.major()));
    [beside, Some(debian)].into_iter().flatten().find(|folder| folder.is_dir())
}
