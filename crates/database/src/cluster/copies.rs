//! Copies of a cluster that is initialised once, for tests (`crate::scratch`).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::binaries::Binaries;
use super::error::ClusterError;
use super::home::{Home, private_folder};
use super::initialise::initialise;
use super::settings::Durability;

/// Initialises a cluster in a data folder, and does not start it.
pub(crate) fn initialise_in(data: &Path, binaries: &Binaries) -> Result<(), ClusterError> {
    let home = Home::open(data)?;
    let binaries = binaries.clone().usable_by(home.account, &home.private_programs())?;
    initialise(&home, &binaries, Durability::Off)
}

/// Copies the cluster of the data folder `initialised` into a data folder without one.
pub(crate) fn begin_with(data: &Path, initialised: &Path) -> Result<(), ClusterError> {
    let home = Home::open(data)?;
    let (pgdata, new) = (home.pgdata(), home.folder().join("pgdata.new"));
    if pgdata.exists() {
        return Ok(());
    }
    let copied = private_folder(&new, home.account)
        .and_then(|()| copy_content(&initialised.join("pgdata"), &new, &|path| home.account.set_owner(path)))
        .and_then(|()| fs::rename(&new, &pgdata));
    copied.map_err(|error| ClusterError::folder(&pgdata, &error))
}

/// Copies the content of a folder into another one, with the modes, which PostgreSQL checks.
/// `set_owner` is called for every copy.
pub(crate) fn copy_content(from: &Path, to: &Path, set_owner: &impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            DirBuilder::new().mode(0o700).create(&copy)?;
            copy_content(&entry.path(), &copy, set_owner)?;
        } else {
            fs::copy(entry.path(), &copy)?;
        }
        set_owner(&copy)?;
    }
    Ok(())
}
