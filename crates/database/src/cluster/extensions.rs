//! Our look-alikes of extensions, as files where PostgreSQL looks for them.

use std::io;

use super::home::{Home, private_folder};

/// Writes the files that differ from what is there. PostgreSQL reads them when somebody says `create extension`.
pub(super) fn write(home: &Home) -> io::Result<()> {
    let folder = home.extensions();
    private_folder(&folder, home.account)?;
    let folder = folder.join("extension");
    private_folder(&folder, home.account)?;
    Ok(())
}
