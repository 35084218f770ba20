//! Folders and files that only their owner may read.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use super::account::SystemAccount;

/// Makes the folder in which the data of a cluster lies beside other files, its owner's alone.
/// `data` is the name of the cluster's data folder in it. A folder that exists is left as it is,
/// see [`close_folder`].
///
/// PostgreSQL does not run as root. Where we are root, the group of the user it runs as may pass
/// through the folder, and not list it: otherwise that user could not reach its data.
///
/// # Errors
/// When the folder cannot be made.
pub fn make_folder(folder: &Path, data: &str) -> io::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let_pass(folder, &SystemAccount::for_data(&folder.join(data)))
}

/// Closes a folder that exists, and everything in it but the cluster's data folder, which the
/// cluster itself sees to: folders and files become their owner's alone. Links are left as they
/// are, and not followed.
///
/// # Errors
/// When something belongs to another user, or cannot be read.
pub fn close_folder(folder: &Path, data: &str) -> io::Result<()> {
    let_pass(folder, &SystemAccount::for_data(&folder.join(data)))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != data {
            close(&entry.path(), SystemAccount::Ours)?;
        }
    }
    Ok(())
}

/// Makes a file or a folder with everything in it the account's alone.
pub(super) fn close(path: &Path, account: SystemAccount) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) if !found.is_symlink() => found,
        Ok(_) => return Ok(()),
        // A file of a server that ends at the moment
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    account.set_owner(path)?;
    // The owner's rights are kept: programs can be executed, and folders entered
    set_mode(path, &found, if found.is_dir() { 0o700 } else { found.mode() & 0o700 })?;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            close(&entry?.path(), account)?;
        }
    }
    Ok(())
}

fn let_pass(folder: &Path, account: &SystemAccount) -> io::Result<()> {
    let found = fs::metadata(folder)?;
    let group = match account {
        SystemAccount::Lesser { uid, gid } if found.uid() != *uid => Some(*gid),
        _ => None,
    };
    if group.is_some_and(|gid| gid != found.gid()) {
        chown(folder, None, group)?;
    }
    set_mode(folder, &found, if group.is_some() { 0o710 } else { 0o700 })
}

fn set_mode(path: &Path, found: &Metadata, mode: u32) -> io::Result<()> {
    if found.mode() & 0o7777 == mode { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(mode)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    /// Checks that a folder is closed to all accounts but its owner and, where this program is
    /// root, the group of the user that PostgreSQL runs as.
    fn assert_closed(folder: &Path) {
        let open = if rustix::process::geteuid().is_root() { 0o710 } else { 0o700 };
        assert_eq!(mode(folder), open);
        assert_eq!(
            SystemAccount::for_data(&folder.join("postgres")).blocked_at(folder).filter(|at| at == folder),
            None
        );
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        (parent, folder)
    }

    #[test]
    fn a_new_folder_is_its_owner_s_alone_and_an_old_one_is_left_as_it_is() {
        let (_parent, data) = folder();
        make_folder(&data, "postgres").unwrap();
        assert_closed(&data);
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        make_folder(&data, "postgres").unwrap();
        assert_eq!(mode(&data), 0o755);
    }

    #[test]
    fn a_folder_that_was_open_is_closed_with_everything_in_it() {
        let (parent, data) = folder();
        for name in ["postgres", "more/inner"] {
            fs::create_dir_all(data.join(name)).unwrap();
        }
        let outside = parent.path().join("outside");
        let open = [data.join("accounts.json"), data.join("more/inner/log"), data.join("postgres/file"), outside];
        for file in &open {
            fs::write(file, "secret").unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o664)).unwrap();
        }
        symlink(&open[3], data.join("link")).unwrap();
        let socket = data.join("control.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        for folder in [data.clone(), data.join("more"), data.join("more/inner"), data.join("postgres")] {
            fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        }
        close_folder(&data, "postgres").unwrap();
        assert_closed(&data);
        assert_eq!([mode(&data.join("more")), mode(&data.join("more/inner"))], [0o700, 0o700]);
        assert_eq!([mode(&open[0]), mode(&open[1])], [0o600, 0o600]);
        assert_eq!(mode(&socket) & 0o077, 0);
        // The cluster's own, and what a link leads to
        assert_eq!([mode(&data.join("postgres")), mode(&open[2]), mode(&open[3])], [0o777, 0o664, 0o664]);
    }
}
